// SPDX-License-Identifier: MIT OR Apache-2.0
//! Places for the names of marks that may be anywhere: beside their marks, and clear of other marks and names.

use super::style::{LABEL_GAP, RADIUS};

/// Width in pixels of ten characters, at most: the mean of names that have many capitals.
const TEN_CHARACTERS: i32 = 68;
/// Space between a mark and its name.
const SPACE: i32 = 6;
/// Heights that are tried, in pixels from that of the mark: their distance, and the largest one.
const STEP: usize = 6;
const FARTHEST: i32 = 90;

/// A rectangle in pixels: left and right, top and bottom.
#[derive(Clone, Copy, Debug)]
struct Rectangle {
    x: (i32, i32),
    y: (i32, i32),
}

impl Rectangle {
    fn overlaps(&self, other: &Self) -> bool {
        let meet = |a: (i32, i32), b: (i32, i32)| a.0 < b.1 && b.0 < a.1;
        meet(self.x, other.x) && meet(self.y, other.y)
    }
}

/// Where a name is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Whether it ends at `x` instead of beginning there.
    pub is_left: bool,
    /// Its end beside the mark.
    pub x: i32,
    /// Its middle.
    pub y: i32,
}

impl Place {
    fn new(mark: (i32, i32), is_left: bool, below: i32) -> Self {
        let away = RADIUS + SPACE;
        Self {
            is_left,
            x: if is_left {
                mark.0 - away
            } else {
                mark.0 + away
            },
            y: mark.1 + below,
        }
    }

    fn rectangle(self, name: &str) -> Rectangle {
        let width = TEN_CHARACTERS * name.chars().count() as i32 / 10;
        let x = match self.is_left {
            true => (self.x - width, self.x),
            false => (self.x, self.x + width),
        };
        let half = LABEL_GAP / 2;
        Rectangle {
            x,
            y: (self.y - half, self.y + half),
        }
    }
}

/// A place for each name, between these heights and not left of `left`: as near to its mark as others allow, at the right if both
/// sides are free.
pub fn beside(marks: &[(i32, i32)], names: &[&str], left: i32, heights: (i32, i32)) -> Vec<Place> {
    let mut taken: Vec<_> = marks.iter().map(|&mark| around(mark)).collect();
    let places = marks.iter().zip(names).map(|(&mark, name)| {
        let distances = (0..=FARTHEST).step_by(STEP).flat_map(|it| [it, -it]);
        let mut places = distances
            .flat_map(|below| [false, true].map(|is_left| Place::new(mark, is_left, below)));
        let is_free = |place: &Place| {
            let own = place.rectangle(name);
            own.x.0 >= left
                && (heights.0..=heights.1).contains(&place.y)
                && !taken.iter().any(|it| it.overlaps(&own))
        };
        let place = places.find(is_free).unwrap_or(Place::new(mark, false, 0));
        taken.push(place.rectangle(name));
        place
    });
    places.collect()
}

/// What a mark covers.
fn around((x, y): (i32, i32)) -> Rectangle {
    Rectangle {
        x: (x - RADIUS, x + RADIUS),
        y: (y - RADIUS, y + RADIUS),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEIGHTS: (i32, i32) = (0, 500);

    #[test]
    fn a_mark_alone_has_its_name_at_the_right() {
        let places = beside(&[(100, 100)], &["a"], 50, HEIGHTS);
        assert_eq!(places, [Place::new((100, 100), false, 0)]);
    }

    #[test]
    fn names_cover_neither_marks_nor_names() {
        // Systems that are alike.
        let marks: Vec<_> = (0..11).map(|n| (200 + n * 37 % 90, 200 + n * 7)).collect();
        let names = ["a system with a name"; 11];
        let places = beside(&marks, &names, 50, HEIGHTS);
        let all: Vec<_> = places
            .iter()
            .map(|it| it.rectangle(names[0]))
            .chain(marks.iter().map(|&it| around(it)))
            .collect();
        for (number, one) in all.iter().enumerate().take(places.len()) {
            for other in &all[number + 1..] {
                assert!(!one.overlaps(other), "{one:?} {other:?}");
            }
        }
    }

    #[test]
    fn a_name_stays_within_the_picture() {
        // To the left there is no room, at the right another mark, and below the axis.
        let places = beside(&[(100, 500), (120, 500)], &["abc", "d"], 90, HEIGHTS);
        assert_eq!(places[0], Place::new((100, 500), false, -18));
    }
}
