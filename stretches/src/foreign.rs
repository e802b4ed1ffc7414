// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the sources of the project cannot say of the code of others: bounds of its loops, and which functions are not part of
//! any stretch. One file names all (`foreign.toml`).

use crate::problem::Problem;
use serde::Deserialize;
use std::path::Path;

/// The file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Foreign {
    /// Functions with loops.
    #[serde(default)]
    pub function: Vec<ForeignFunction>,
    /// Atomic operations that the compiler makes of exclusive loads and stores.
    pub exclusive: Exclusive,
    /// Functions that are executed at start or at death only.
    #[serde(default)]
    pub outside: Vec<Outside>,
}

/// A function of others that has loops.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ForeignFunction {
    /// Its name in the program.
    pub name: String,
    /// How often each loop is repeated at most, in the order of the loops' addresses; one number is for all loops.
    #[serde(default)]
    pub times: Vec<u64>,
    /// How many bytes of its argument one round of each loop covers; one number is for all loops.
    #[serde(default)]
    pub bytes_a_round: Vec<u64>,
    /// How many bytes its argument has at most, where the caller names no constant.
    #[serde(default)]
    pub most_bytes: u64,
    /// Why.
    pub why: String,
}

/// Atomic operations that are tried again if another core has written the word meanwhile.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Exclusive {
    /// How often they are tried again at most.
    pub times: u64,
    /// Why.
    pub why: String,
}

/// A function that is not part of any stretch.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Outside {
    /// Its name in the program.
    pub name: String,
    /// It is inlined: the instructions that come from it are not part of any stretch.
    #[serde(default)]
    pub inlined: bool,
    /// Why.
    pub why: String,
}

impl Foreign {
    /// Reads the file.
    pub fn read(path: &Path) -> Result<Self, Problem> {
        let shown = path.display().to_string();
        let text = std::fs::read_to_string(path).map_err(|error| {
            Problem::new(&shown, error.to_string(), "name the file with --foreign")
        })?;
        toml::from_str(&text).map_err(|error| {
            Problem::new(shown, error.message(), "see the other entries of the file")
        })
    }

    /// What is said of the loops of a function.
    pub fn loops_of(&self, name: &str) -> Option<&ForeignFunction> {
        self.function.iter().find(|it| it.name == name)
    }
}

impl ForeignFunction {
    /// How often its loop number `index` is repeated at most if its argument has `bytes` bytes.
    pub fn repetitions(&self, index: usize, bytes: Option<u64>) -> Option<u64> {
        let of = |list: &[u64]| match list {
            [all] => Some(*all),
            list => list.get(index).copied(),
        };
        let by_length = of(&self.bytes_a_round)
            .map(|round| bytes.unwrap_or(self.most_bytes).div_ceil(round.max(1)));
        match (of(&self.times), by_length) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loops_are_bounded_by_number_or_by_length() {
        let text = r#"
            [[function]]
            name = "memcpy"
            times = [15, 1000]
            bytes_a_round = [1, 8]
            most_bytes = 1280
            why = "a frame"
            [exclusive]
            times = 7
            why = "cores"
        "#;
        let foreign: Foreign = toml::from_str(text).unwrap();
        let memcpy = foreign.loops_of("memcpy").unwrap();
        assert_eq!(memcpy.repetitions(0, None), Some(15));
        assert_eq!(memcpy.repetitions(0, Some(4)), Some(4));
        assert_eq!(memcpy.repetitions(1, None), Some(160));
        assert_eq!(memcpy.repetitions(1, Some(33)), Some(5));
        assert_eq!(memcpy.repetitions(2, Some(33)), None);
        assert_eq!(foreign.loops_of("memset"), None);
    }
}
