// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lines with bands: the median, and the range from the smallest to the largest value.

use super::style::{self, GREY, LABEL_GAP, SIZE_TEXT, Size, WIDTH};
use super::{Area, Drawn};
use crate::stats::Spread;
use plotters::prelude::*;

const HEIGHT: u32 = 520;
/// Space for the labels at the right.
const RIGHT: u32 = 190;
/// Space between the lines, their labels and the edge.
const BESIDE: u32 = 15 + 8;
const TOP: u32 = 70;
/// Height of the picture above the highest reference: lines that go higher are cut off.
const ABOVE_REFERENCES: f64 = 1.25;
/// Dashes of references and curves, in pixels.
const DASH: i32 = 6;

/// The picture.
pub struct Lines {
    /// In bold, above it all.
    pub title: String,
    /// Title of the vertical axis.
    pub y_title: String,
    /// Title of the horizontal axis.
    pub x_title: String,
    /// Measured lines.
    pub lines: Vec<Line>,
    /// Computed lines, dashed.
    pub curves: Vec<Curve>,
    /// Horizontal lines for comparison.
    pub references: Vec<Reference>,
}

/// One line.
pub struct Line {
    /// Label at its end.
    pub name: String,
    /// By x.
    pub points: Vec<(f64, Spread)>,
}

/// A computed line.
pub struct Curve {
    /// Label at its end.
    pub name: String,
    /// By x.
    pub points: Vec<(f64, f64)>,
}

/// A horizontal line.
pub struct Reference {
    /// Label at its end.
    pub name: String,
    /// Its height.
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

    /// Zero, or a round number below the smallest value.
    fn y_start(&self) -> f64 {
        let lines = self
            .lines
            .iter()
            .flat_map(|it| it.points.iter().map(|(_, y)| y.low));
        let lowest = lines.chain(self.computed()).fold(0.0, f64::min);
        if lowest < 0.0 {
            -style::round_up(-lowest)
        } else {
            0.0
        }
    }

    /// Heights of curves and references.
    fn computed(&self) -> impl Iterator<Item = f64> {
        let curves = self
            .curves
            .iter()
            .flat_map(|it| it.points.iter().map(|(_, y)| *y));
        curves.chain(self.references.iter().map(|it| it.y))
    }

    fn y_end(&self) -> f64 {
        let lines = self
            .lines
            .iter()
            .flat_map(|it| it.points.iter().map(|(_, y)| y.high));
        let references = || self.references.iter().map(|it| it.y);
        let all = lines.chain(self.computed()).fold(0.0, f64::max);
        match references().reduce(f64::max) {
            Some(highest) => style::round_up(all.min(highest * ABOVE_REFERENCES)),
            None => style::round_up(all),
        }
    }

    /// The label of a line, with the value of the last point if the line is cut off.
    fn label(line: &Line, last: f64, y_end: f64) -> String {
        match last > y_end {
            true => format!("{} (to {last:.1})", line.name),
            false => line.name.clone(),
        }
    }

    /// Width of the longest label.
    fn right(&self, area: &Area<'_>, y_end: f64) -> Result<u32, Box<dyn std::error::Error>> {
        let of_lines = self.lines.iter().filter_map(|line| {
            let (_, last) = line.points.last()?;
            Some(Self::label(line, last.median, y_end))
        });
        let curves = self.curves.iter().map(|it| it.name.clone());
        let references = self.references.iter().map(|it| it.name.clone());
        let mut widest = RIGHT;
        for text in of_lines.chain(curves).chain(references) {
            let (width, _) = area.estimate_text_size(&text, &style::text(SIZE_TEXT))?;
            // The reader's font may be wider.
            widest = widest.max(width + width / 10 + BESIDE);
        }
        Ok(widest)
    }

    pub(super) fn draw(&self, area: &Area<'_>) -> Drawn {
        let ((x_start, x_end), y_start, y_end) = (self.x_range(), self.y_start(), self.y_end());
        // Few whole numbers get one tick each.
        let ticks = (x_end - x_start).min(9.0) as usize + 1;
        let mut chart = ChartBuilder::on(area)
            .margin_top(TOP)
            .margin_right(self.right(area, y_end)?)
            .margin_left(12)
            .margin_bottom(12)
            .x_label_area_size(46)
            .y_label_area_size(48)
            .build_cartesian_2d(x_start..x_end, y_start..y_end)?;
        style::axes(&mut chart.configure_mesh())
            .x_desc(self.x_title.as_str())
            .disable_x_mesh()
            .x_labels(ticks)
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
            let of = |value: fn(&Spread) -> f64| {
                let points = line.points.iter().map(|(x, y)| (*x, value(y)));
                points.collect::<Vec<_>>()
            };
            let medians = of(|it| it.median);
            let shown = up_to(&medians, y_end);
            let mut band = up_to(&of(|it| it.high), y_end);
            band.extend(up_to(&of(|it| it.low), y_end).into_iter().rev());
            chart.draw_series([Polygon::new(band, colour.mix(0.18))])?;
            chart.draw_series(LineSeries::new(shown.clone(), colour.stroke_width(3)))?;
            let dots = medians.iter().zip(&shown).filter(|(at, shown)| at == shown);
            chart.draw_series(dots.map(|(&at, _)| Circle::new(at, 4, colour.filled())))?;
            if let (Some(&(_, last)), Some(&(_, y))) = (medians.last(), shown.last()) {
                labels.push(Label {
                    text: Self::label(line, last, y_end),
                    at: height(&chart, y),
                    colour,
                });
            }
        }
        let left = chart.backend_coord(&(x_end, y_start));
        let wanted: Vec<_> = labels.iter().map(|it| it.at).collect();
        for (label, at) in labels.iter().zip(style::apart(&wanted, LABEL_GAP, left.1)) {
            let leader = [(left.0 + 5, label.at), (left.0 + 12, at)];
            area.draw(&PathElement::new(leader, label.colour.stroke_width(1)))?;
            let place = (left.0 + 15, at - SIZE_TEXT as i32 / 2);
            area.draw(&Text::new(
                label.text.clone(),
                place,
                style::coloured(label.colour),
            ))?;
        }
        Ok(())
    }
}

/// The part of the line below `limit`, and the point where it leaves.
fn up_to(points: &[(f64, f64)], limit: f64) -> Vec<(f64, f64)> {
    let mut shown: Vec<(f64, f64)> = Vec::new();
    for &(x, y) in points {
        if y <= limit {
            shown.push((x, y));
            continue;
        }
        let (from, below) = shown.last().copied().unwrap_or((x, limit));
        let share = (limit - below) / (y - below);
        shown.push((from + (x - from) * share, limit));
        break;
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: [f64; 2]) -> Lines {
        Lines {
            title: String::new(),
            y_title: String::new(),
            x_title: String::new(),
            lines: vec![Line {
                name: "a".into(),
                points: Spread::of(values).map(|it| (1.0, it)).into_iter().collect(),
            }],
            curves: Vec::new(),
            references: Vec::new(),
        }
    }

    #[test]
    fn heights_begin_at_zero_unless_something_is_below() {
        assert_eq!(
            (of([1.0, 2.9]).y_start(), of([1.0, 2.9]).y_end()),
            (0.0, 3.0)
        );
        assert_eq!(of([-31.0, 9.0]).y_start(), -40.0);
        assert_eq!(of([-31.0, 9.0]).y_end(), 10.0);
    }

    #[test]
    fn a_line_ends_where_it_leaves_the_picture() {
        let line = [(0.0, 1.0), (10.0, 2.0), (20.0, 4.0), (30.0, 1.0)];
        assert_eq!(up_to(&line, 4.0), line);
        assert_eq!(up_to(&line, 3.0), [(0.0, 1.0), (10.0, 2.0), (15.0, 3.0)]);
        assert_eq!(up_to(&line, 0.5), [(0.0, 0.5)]);
    }
}
