// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bounds of loops as comments in the sources name them.
//!
//! ```text
//! // At most 16 times: list registers.
//! for index in bits(self.used) {
//! ```
//!
//! "At most once: …" and "At most twice: …" are such comments too. "At most 64 times in all: …" is for a statement of which the compiler makes
//! nested loops: each of them goes on so often at most, in all its runs together. "At most 24 times in the loop around it: …" is for all runs
//! of a loop together, while the loop around it runs.
//!
//! "At most twice, counted apart: …" is for the loop of which a core does nothing but rounds: a row of the table ends where a round begins, and
//! a round has a row of its own; in one stretch there are so many rounds at most.
//!
//! The comment is directly above the loop, or above the statement that contains it, or at the end of its line. It counts how often the
//! loop goes on to a next round.

use crate::problem::Problem;
use std::collections::BTreeMap;
use std::path::Path;

const BEGIN: &str = "// At most ";

/// A bound that a comment names.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Annotation {
    /// How many times at most.
    pub times: u64,
    /// What it counts.
    pub scope: Scope,
    /// The file, from the root of the repository.
    pub file: String,
    /// The line of the comment, from 1 on.
    pub line: u32,
}

/// What a bound counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// One run of the loop.
    Run,
    /// All runs of each loop of the statement.
    Statement,
    /// All runs of the loop while the loop around it runs.
    Around,
    /// Rounds of the loop in one stretch; a round has a row of its own in the table, and other rows end where a round begins.
    Apart,
}

/// All bounds in the sources, by file and line of the loops.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Annotations(BTreeMap<(String, u32), Annotation>);

impl Annotations {
    /// Reads all sources in these folders of the repository.
    pub fn read(root: &Path, folders: &[&str]) -> Result<Self, Problem> {
        let mut all = Self::default();
        for folder in folders {
            all.read_folder(root, folder)?;
        }
        Ok(all)
    }

    fn read_folder(&mut self, root: &Path, folder: &str) -> Result<(), Problem> {
        let failed = |error: std::io::Error| {
            Problem::new(
                folder,
                error.to_string(),
                "name the root of the repository with --root",
            )
        };
        for entry in std::fs::read_dir(root.join(folder)).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name = format!("{folder}/{}", entry.file_name().to_string_lossy());
            if entry.file_type().map_err(failed)?.is_dir() {
                self.read_folder(root, &name)?;
            } else if name.ends_with(".rs") {
                let text = std::fs::read_to_string(entry.path()).map_err(failed)?;
                self.add(&name, &text)?;
            }
        }
        Ok(())
    }

    /// Adds the bounds that a source file names.
    pub fn add(&mut self, file: &str, text: &str) -> Result<(), Problem> {
        let lines: Vec<_> = text.lines().map(str::trim).collect();
        for (index, line) in lines.iter().enumerate() {
            let Some((code, comment)) = line.split_once(BEGIN) else {
                continue;
            };
            // Words, or documentation, perhaps with an example.
            let is_bound = ["once", "twice"].iter().any(|it| comment.starts_with(it))
                || comment.starts_with(|it: char| it.is_ascii_digit());
            if !is_bound || code.contains('/') {
                continue;
            }
            let number = index as u32 + 1;
            let (times, scope) = times(comment).ok_or_else(|| unreadable(file, number))?;
            let annotation = Annotation {
                times,
                scope,
                file: file.into(),
                line: number,
            };
            if code.is_empty() {
                let rest = lines.get(index + 1..).unwrap_or_default();
                for below in statement(rest) {
                    let line = number + 1 + below as u32;
                    self.0
                        .entry((file.into(), line))
                        .or_insert_with(|| annotation.clone());
                }
            } else {
                self.0.insert((file.into(), number), annotation);
            }
        }
        Ok(())
    }

    /// The bound of the loop at a line.
    pub fn at(&self, file: &str, line: u32) -> Option<&Annotation> {
        self.0.get(&(file.into(), line))
    }
}

fn unreadable(file: &str, line: u32) -> Problem {
    Problem::new(
        format!("{file}:{line}"),
        "the bound of a loop cannot be read",
        format!("write \"{BEGIN}16 times: what limits it\""),
    )
}

/// The number in "N times: …", and what it counts.
fn times(comment: &str) -> Option<(u64, Scope)> {
    let (number, why) = comment.split_once(": ")?;
    if why.trim().is_empty() {
        return None;
    }
    let (first, rest) = number.split_once(' ').unwrap_or((number, ""));
    let (times, rest) = match (first.trim_end_matches(','), rest) {
        ("once", rest) => (1, rest),
        ("twice", rest) => (2, rest),
        (number, rest) => {
            let digits: String = number.chars().filter(|&it| it != ',').collect();
            (
                digits.parse().ok()?,
                rest.strip_prefix("times")?.trim_start_matches([',', ' ']),
            )
        }
    };
    let scope = match rest {
        "" => Scope::Run,
        "in all" => Scope::Statement,
        "in the loop around it" => Scope::Around,
        "counted apart" => Scope::Apart,
        _ => return None,
    };
    (times > 0).then_some((times, scope))
}

/// Indices of the lines of the statement, or of the head of the block, that begins in these lines, after further comments.
fn statement<'t>(lines: &'t [&'t str]) -> impl Iterator<Item = usize> + 't {
    let comments = lines.iter().take_while(|it| it.starts_with("//")).count();
    let ends = |line: &str| {
        let code = line.split("//").next().unwrap_or_default().trim_end();
        code.ends_with(['{', ';', '}'])
    };
    let code = lines.get(comments..).unwrap_or_default();
    // `loop {` is no instruction: what it stands for is seen in the statement after it.
    let head = usize::from(code.first() == Some(&"loop {"));
    let inner = code.get(head..).unwrap_or_default();
    let length = head
        + inner
            .iter()
            .position(|it| ends(it))
            .map_or(inner.len(), |it| it + 1);
    comments..comments + length
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str, line: u32) -> Option<u64> {
        let mut all = Annotations::default();
        all.add("core/src/x.rs", text).unwrap();
        all.at("core/src/x.rs", line).map(|it| it.times)
    }

    #[test]
    fn a_comment_is_for_the_statement_below_it() {
        let text = "a();\n// At most 16 times: list registers.\nfor x in y {\n  b();\n}\n";
        assert_eq!(
            [1, 2, 3, 4].map(|it| at(text, it)),
            [None, None, Some(16), None]
        );
        let text = "// At most 1,032 times: mail.\n// More words.\nlet a = b\n    .iter()\n    .max();\nc();";
        assert_eq!(
            [2, 3, 4, 5, 6].map(|it| at(text, it)),
            [None, Some(1032), Some(1032), Some(1032), None]
        );
    }

    #[test]
    fn a_comment_above_a_loop_without_a_condition_is_for_its_first_statement() {
        let text = "// At most 3 times: rounds.\nloop {\n  // Words.\n  a(b,\n    c);\n  d();\n}";
        assert_eq!(
            [2, 3, 4, 5, 6].map(|it| at(text, it)),
            [Some(3), Some(3), Some(3), Some(3), None]
        );
    }

    #[test]
    fn a_comment_is_for_its_own_line() {
        let text = "while a {} // At most 3 times: rounds.\nwhile b {}";
        assert_eq!([1, 2].map(|it| at(text, it)), [Some(3), None]);
    }

    #[test]
    fn small_and_common_bounds_have_their_own_words() {
        let mut all = Annotations::default();
        all.add("x.rs", "// At most once: a.\na();\n// At most twice in all: b.\nb();\n// At most 24 times, counted apart: c.\nc();")
            .unwrap();
        let at = |line| all.at("x.rs", line).map(|it| (it.times, it.scope));
        assert_eq!(
            [2, 4, 6].map(at),
            [
                Some((1, Scope::Run)),
                Some((2, Scope::Statement)),
                Some((24, Scope::Apart))
            ]
        );
    }

    #[test]
    fn a_comment_that_cannot_be_read_is_refused() {
        for text in [
            "// At most 3 rounds.",
            "// At most 3 times.",
            "// At most 0 times: never.",
            "// At most 3 times at all: it.",
        ] {
            let error = Annotations::default()
                .add("core/src/x.rs", text)
                .unwrap_err();
            assert_eq!(
                error.to_string(),
                "core/src/x.rs:1: the bound of a loop cannot be read; write \"// At most 16 times: what limits it\""
            );
        }
        // Others are none.
        assert_eq!(at("//! // At most 3 times: no.\nfor x in y {", 2), None);
        assert_eq!(at("/// At most 3 times: no.\nfor x in y {", 2), None);
        assert_eq!(at("// At most the half.\nfor x in y {", 2), None);
    }
}
