// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pictures: SVG by `plotters`, and PNG from that SVG by `resvg` with an embedded font, so
//! that the pictures are the same on every machine.
//!
//! White background, readable on light and dark pages. The colours of Okabe and Ito can be told apart with any
//! kind of colour vision; lines are labelled at their ends, without a legend.

mod bars;
mod dots;
mod histograms;
mod labels;
mod lines;
mod png;
mod scatter;
mod style;

pub use bars::{Bar, BarPanel, Bars};
pub use dots::{Dot, Dots, Row};
pub use histograms::{Histograms, Panel};
pub use lines::{Curve, Line, Lines, Reference};
pub use png::png;
pub use scatter::{Mark, Scatter};

use crate::failure::Failure;
use plotters::prelude::*;
use style::{SIZE_TITLE, Size};

/// A picture.
pub enum Figure {
    /// Values over a common axis.
    Lines(Lines),
    /// How often each value occurred, a panel for each case.
    Histograms(Histograms),
    /// One value with its range for each row.
    Dots(Dots),
    /// Two values of each of several systems.
    Scatter(Scatter),
    /// Quantities of different units, a panel for each.
    Bars(Bars),
}

/// Result of the drawing functions: the back end writes to a string and does not fail.
type Drawn = Result<(), Box<dyn std::error::Error>>;
type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;

impl Figure {
    /// The picture as SVG.
    ///
    /// # Errors
    ///
    /// If the drawing library fails, which is a bug of this crate.
    pub fn svg(&self) -> Result<String, Failure> {
        let size = match self {
            Self::Lines(lines) => lines.size(),
            Self::Histograms(histograms) => histograms.size(),
            Self::Dots(dots) => dots.size(),
            Self::Scatter(scatter) => scatter.size(),
            Self::Bars(bars) => bars.size(),
        };
        let mut svg = String::new();
        self.draw(&mut svg, size)
            .map_err(|error| Failure::new(format!("the picture cannot be drawn: {error}")))?;
        Ok(svg)
    }

    fn draw(&self, svg: &mut String, size: Size) -> Drawn {
        let area = SVGBackend::with_string(svg, size).into_drawing_area();
        area.fill(&WHITE)?;
        let (title, subtitle) = match self {
            Self::Lines(it) => (&it.title, &it.y_title),
            Self::Histograms(it) => (&it.title, &it.y_title),
            Self::Dots(it) => (&it.title, &it.subtitle),
            Self::Scatter(it) => (&it.title, &it.y_title),
            Self::Bars(it) => (&it.title, &it.subtitle),
        };
        area.draw(&Text::new(title.clone(), (20, 14), style::bold(SIZE_TITLE)))?;
        area.draw(&Text::new(subtitle.clone(), (20, 42), style::quiet()))?;
        match self {
            Self::Lines(it) => it.draw(&area)?,
            Self::Histograms(it) => it.draw(&area)?,
            Self::Dots(it) => it.draw(&area)?,
            Self::Scatter(it) => it.draw(&area)?,
            Self::Bars(it) => it.draw(&area)?,
        }
        area.present()?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::Spread;

    fn spread(median: f64) -> Spread {
        Spread::of([median * 0.9, median, median * 1.2]).unwrap()
    }

    /// One picture of each kind.
    fn figures() -> Vec<Figure> {
        vec![
            Figure::Lines(Lines {
                title: "Title & more".into(),
                y_title: "time".into(),
                x_title: "load in %".into(),
                lines: vec![Line {
                    name: "none".into(),
                    points: vec![(0.0, spread(1.0)), (50.0, spread(2.0)), (90.0, spread(4.0))],
                }],
                curves: vec![Curve {
                    name: "ideal".into(),
                    points: vec![(0.0, 1.0), (90.0, 1.3)],
                }],
                references: vec![Reference {
                    name: "3 cores".into(),
                    y: 1.3,
                }],
            }),
            Figure::Histograms(Histograms {
                title: "Title".into(),
                y_title: "periods".into(),
                x_title: "instructions".into(),
                logarithmic: false,
                panels: vec![Panel {
                    name: "idle".into(),
                    bars: vec![
                        (100.0, 110.0, 90000),
                        (110.0, 120.0, 3),
                        (4000.0, 4010.0, 1),
                    ],
                    facts: "max 4,005".into(),
                    marks: vec![("max".into(), 4005.0)],
                }],
            }),
            Figure::Dots(Dots {
                title: "Title".into(),
                subtitle: "ratio".into(),
                x_title: "ratio to bare".into(),
                one: Some("bare".into()),
                rows: vec![Row {
                    name: "hackbench".into(),
                    dots: vec![Dot {
                        name: "alone".into(),
                        value: Some(spread(1.01)),
                        decimals: 3,
                    }],
                }],
            }),
            Figure::Scatter(Scatter {
                title: "Title".into(),
                x_title: "lost".into(),
                y_title: "longest wait".into(),
                marks: vec![Mark {
                    name: "a system".into(),
                    x: spread(4.0),
                    y: spread(80.0),
                }],
            }),
            Figure::Bars(Bars {
                title: "Title".into(),
                subtitle: "logarithmic".into(),
                panels: vec![BarPanel {
                    title: "round trip".into(),
                    x_title: "µs".into(),
                    bars: vec![
                        Bar {
                            name: "a link".into(),
                            value: Some(spread(8.0)),
                            decimals: 1,
                            colour: 1,
                        },
                        Bar {
                            name: "another one".into(),
                            value: None,
                            decimals: 1,
                            colour: 1,
                        },
                    ],
                }],
            }),
        ]
    }

    #[test]
    fn svg_is_well_formed_and_has_its_words() {
        for figure in figures() {
            let svg = figure.svg().unwrap();
            // The parser requires well-formed XML and a valid SVG root.
            resvg::usvg::Tree::from_str(&svg, &resvg::usvg::Options::default()).unwrap();
            assert!(svg.contains("Title"));
            assert!(!svg.contains("NaN") && !svg.contains("inf"));
        }
    }

    #[test]
    fn the_png_has_text_without_fonts_of_the_machine() {
        let figure = &figures()[0];
        let svg = figure.svg().unwrap();
        let with = png(&svg).unwrap();
        assert!(with.starts_with(b"\x89PNG"));
        // The same picture without text must differ: this shows that the font was found.
        let without: String =
            svg.split("<text")
                .enumerate()
                .fold(String::new(), |all, (n, part)| match n {
                    0 => part.to_owned(),
                    _ => all + part.split_once("</text>").map_or("", |(_, rest)| rest),
                });
        assert_ne!(with, png(&without).unwrap());
    }

    #[test]
    fn the_same_numbers_give_the_same_bytes() {
        let [a, b] = [0, 1].map(|_| figures()[1].svg().unwrap());
        assert_eq!(a, b);
        assert_eq!(png(&a).unwrap(), png(&b).unwrap());
    }
}
