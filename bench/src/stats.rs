// SPDX-License-Identifier: MIT OR Apache-2.0
//! Median and range, for a few exact runs; mean and standard error, for many values.

use serde::Serialize;

/// Several values of one quantity.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// The smallest.
    pub low: f64,
    /// The median; of an even number of values, the mean of the two in the middle.
    pub median: f64,
    /// The largest.
    pub high: f64,
    /// How many values there are.
    pub count: usize,
}

impl Spread {
    /// The spread of the finite values; `None` if there are none.
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

    /// `median (low to high)` with this number of decimals; the median alone if all values are equal.
    pub fn show(&self, decimals: usize) -> String {
        let number = |value: f64| format!("{value:.decimals$}");
        let (low, median, high) = (number(self.low), number(self.median), number(self.high));
        match low == high {
            true => median,
            false => format!("{median} ({low} to {high})"),
        }
    }
}

/// Mean of many values of one quantity, for differences smaller than their range.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Mean {
    /// The mean.
    pub mean: f64,
    /// Its standard error.
    pub error: f64,
    /// How many values there are.
    pub count: usize,
}

impl Mean {
    /// The mean of independent values, without those that are not finite. `None` with less than two.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let values: Vec<f64> = values.into_iter().filter(|it| it.is_finite()).collect();
        if values.len() < 2 {
            return None;
        }
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count;
        let squares: f64 = values.iter().map(|it| (it - mean).powi(2)).sum();
        Some(Self {
            mean,
            error: (squares / (count - 1.0) / count).sqrt(),
            count: values.len(),
        })
    }

    /// The ratio to another mean, which must be positive and independent of this one; its count is the smaller count.
    #[must_use]
    pub fn over(self, unit: Self) -> Self {
        let mean = self.mean / unit.mean;
        Self {
            mean,
            error: mean * (self.error / self.mean).hypot(unit.error / unit.mean),
            count: self.count.min(unit.count),
        }
    }

    /// `mean ± standard error` with this number of decimals.
    pub fn show(&self, decimals: usize) -> String {
        format!("{:.decimals$} ± {:.decimals$}", self.mean, self.error)
    }

    /// The mean, and two standard errors to each side.
    pub fn interval(self) -> Spread {
        Spread {
            low: self.mean - 2.0 * self.error,
            median: self.mean,
            high: self.mean + 2.0 * self.error,
            count: self.count,
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
        assert_eq!(Spread::of([1.0, 1.001]).unwrap().show(2), "1.00");
    }

    #[test]
    fn the_error_of_a_mean_shrinks_with_the_square_root_of_the_count() {
        let few = Mean::of([1.0, 3.0].repeat(8)).unwrap();
        let many = Mean::of([1.0, 3.0].repeat(32)).unwrap();
        assert_eq!((few.mean, many.mean), (2.0, 2.0));
        assert!((few.error - (1.0_f64 / 15.0).sqrt()).abs() < 1e-12);
        assert!((few.error / many.error - (63.0_f64 / 15.0).sqrt()).abs() < 1e-12);
        assert_eq!(Mean::of([1.0, f64::NAN]), None);
    }

    #[test]
    fn errors_of_a_ratio_add_as_squares() {
        let mean = |mean, error| Mean {
            mean,
            error,
            count: 9,
        };
        let ratio = mean(3.0, 0.09).over(mean(2.0, 0.08));
        assert_eq!(ratio.mean, 1.5);
        assert!((ratio.error - 0.075).abs() < 1e-12);
        let interval = ratio.interval();
        assert!((interval.low - 1.35).abs() < 1e-12 && (interval.high - 1.65).abs() < 1e-12);
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
