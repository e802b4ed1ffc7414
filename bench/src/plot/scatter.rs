// SPDX-License-Identifier: MIT OR Apache-2.0
//! Systems by two values: a mark for each, its ranges as a cross. The vertical axis is logarithmic.

use super::style::{self, Size, WIDTH};
use super::{Area, Drawn, labels};
use crate::stats::Spread;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

const HEIGHT: u32 = 520;
const TOP: u32 = 70;
/// Space for the names of marks at the right.
const RIGHT: u32 = 230;
/// Space at the left for the numbers of the vertical axis, and its margin.
const NUMBERS: u32 = 56;
const LEFT: u32 = 12;
/// Height of the axis at the bottom.
const BOTTOM: u32 = 70;
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
            .margin_left(LEFT)
            .margin_bottom(12)
            .x_label_area_size(46)
            .y_label_area_size(NUMBERS)
            .build_cartesian_2d(left..right, (bottom..top).log_scale())?;
        style::axes(&mut chart.configure_mesh())
            .x_desc(self.x_title.as_str())
            .draw()?;
        let places: Vec<_> = self
            .marks
            .iter()
            .map(|it| chart.backend_coord(&(it.x.median, it.y.median)))
            .collect();
        let names: Vec<_> = self.marks.iter().map(|it| it.name.as_str()).collect();
        let left = (LEFT + NUMBERS) as i32;
        let heights = (TOP as i32, (HEIGHT - BOTTOM) as i32);
        let labels = labels::beside(&places, &names, left, heights);
        for (number, (mark, label)) in self.marks.iter().zip(&labels).enumerate() {
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
            let place = places[number];
            if (label.y - place.1).abs() > style::RADIUS {
                let line = [place, (label.x, label.y)];
                area.draw(&PathElement::new(line, colour.mix(0.5)))?;
            }
            let side = if label.is_left {
                HPos::Right
            } else {
                HPos::Left
            };
            let style = style::coloured(colour).pos(Pos::new(side, VPos::Center));
            area.draw(&Text::new(mark.name.clone(), (label.x, label.y), style))?;
        }
        Ok(())
    }
}
