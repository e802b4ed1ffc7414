// SPDX-License-Identifier: MIT OR Apache-2.0
//! A value with its range in each row: mostly ratios, with a line at 1.

use super::style::{self, GREY, SIZE_TEXT, Size, WIDTH};
use super::{Area, Drawn};
use crate::stats::Spread;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

const TOP: u32 = 78;
const BOTTOM: u32 = 56;
/// Height of a row.
const LINE: u32 = 26;
/// Space between groups.
const GAP: u32 = 12;
/// Space for names at the left and values at the right.
const LEFT: u32 = 250;
const RIGHT: u32 = 150;

/// The picture.
#[derive(Default)]
pub struct Dots {
    /// In bold, above it all.
    pub title: String,
    /// Below the title.
    pub subtitle: String,
    /// Title of the horizontal axis.
    pub x_title: String,
    /// Name of the line at 1, if there is one; then the axis may begin above 0.
    pub one: Option<String>,
    /// From top to bottom.
    pub rows: Vec<Row>,
}

/// A group of values.
pub struct Row {
    /// Its name.
    pub name: String,
    /// Its values, from top to bottom; the same row has the same colour in each group.
    pub dots: Vec<Dot>,
}

/// One value.
pub struct Dot {
    /// Its name.
    pub name: String,
    /// Absent if the run is missing.
    pub value: Option<Spread>,
    /// Number of decimals.
    pub decimals: usize,
}

impl Dots {
    fn rows_height(&self) -> u32 {
        self.rows
            .iter()
            .map(|row| row.dots.len() as u32 * LINE + GAP)
            .sum()
    }

    pub(super) fn size(&self) -> Size {
        (WIDTH, TOP + self.rows_height().max(LINE) + BOTTOM)
    }

    /// The axis: around 1 if all values are near it, otherwise from 0.
    fn axis(&self) -> (f64, f64) {
        let values = || {
            self.rows
                .iter()
                .flat_map(|row| &row.dots)
                .filter_map(|it| it.value)
        };
        let low = values().map(|it| it.low).fold(f64::INFINITY, f64::min);
        let high = values().map(|it| it.high).fold(0.0, f64::max);
        if self.one.is_some() && low > 0.5 && high < 2.0 {
            let reach = (high - 1.0).max(1.0 - low).max(0.02) * 1.15;
            return ((1.0 - reach).max(0.0), 1.0 + reach);
        }
        (
            0.0,
            style::round_up(high.max(if self.one.is_some() { 1.0 } else { 0.0 })),
        )
    }

    pub(super) fn draw(&self, area: &Area<'_>) -> Drawn {
        let (from, to) = self.axis();
        let height = f64::from(self.rows_height().max(LINE));
        let mut chart = ChartBuilder::on(area)
            .margin_top(TOP)
            .margin_right(RIGHT)
            .margin_left(LEFT)
            .margin_bottom(8)
            .x_label_area_size(BOTTOM - 8)
            .build_cartesian_2d(from..to, height..0.0)?;
        style::axes(&mut chart.configure_mesh())
            .x_desc(self.x_title.as_str())
            .disable_y_mesh()
            .disable_y_axis()
            .draw()?;
        if let Some(name) = &self.one {
            chart.draw_series(LineSeries::new(
                [(1.0, 0.0), (1.0, height)],
                GREY.stroke_width(1),
            ))?;
            let (x, y) = chart.backend_coord(&(1.0, 0.0));
            let style = style::quiet().pos(Pos::new(HPos::Center, VPos::Bottom));
            area.draw(&Text::new(name.clone(), (x, y - 3), style))?;
        }
        let mut y = f64::from(GAP) / 2.0;
        for row in &self.rows {
            let middle = y + row.dots.len() as f64 * f64::from(LINE) / 2.0;
            let place = chart.backend_coord(&(from, middle));
            let style = style::bold(SIZE_TEXT).pos(Pos::new(HPos::Left, VPos::Center));
            area.draw(&Text::new(row.name.clone(), (20, place.1), style))?;
            for (number, dot) in row.dots.iter().enumerate() {
                let line = y + f64::from(LINE) / 2.0;
                let colour = style::colour(number);
                let (left, at) = chart.backend_coord(&(from, line));
                let style = style::coloured(colour).pos(Pos::new(HPos::Right, VPos::Center));
                area.draw(&Text::new(dot.name.clone(), (left - 10, at), style))?;
                let said = match dot.value {
                    Some(value) => {
                        let range = [(value.low, line), (value.high, line)];
                        chart.draw_series([style::range(range, colour)])?;
                        chart.draw_series([style::mark((value.median, line), colour)])?;
                        format!("{:.*}", dot.decimals, value.median)
                    }
                    None => "no result".into(),
                };
                let place = (WIDTH as i32 - RIGHT as i32 + 12, at);
                let style = style::text(SIZE_TEXT).pos(Pos::new(HPos::Left, VPos::Center));
                area.draw(&Text::new(said, place, style))?;
                y += f64::from(LINE);
            }
            y += f64::from(GAP);
        }
        Ok(())
    }
}
