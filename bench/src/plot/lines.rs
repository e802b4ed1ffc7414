//! Lines with bands: the median, and from the smallest to the largest value.

use super::style::{self, FAINT, GREY, LABEL_GAP, SIZE_TEXT, Size, WIDTH};
use super::{Area, Drawn};
use crate::stats::Spread;
use plotters::prelude::*;

const HEIGHT: u32 = 520;
/// Room for the labels at the right.
const RIGHT: u32 = 190;
const TOP: u32 = 70;
/// Dashes of references and curves, in pixels.
const DASH: i32 = 6;

/// The picture.
pub struct Lines {
    /// In bold, above it all.
    pub title: String,
    /// What the heights are, below the title.
    pub y_title: String,
    /// What the horizontal axis is.
    pub x_title: String,
    /// What was measured.
    pub lines: Vec<Line>,
    /// What was computed, dashed.
    pub curves: Vec<Curve>,
    /// Heights to compare with.
    pub references: Vec<Reference>,
}

/// One line.
pub struct Line {
    /// Stands at its end.
    pub name: String,
    /// By x.
    pub points: Vec<(f64, Spread)>,
}

/// A computed line.
pub struct Curve {
    /// Stands at its end.
    pub name: String,
    /// By x.
    pub points: Vec<(f64, f64)>,
}

/// A horizontal line.
pub struct Reference {
    /// Stands at its end.
    pub name: String,
    /// Where it is.
    pub y: f64,
}

/// A label at the right.
struct Label {
    text: String,
    at: i32,
    colour: RGBColor,
}

impl Lines {
    pub(super) fn size(&self) -> Size {
        (WIDTH, HEIGHT)
    }

    /// From the first point to the last.
    fn x_range(&self) -> (f64, f64) {
        let lines = self
            .lines
            .iter()
            .flat_map(|it| it.points.iter().map(|(x, _)| *x));
        let curves = self
            .curves
            .iter()
            .flat_map(|it| it.points.iter().map(|(x, _)| *x));
        let points: Vec<_> = lines.chain(curves).collect();
        let from = points.iter().copied().reduce(f64::min).unwrap_or(0.0);
        let to = points.iter().copied().reduce(f64::max).unwrap_or(1.0);
        (from, to.max(from + 1.0))
    }

    fn y_end(&self) -> f64 {
        let lines = self
            .lines
            .iter()
            .flat_map(|it| it.points.iter().map(|(_, y)| y.high));
        let curves = self
            .curves
            .iter()
            .flat_map(|it| it.points.iter().map(|(_, y)| *y));
        let references = self.references.iter().map(|it| it.y);
        style::round_up(lines.chain(curves).chain(references).fold(0.0, f64::max))
    }

    pub(super) fn draw(&self, area: &Area<'_>) -> Drawn {
        let ((x_start, x_end), y_end) = (self.x_range(), self.y_end());
        // Few whole numbers get one tick each.
        let ticks = (x_end - x_start).min(9.0) as usize + 1;
        let mut chart = ChartBuilder::on(area)
            .margin_top(TOP)
            .margin_right(RIGHT)
            .margin_left(12)
            .margin_bottom(12)
            .x_label_area_size(46)
            .y_label_area_size(48)
            .build_cartesian_2d(x_start..x_end, 0.0..y_end)?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(FAINT)
            .axis_style(GREY)
            .label_style(style::quiet())
            .axis_desc_style(style::text(SIZE_TEXT))
            .x_desc(self.x_title.as_str())
            .x_labels(ticks)
            .y_labels(8)
            .y_label_formatter(&|y| trimmed(*y))
            .x_label_formatter(&|x| trimmed(*x))
            .draw()?;
        let mut labels = Vec::new();
        let height = |chart: &ChartContext<'_, _, _>, y: f64| chart.backend_coord(&(x_end, y)).1;
        for reference in &self.references {
            let points = [(x_start, reference.y), (x_end, reference.y)];
            chart.draw_series(DashedLineSeries::new(points, 2, 4, GREY.stroke_width(1)))?;
            labels.push(Label {
                text: reference.name.clone(),
                at: height(&chart, reference.y),
                colour: GREY,
            });
        }
        for curve in &self.curves {
            let points = curve.points.iter().copied();
            let style = style::INK.stroke_width(2);
            chart.draw_series(DashedLineSeries::new(points, DASH, DASH - 2, style))?;
            if let Some((_, y)) = curve.points.last() {
                labels.push(Label {
                    text: curve.name.clone(),
                    at: height(&chart, *y),
                    colour: style::INK,
                });
            }
        }
        for (number, line) in self.lines.iter().enumerate() {
            let colour = style::colour(number);
            let upper = line.points.iter().map(|(x, y)| (*x, y.high));
            let lower = line.points.iter().rev().map(|(x, y)| (*x, y.low));
            let band: Vec<_> = upper.chain(lower).collect();
            chart.draw_series([Polygon::new(band, colour.mix(0.18))])?;
            let medians: Vec<_> = line.points.iter().map(|(x, y)| (*x, y.median)).collect();
            chart.draw_series(LineSeries::new(medians.clone(), colour.stroke_width(3)))?;
            chart.draw_series(
                medians
                    .iter()
                    .map(|&at| Circle::new(at, 4, colour.filled())),
            )?;
            if let Some((_, y)) = medians.last() {
                labels.push(Label {
                    text: line.name.clone(),
                    at: height(&chart, *y),
                    colour,
                });
            }
        }
        let left = chart.backend_coord(&(x_end, 0.0));
        let wanted: Vec<_> = labels.iter().map(|it| it.at).collect();
        for (label, at) in labels.iter().zip(style::apart(&wanted, LABEL_GAP, left.1)) {
            let place = (left.0 + 10, at - SIZE_TEXT as i32 / 2);
            area.draw(&Text::new(
                label.text.clone(),
                place,
                style::coloured(label.colour),
            ))?;
        }
        Ok(())
    }
}

/// A number without zeros at its end.
pub(super) fn trimmed(number: f64) -> String {
    let text = format!("{number:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}
