// SPDX-License-Identifier: MIT OR Apache-2.0
//! Colours, sizes, axes, values with their ranges, and the placement of labels.

use plotters::chart::MeshStyle;
use plotters::coord::ranged1d::Ranged;
use plotters::element::Circle;
use plotters::prelude::*;

/// Width and height in pixels.
pub type Size = (u32, u32);

/// Width of every picture.
pub const WIDTH: u32 = 920;
pub const SIZE_TITLE: u32 = 19;
pub const SIZE_TEXT: u32 = 14;
/// Radius of a mark, in pixels.
pub const RADIUS: i32 = 6;
/// Least distance between labels, in pixels.
pub const LABEL_GAP: i32 = 17;

/// Okabe and Ito, "Color Universal Design" (2008): blue, vermillion, green, purple, orange, sky. Then others, darker or paler.
const PALETTE: [RGBColor; 11] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(126, 87, 160),
    RGBColor(120, 94, 70),
    RGBColor(128, 128, 0),
    RGBColor(170, 0, 60),
    RGBColor(60, 60, 60),
];
/// Text.
pub const INK: RGBColor = RGBColor(34, 34, 34);
/// Axes, references and other things in the background.
pub const GREY: RGBColor = RGBColor(110, 110, 110);
/// The lines of the grid.
const FAINT: RGBColor = RGBColor(228, 228, 228);

/// The colour of the series with this number.
pub fn colour(number: usize) -> RGBColor {
    PALETTE[number % PALETTE.len()]
}

/// Plain text.
pub fn text(size: u32) -> TextStyle<'static> {
    ("sans-serif", size).into_font().color(&INK)
}

/// Bold text.
pub fn bold(size: u32) -> TextStyle<'static> {
    FontDesc::new(FontFamily::SansSerif, f64::from(size), FontStyle::Bold).color(&INK)
}

/// Text in the background.
pub fn quiet() -> TextStyle<'static> {
    ("sans-serif", SIZE_TEXT).into_font().color(&GREY)
}

/// Text in a colour.
pub fn coloured(colour: RGBColor) -> TextStyle<'static> {
    ("sans-serif", SIZE_TEXT).into_font().color(&colour)
}

/// Axes with numbers without trailing zeros, eight on each or fewer, and a faint grid.
pub fn axes<'mesh, 'a, 'b, X, Y, DB>(
    mesh: &'mesh mut MeshStyle<'a, 'b, X, Y, DB>,
) -> &'mesh mut MeshStyle<'a, 'b, X, Y, DB>
where
    X: Ranged<ValueType = f64>,
    Y: Ranged<ValueType = f64>,
    DB: DrawingBackend,
{
    mesh.light_line_style(TRANSPARENT)
        .bold_line_style(FAINT)
        .axis_style(GREY)
        .label_style(quiet())
        .axis_desc_style(text(SIZE_TEXT))
        .x_labels(8)
        .y_labels(8)
        .x_label_formatter(&|x| trimmed(*x))
        .y_label_formatter(&|y| trimmed(*y))
}

/// A number without trailing zeros.
fn trimmed(number: f64) -> String {
    let text = format!("{number:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// The range of a value, a line below its mark.
pub fn range(ends: [(f64, f64); 2], colour: RGBColor) -> PathElement<(f64, f64)> {
    PathElement::new(ends, colour.mix(0.5).stroke_width(4))
}

/// The mark of a value.
pub fn mark(at: (f64, f64), colour: RGBColor) -> Circle<(f64, f64), i32> {
    Circle::new(at, RADIUS, colour.filled())
}

/// Heights of labels near `wanted`, at least `gap` apart, none below `bottom` (heights increase downwards). Labels that
/// would overlap are placed around the middle of their wanted heights.
pub fn apart(wanted: &[i32], gap: i32, bottom: i32) -> Vec<i32> {
    let mut order: Vec<_> = (0..wanted.len()).collect();
    order.sort_by_key(|&index| wanted[index]);
    // Groups of neighbours that touch, from above: their number, and the sum of the first one's wanted heights.
    let mut groups: Vec<(i32, i32)> = Vec::new();
    let first = |&(count, sum): &(i32, i32)| sum / count;
    for &index in &order {
        let mut group = (1, wanted[index]);
        while let Some(above) = groups.last().copied() {
            if first(&above) + above.0 * gap <= first(&group) {
                break;
            }
            groups.pop();
            group = (
                above.0 + group.0,
                above.1 + group.1 - group.0 * above.0 * gap,
            );
        }
        groups.push(group);
    }
    let places = groups.iter().flat_map(|group| {
        let first = first(group);
        (0..group.0).map(move |number| first + number * gap)
    });
    let mut heights = wanted.to_vec();
    for (&index, place) in order.iter().zip(places) {
        heights[index] = place;
    }
    let mut below = bottom + gap;
    for &index in order.iter().rev() {
        heights[index] = heights[index].min(below - gap);
        below = heights[index];
    }
    heights
}

/// The end of an axis that shows `largest`: a round number a little larger.
pub fn round_up(largest: f64) -> f64 {
    if !largest.is_finite() || largest <= 0.0 {
        return 1.0;
    }
    let unit = 10f64.powf(largest.log10().floor());
    let steps = [1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0];
    let step = steps.into_iter().find(|step| step * unit >= largest * 1.02);
    step.unwrap_or(12.0) * unit
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_keep_their_distance_and_their_order() {
        assert_eq!(apart(&[100, 50], 10, 500), [100, 50]);
        // Around 51.
        assert_eq!(apart(&[52, 50, 51], 10, 500), [61, 41, 51]);
        // Two groups merge: 0 and 10, 14 and 24 would overlap.
        assert_eq!(apart(&[5, 5, 19, 19], 10, 500), [-3, 7, 17, 27]);
        assert_eq!(apart(&[500, 499], 10, 500), [500, 490]);
        assert!(apart(&[], 10, 500).is_empty());
    }

    #[test]
    fn axes_end_at_round_numbers() {
        assert_eq!(round_up(1.3), 1.5);
        assert_eq!(round_up(9.9), 12.0);
        assert_eq!(round_up(4700.0), 5000.0);
        assert_eq!(round_up(0.0), 1.0);
    }
}
