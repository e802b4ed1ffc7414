// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bars on logarithmic axes, in panels below each other: quantities of different units side by side.

use super::style::{self, SIZE_TEXT, Size, WIDTH};
use super::{Area, Drawn};
use crate::stats::{Spread, grouped};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

const TOP: u32 = 70;
/// Height of a bar with the space around it, and of the bar itself.
const LINE: u32 = 28;
const BAR: f64 = 16.0;
/// Space above the bars of a panel for its title, and below them for its axis.
const ABOVE: u32 = 30;
const BELOW: u32 = 58;
/// Space for names at the left and values at the right.
const LEFT: u32 = 330;
const RIGHT: u32 = 110;

/// The picture.
pub struct Bars {
    /// In bold, above it all.
    pub title: String,
    /// Below the title.
    pub subtitle: String,
    /// From top to bottom.
    pub panels: Vec<BarPanel>,
}

/// Values of one quantity.
pub struct BarPanel {
    /// In bold, above its bars.
    pub title: String,
    /// The unit, below the axis.
    pub x_title: String,
    /// From top to bottom.
    pub bars: Vec<Bar>,
}

/// One value, with its range.
pub struct Bar {
    /// Its name.
    pub name: String,
    /// Absent if the run is missing. It must be positive.
    pub value: Option<Spread>,
    /// Number of decimals.
    pub decimals: usize,
    /// Number of its colour: bars of one colour belong together.
    pub colour: usize,
}

impl BarPanel {
    fn bars_height(&self) -> u32 {
        (self.bars.len() as u32 * LINE).max(LINE)
    }

    fn height(&self) -> u32 {
        ABOVE + self.bars_height() + BELOW
    }

    /// The axis, from one power of ten to another.
    fn axis(&self) -> (f64, f64) {
        let values = || self.bars.iter().filter_map(|it| it.value);
        let low = values().map(|it| it.low).fold(f64::INFINITY, f64::min);
        let high = values().map(|it| it.high).fold(0.0, f64::max);
        if low <= 0.0 || high <= 0.0 {
            return (1.0, 10.0);
        }
        // The shortest bar is to have a length.
        let from = 10_f64.powf((low / 2.0).log10().floor());
        (from, 10_f64.powf(high.log10().ceil()).max(10.0 * from))
    }

    fn draw(&self, area: &Area<'_>) -> Drawn {
        let (from, to) = self.axis();
        let height = f64::from(self.bars_height());
        let mut chart = ChartBuilder::on(area)
            .margin_top(ABOVE)
            .margin_right(RIGHT)
            .margin_left(LEFT)
            .margin_bottom(8)
            .x_label_area_size(BELOW - 8)
            .build_cartesian_2d((from..to).log_scale(), height..0.0)?;
        let label = |x: &f64| match *x < 1.0 {
            true => format!("{x}"),
            false => grouped(*x),
        };
        style::axes(&mut chart.configure_mesh())
            .x_desc(self.x_title.as_str())
            .x_label_formatter(&label)
            .disable_y_mesh()
            .disable_y_axis()
            .draw()?;
        area.draw(&Text::new(
            self.title.clone(),
            (20, 6),
            style::bold(SIZE_TEXT),
        ))?;
        // Coordinates of the chart are those of the whole picture.
        let (_, up) = area.get_base_pixel();
        for (number, bar) in self.bars.iter().enumerate() {
            let colour = style::colour(bar.colour);
            let middle = (number as f64 + 0.5) * f64::from(LINE);
            let at = chart.backend_coord(&(from, middle)).1 - up;
            let side = |horizontal| Pos::new(horizontal, VPos::Center);
            let name = style::text(SIZE_TEXT).pos(side(HPos::Right));
            area.draw(&Text::new(bar.name.clone(), (LEFT as i32 - 10, at), name))?;
            let said = match bar.value {
                Some(value) if value.low > 0.0 => {
                    let corners = [
                        (from, middle - BAR / 2.0),
                        (value.median, middle + BAR / 2.0),
                    ];
                    chart.draw_series([Rectangle::new(corners, colour.filled())])?;
                    let ends = [(value.low, middle), (value.high, middle)];
                    chart.draw_series([style::range(ends, style::INK)])?;
                    match value.median >= 1000.0 {
                        true => grouped(value.median),
                        false => format!("{:.*}", bar.decimals, value.median),
                    }
                }
                _ => "no result".into(),
            };
            let place = (WIDTH as i32 - RIGHT as i32 + 12, at);
            let value = style::text(SIZE_TEXT).pos(side(HPos::Left));
            area.draw(&Text::new(said, place, value))?;
        }
        Ok(())
    }
}

impl Bars {
    pub(super) fn size(&self) -> Size {
        let panels: u32 = self.panels.iter().map(BarPanel::height).sum();
        (WIDTH, TOP + panels.max(LINE))
    }

    pub(super) fn draw(&self, area: &Area<'_>) -> Drawn {
        let mut top = TOP;
        for panel in &self.panels {
            let (_, below) = area.split_vertically(top);
            let (area, _) = below.split_vertically(panel.height());
            panel.draw(&area)?;
            top += panel.height();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn panel(values: &[f64]) -> BarPanel {
        let bar = |&value: &f64| Bar {
            name: "a link".into(),
            value: Spread::of([value]),
            decimals: 0,
            colour: 0,
        };
        BarPanel {
            title: "a quantity".into(),
            x_title: "its unit".into(),
            bars: values.iter().map(bar).collect(),
        }
    }

    #[test]
    fn every_bar_has_a_length_within_the_axis() {
        for values in [&[8.0, 250.0][..], &[1.0], &[1000.0, 1500.0], &[0.02, 0.5]] {
            let (from, to) = panel(values).axis();
            for value in values {
                assert!(from < *value && *value <= to, "{value} in {from} to {to}");
            }
        }
    }

    #[test]
    fn without_values_there_is_an_axis() {
        assert_eq!(panel(&[]).axis(), (1.0, 10.0));
        assert_eq!(panel(&[f64::NAN]).axis(), (1.0, 10.0));
    }
}
