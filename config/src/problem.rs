// SPDX-License-Identifier: MIT OR Apache-2.0
//! Problems of a description, with their place and cure.
//!
//! Checks do not stop at the first fault: each appends a [`Problem`] and continues, so that one run
//! of `spm check` shows them all.

use std::fmt;

/// Longest text of a problem in bytes. A text may quote what the file has in place of a name, and there may be many problems.
const MAX_TEXT: usize = 1_500;

/// A range of bytes in a source file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span {
    /// First byte.
    pub start: usize,
    /// One past the last byte.
    pub end: usize,
}

impl From<std::ops::Range<usize>> for Span {
    fn from(range: std::ops::Range<usize>) -> Self {
        Self {
            start: range.start,
            end: range.end,
        }
    }
}

/// A value and its span in the file. A value that was not written (a default) has the span
/// of the table in which it could be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spanned<T> {
    /// The value.
    pub value: T,
    /// Its span.
    pub span: Span,
}

impl<T> Spanned<T> {
    /// Joins a value and its span.
    pub fn new(value: T, span: Span) -> Self {
        Self { value, span }
    }
}

/// Which of the two files a label points into.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SourceFile {
    /// The system description.
    Description,
    /// The board file.
    Board,
}

/// A place in a source file and a remark on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label {
    /// The file.
    pub source: SourceFile,
    /// The place.
    pub span: Span,
    /// A few words, shown next to the underlined text.
    pub text: String,
}

/// One fault, its place, and what to write instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Short stable name of the rule, for scripts that read `--json`.
    pub code: &'static str,
    /// What is wrong, in one sentence.
    pub message: String,
    /// The places that matter; the first is the main one.
    pub labels: Vec<Label>,
    /// What to write instead.
    pub help: Option<String>,
}

impl Problem {
    /// A problem without a place; add one with [`Problem::at`].
    pub fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self {
            code,
            message: shortened(message.into()),
            labels: Vec::new(),
            help: None,
        }
    }

    /// Adds a place in the system description.
    #[must_use]
    pub fn at(self, span: Span, text: impl Into<String>) -> Self {
        self.at_in(SourceFile::Description, span, text)
    }

    /// Adds a place in either file.
    #[must_use]
    pub fn at_in(mut self, source: SourceFile, span: Span, text: impl Into<String>) -> Self {
        self.labels.push(Label {
            source,
            span,
            text: shortened(text.into()),
        });
        self
    }

    /// Adds what to write instead.
    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(shortened(help.into()));
        self
    }

    /// About how many bytes of memory it takes.
    pub(crate) fn bytes(&self) -> usize {
        let labels = self.labels.iter();
        let labels = labels.map(|label| size_of::<Label>() + label.text.capacity());
        let help = self.help.as_ref().map_or(0, String::capacity);
        size_of::<Self>() + self.message.capacity() + help + labels.sum::<usize>()
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// A text, or its beginning if it is very long.
fn shortened(mut text: String) -> String {
    if text.len() > MAX_TEXT {
        text.truncate(text.floor_char_boundary(MAX_TEXT));
        text.push('…');
        text.shrink_to_fit();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_cut_between_characters() {
        let problem = Problem::new("syntax", "ä".repeat(5_000)).at(Span::default(), "here");
        assert_eq!(problem.message, "ä".repeat(MAX_TEXT / 2) + "…");
        assert!((MAX_TEXT..2 * MAX_TEXT).contains(&problem.bytes()));
    }
}
