// SPDX-License-Identifier: MIT OR Apache-2.0
//! Systems by two values: a mark for each, its ranges as a cross. The vertical axis is logarithmic.

use super::style::{self, LABEL_GAP, Size, WIDTH};
use super::{Area, Drawn};
use crate::stats::Spread;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

const HEIGHT: u32 = 520;
const TOP: u32 = 70;
/// Space for the labels of marks at the right.
const RIGHT: u32 = 230;
/// Room around the marks, as a factor of the largest and smallest values.
const ROOM: f64 = 1.6;

/// The picture.
#[derive(Default)]
pub struct Scatter {
    /// In bold, above it all.
    pub title: String,
    /// Title of the horizontal axis.
    pub x_title: String,
    /// Title of the vertical axis, which is logarithmic.
    pub y_title: String,
    /// The systems.
    pub marks: Vec<Mark>,
}

/// One system.
pub struct Mark {
    /// Its name.
    pub name: String,
    /// Its horizontal value.
    pub x: Spread,
    /// Its vertical value, above zero.
    pub y: Spread,
}

impl Scatter {
    pub(super) fn size(&self) -> Size {
        (WIDTH, HEIGHT)
    }

    /// The ends of both axes.
    fn axes(&self) -> ((f64, f64), (f64, f64)) {
        let marks = || self.marks.iter();
        let right = marks().map(|it| it.x.high).fold(1.0, f64::max);
        let left = marks().map(|it| it.x.low).fold(0.0, f64::min);
        let top = marks().map(|it| it.y.high).fold(1.0, f64::max);
        let bottom = marks().map(|it| it.y.low).fold(top, f64::min);
        (
            (left * 1.1, style::round_up(right * 1.05)),
            (bottom / ROOM, top * ROOM),
        )
    }

    pub(super) fn draw(&self, area: &Area<'_>) -> Drawn {
        let ((left, right), (bottom, top)) = self.axes();
        let mut chart = ChartBuilder::on(area)
            .margin_top(TOP)
            .margin_right(RIGHT)
            .margin_left(12)
            .margin_bottom(12)
            .x_label_area_size(46)
            .y_label_area_size(56)
            .build_cartesian_2d(left..right, (bottom..top).log_scale())?;
        style::axes(&mut chart.configure_mesh())
            .x_desc(self.x_title.as_str())
            .draw()?;
        let places: Vec<_> = self
            .marks
            .iter()
            .map(|it| chart.backend_coord(&(it.x.median, it.y.median)))
            .collect();
        let heights: Vec<_> = places.iter().map(|&(_, y)| y).collect();
        let lowest = (HEIGHT - 70) as i32;
        let labels = style::apart(&heights, LABEL_GAP, lowest);
        for (number, ((mark, &(x, _)), &label)) in
            self.marks.iter().zip(&places).zip(&labels).enumerate()
        {
            let colour = style::colour(number);
            let (at_x, at_y) = (mark.x.median, mark.y.median);
            let cross = [
                [(mark.x.low, at_y), (mark.x.high, at_y)],
                [(at_x, mark.y.low), (at_x, mark.y.high)],
            ];
            for range in cross {
                chart.draw_series([style::range(range, colour)])?;
            }
            chart.draw_series([style::mark((at_x, at_y), colour)])?;
            let style = style::coloured(colour).pos(Pos::new(HPos::Left, VPos::Center));
            let place = (x + style::RADIUS + 6, label);
            area.draw(&Text::new(mark.name.clone(), place, style))?;
        }
        Ok(())
    }
}
