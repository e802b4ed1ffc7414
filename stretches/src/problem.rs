// SPDX-License-Identifier: MIT OR Apache-2.0
//! What stops the analysis, in words: where, what, and what to do.

use std::fmt;

/// A problem.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    place: String,
    what: String,
    cure: String,
}

impl Problem {
    /// A problem at a place, and its cure.
    pub fn new(place: impl Into<String>, what: impl Into<String>, cure: impl Into<String>) -> Self {
        Self {
            place: place.into(),
            what: what.into(),
            cure: cure.into(),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}; {}", self.place, self.what, self.cure)
    }
}
