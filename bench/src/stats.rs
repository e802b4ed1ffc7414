//! Median and range: all that a handful of exact runs can carry.

use serde::Serialize;

/// Several values of one thing.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// The smallest.
    pub low: f64,
    /// The middle one; of an even number, the mean of the two in the middle.
    pub median: f64,
    /// The largest.
    pub high: f64,
    /// How many values there are.
    pub count: usize,
}

impl Spread {
    /// Of the values that are finite; `None` if there are none.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.into_iter().filter(|it| it.is_finite()).collect();
        values.sort_by(f64::total_cmp);
        let count = values.len();
        let (&low, &high) = (values.first()?, values.last()?);
        let upper = values[count / 2];
        let median = match count % 2 {
            0 => f64::midpoint(values[count / 2 - 1], upper),
            _ => upper,
        };
        Some(Self {
            low,
            median,
            high,
            count,
        })
    }

    /// Each value divided by `unit`, which must be positive.
    #[must_use]
    pub fn over(self, unit: f64) -> Self {
        Self {
            low: self.low / unit,
            median: self.median / unit,
            high: self.high / unit,
            count: self.count,
        }
    }

    /// From the smallest to the largest, as a share of the median, which must be positive.
    pub fn width(&self) -> f64 {
        (self.high - self.low) / self.median
    }

    /// `median (low to high)`, with so many decimals; the median alone if all are the same.
    pub fn show(&self, decimals: usize) -> String {
        let number = |value: f64| format!("{value:.decimals$}");
        let (low, median, high) = (number(self.low), number(self.median), number(self.high));
        match low == high {
            true => median,
            false => format!("{median} ({low} to {high})"),
        }
    }
}

/// A whole number with commas between thousands.
pub fn grouped(number: f64) -> String {
    let digits = format!("{:.0}", number.abs());
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    match number <= -0.5 {
        true => format!("-{text}"),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle_whatever_the_order() {
        let spread = Spread::of([3.0, 1.0, 10.0]).unwrap();
        assert_eq!((spread.low, spread.median, spread.high), (1.0, 3.0, 10.0));
        assert_eq!(Spread::of([4.0, 1.0, 2.0, 9.0]).unwrap().median, 3.0);
        assert_eq!(Spread::of([5.0]).unwrap().median, 5.0);
    }

    #[test]
    fn nothing_has_no_spread() {
        assert_eq!(Spread::of([]), None);
        assert_eq!(Spread::of([f64::NAN]), None);
    }

    #[test]
    fn a_range_is_shown_only_where_there_is_one() {
        let spread = Spread::of([2.0, 3.0, 4.0]).unwrap();
        assert_eq!(spread.over(2.0).show(2), "1.50 (1.00 to 2.00)");
        assert_eq!(Spread::of([3.0, 4.0, 5.0]).unwrap().width(), 0.5);
        assert_eq!(Spread::of([1.0, 1.001]).unwrap().show(2), "1.00");
    }

    #[test]
    fn thousands_are_told_apart() {
        assert_eq!(grouped(0.0), "0");
        assert_eq!(grouped(999.4), "999");
        assert_eq!(grouped(1000.0), "1,000");
        assert_eq!(grouped(-1_234_567.0), "-1,234,567");
        assert_eq!(grouped(-0.2), "0");
    }
}
