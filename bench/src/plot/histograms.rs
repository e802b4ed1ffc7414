// SPDX-License-Identifier: MIT OR Apache-2.0
//! Histograms below each other with a common horizontal axis. Counts are on a logarithmic axis, so that what happened
//! once in 100,000 times is visible.

use super::style::{self, GREY, SIZE_TEXT, Size, WIDTH};
use super::{Area, Drawn};
use crate::stats::grouped;
use plotters::prelude::*;

const TOP: u32 = 70;
const PANEL_HEIGHT: u32 = 132;
/// Space below the lowest panel for the axis.
const BOTTOM: u32 = 52;
/// Start of the logarithmic axis: a count of one must have a height.
const LEAST: f64 = 0.5;

/// The picture.
pub struct Histograms {
    /// In bold, above it all.
    pub title: String,
    /// What is counted, below the title.
    pub y_title: String,
    /// Title of the horizontal axis.
    pub x_title: String,
    /// Whether the horizontal axis is logarithmic, too. All values must then be positive.
    pub logarithmic: bool,
    /// The histograms, from top to bottom.
    pub panels: Vec<Panel>,
}

/// The horizontal axis, in values or in their logarithms.
#[derive(Clone, Copy)]
struct Axis {
    logarithmic: bool,
    from: f64,
    to: f64,
}

impl Axis {
    fn place(self, value: f64) -> f64 {
        match self.logarithmic {
            true => value.max(1.0).log10(),
            false => value,
        }
    }

    fn label(self, place: f64) -> String {
        match self.logarithmic {
            // There are no round numbers between powers of ten.
            true if place.fract() != 0.0 => String::new(),
            true => short(10_f64.powf(place)),
            false => grouped(place),
        }
    }

    fn labels(self) -> usize {
        match self.logarithmic {
            true => (self.to - self.from) as usize + 1,
            false => 10,
        }
    }
}

/// One histogram.
pub struct Panel {
    /// Its name.
    pub name: String,
    /// From, to, count.
    pub bars: Vec<(f64, f64, u64)>,
    /// Numbers next to the name.
    pub facts: String,
    /// Values with names, marked on the axis.
    pub marks: Vec<(String, f64)>,
}

impl Histograms {
    pub(super) fn size(&self) -> Size {
        (
            WIDTH,
            TOP + PANEL_HEIGHT * self.panels.len() as u32 + BOTTOM,
        )
    }

    pub(super) fn draw(&self, area: &Area<'_>) -> Drawn {
        let bars = || self.panels.iter().flat_map(|it| &it.bars);
        let marks = self.panels.iter().flat_map(|it| &it.marks).map(|(_, x)| *x);
        let x_end = style::round_up(
            bars()
                .map(|bar| bar.1)
                .chain(marks.clone())
                .fold(0.0, f64::max),
        );
        let axis = match self.logarithmic {
            true => {
                let values = bars().map(|bar| bar.0).chain(marks.clone());
                let places = || values.clone().map(|it| it.max(1.0).log10());
                let from = places().fold(f64::INFINITY, f64::min).floor();
                let from = if from.is_finite() { from } else { 0.0 };
                Axis {
                    logarithmic: true,
                    from,
                    to: places().fold(0.0, f64::max).ceil().max(from + 1.0),
                }
            }
            false => Axis {
                logarithmic: false,
                from: 0.0,
                to: x_end,
            },
        };
        let most = bars().map(|bar| bar.2).max().unwrap_or(1).max(10);
        let y_end = most as f64 * 3.0;
        for (number, panel) in self.panels.iter().enumerate() {
            let last = number + 1 == self.panels.len();
            let top = TOP + PANEL_HEIGHT * number as u32;
            let height = PANEL_HEIGHT + if last { BOTTOM } else { 0 };
            let (_, below) = area.split_vertically(top);
            let (area, _) = below.split_vertically(height);
            panel.draw(
                &area,
                number,
                (axis, y_end),
                last.then_some(self.x_title.as_str()),
            )?;
        }
        Ok(())
    }
}

impl Panel {
    fn draw(
        &self,
        area: &Area<'_>,
        number: usize,
        (axis, y_end): (Axis, f64),
        x_title: Option<&str>,
    ) -> Drawn {
        let mut chart = ChartBuilder::on(area)
            .margin_top(24)
            .margin_right(24)
            .margin_left(12)
            .margin_bottom(if x_title.is_some() { 8 } else { 0 })
            .x_label_area_size(if x_title.is_some() { BOTTOM - 8 } else { 0 })
            .y_label_area_size(60)
            .build_cartesian_2d(axis.from..axis.to, (LEAST..y_end).log_scale())?;
        let label = |x: &f64| axis.label(*x);
        let mut mesh = chart.configure_mesh();
        style::axes(&mut mesh)
            .disable_x_mesh()
            .y_labels(4)
            .x_labels(axis.labels())
            .x_label_formatter(&label)
            .y_label_formatter(&|y| short(*y));
        match x_title {
            Some(title) => mesh.x_desc(title).draw()?,
            None => mesh.disable_x_axis().draw()?,
        }
        let colour = style::colour(number);
        let bars = self.bars.iter().filter(|bar| bar.2 > 0);
        chart.draw_series(bars.map(|&(from, to, count)| {
            // Narrow rows stay visible: at least 1.5 pixels wide.
            let (from, to) = (axis.place(from), axis.place(to));
            let width = (to - from).max((axis.to - axis.from) / 500.0);
            let style = colour.filled();
            Rectangle::new([(from, LEAST), (from + width, count as f64)], style)
        }))?;
        for (name, x) in &self.marks {
            let x = axis.place(*x);
            let top = chart.backend_coord(&(x, y_end));
            let bottom = chart.backend_coord(&(x, LEAST));
            area_line(area, top, bottom)?;
            let place = (top.0 + 4, top.1 + 2);
            // Coordinates are those of the whole picture.
            let (left, up) = area.get_base_pixel();
            let place = (place.0 - left, place.1 - up);
            area.draw(&Text::new(name.clone(), place, style::quiet()))?;
        }
        area.draw(&Text::new(
            self.name.clone(),
            (72, 5),
            style::bold(SIZE_TEXT),
        ))?;
        let right = WIDTH as i32 - 24;
        let align = plotters::style::text_anchor::Pos::new(
            plotters::style::text_anchor::HPos::Right,
            plotters::style::text_anchor::VPos::Top,
        );
        area.draw(&Text::new(
            self.facts.clone(),
            (right, 5),
            style::quiet().pos(align),
        ))?;
        Ok(())
    }
}

/// A thin vertical line between points of the whole picture.
fn area_line(area: &Area<'_>, from: (i32, i32), to: (i32, i32)) -> Drawn {
    let (left, up) = area.get_base_pixel();
    let points = [from, to].map(|(x, y)| (x - left, y - up));
    area.draw(&PathElement::new(points.to_vec(), GREY.stroke_width(1)))?;
    Ok(())
}

/// `100000` as `100k`, a million as `1M`.
fn short(number: f64) -> String {
    match number {
        0.0..1.0 => String::new(),
        // Powers of ten are not computed exactly.
        999_999.0.. => format!("{:.0}M", number / 1e6),
        1000.0.. => format!("{:.0}k", number / 1000.0),
        _ => format!("{number:.0}"),
    }
}
