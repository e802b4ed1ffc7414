// SPDX-License-Identifier: MIT OR Apache-2.0
//! Why a command failed, and how the failure is shown.

use crate::escape::{self, Escaped};
use crate::exit_code::{EXIT_ENVIRONMENT, EXIT_REFUSED};
use crate::output;
use miette::{LabeledSpan, MietteDiagnostic, NamedSource, Report};
use serde_json::{Value, json};
use spumone_config::problem::{Label, Problem, SourceFile};
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

/// Most problems that are printed as text: each takes about ten lines.
const MAX_SHOWN: usize = 25;
/// Most problems in the JSON output. Each is looked up in its line, which may be the whole file.
const MAX_IN_JSON: usize = 1_000;

/// Longest source line, in bytes, that a report quotes. The longest lines of use are kernel command lines of 2 KiB. `miette` panics when it
/// underlines something beyond column 65,535: the standard library pads text to that width at most.
const MAX_LINE: usize = 4_096;

/// A source file that problems point into.
#[derive(Clone, Debug)]
pub struct Source {
    /// Its path, as shown to the user.
    pub path: PathBuf,
    /// Its text.
    pub text: Arc<str>,
}

/// Where the lines of a text begin, so that many places are found in the time of one.
struct Lines<'a> {
    text: &'a str,
    starts: Vec<usize>,
}

impl<'a> Lines<'a> {
    fn of(source: &'a Source) -> Self {
        let text = &*source.text;
        let after = text.match_indices('\n').map(|(at, _)| at + 1);
        Self {
            text,
            starts: std::iter::once(0).chain(after).collect(),
        }
    }

    /// Line and column of a byte, both from 1.
    fn position(&self, byte: usize) -> (usize, usize) {
        let before = self.text.get(..byte).unwrap_or(self.text);
        let line = self.starts.partition_point(|start| *start <= before.len());
        let start = line.checked_sub(1).and_then(|it| self.starts.get(it));
        let column = before
            .get(start.copied().unwrap_or(0)..)
            .unwrap_or_default();
        (line, column.chars().count() + 1)
    }
}

/// The files of a system that problems point into.
#[derive(Clone, Debug)]
pub struct Sources {
    /// The system description.
    pub description: Source,
    /// Absent if the description names no board that exists.
    pub board: Option<Source>,
}

impl Sources {
    /// The file that a label points into.
    fn get(&self, file: SourceFile) -> &Source {
        match file {
            SourceFile::Description => &self.description,
            SourceFile::Board => self.board.as_ref().unwrap_or(&self.description),
        }
    }
}

/// Why a command failed.
#[derive(Debug)]
pub enum Failure {
    /// The description is refused.
    Refused {
        /// All its problems.
        problems: Vec<Problem>,
        /// The files that the problems point into.
        sources: Box<Sources>,
    },
    /// Something outside the description is missing or broken.
    Environment {
        /// What.
        message: String,
        /// The cure.
        help: Option<String>,
    },
}

impl Failure {
    /// A description that is refused; problems are sorted by their place in the file.
    pub fn refused(mut problems: Vec<Problem>, sources: &Sources) -> Self {
        problems.sort_by_key(|problem| {
            problem
                .labels
                .first()
                .map(|label| (label.source, label.span))
        });
        Self::Refused {
            problems,
            sources: Box::new(sources.clone()),
        }
    }

    /// A failure of the environment.
    pub fn environment(message: impl Into<String>) -> Self {
        Self::Environment {
            message: message.into(),
            help: None,
        }
    }

    /// A file that could not be read or written.
    pub fn io(action: &str, path: &Path, error: &impl Display) -> Self {
        Self::environment(format!("cannot {action} {}: {error}", path.display()))
    }

    /// Adds the cure to a failure of the environment.
    #[must_use]
    pub fn help(self, text: impl Into<String>) -> Self {
        match self {
            Self::Environment { message, .. } => Self::Environment {
                message,
                help: Some(text.into()),
            },
            refused @ Self::Refused { .. } => refused,
        }
    }

    /// Shows the failure: as text on standard error, or as JSON on standard output.
    pub fn report(self, json: bool) -> ExitCode {
        match json {
            true => output::json(&self.to_json()),
            false => output::tell_styled(&(self.text() + "\n")),
        }
        ExitCode::from(match self {
            Self::Refused { .. } => EXIT_REFUSED,
            Self::Environment { .. } => EXIT_ENVIRONMENT,
        })
    }

    /// The failure as text, for a user.
    pub fn text(&self) -> String {
        match self {
            Self::Refused { problems, sources } => {
                let mut text = String::new();
                for problem in problems.iter().take(MAX_SHOWN) {
                    text += &format!("{:?}\n", diagnostic(problem, sources));
                }
                let count = problems.len();
                let plural = if count == 1 { "" } else { "s" };
                let path = escape::line(&sources.description.path.to_string_lossy());
                text += &format!("{path}: {count} problem{plural}");
                if count > MAX_SHOWN {
                    text += &format!(", of which the first {MAX_SHOWN} are shown");
                }
                text
            }
            Self::Environment { message, help } => {
                let mut diagnostic = MietteDiagnostic::new(escape::line(message));
                diagnostic.help = help.as_deref().map(escape::text);
                format!("{:?}", Report::new(diagnostic))
            }
        }
    }

    /// The failure as JSON.
    pub fn json_text(&self) -> String {
        format!("{:#}", self.to_json())
    }

    fn to_json(&self) -> Value {
        match self {
            Self::Refused { problems, sources } => {
                let files = [SourceFile::Description, SourceFile::Board];
                let lines = files.map(|file| Lines::of(sources.get(file)));
                let shown: Vec<_> = problems
                    .iter()
                    .take(MAX_IN_JSON)
                    .map(|problem| problem_json(problem, sources, &lines))
                    .collect();
                json!({ "ok": false, "problem_count": problems.len(), "problems": shown })
            }
            Self::Environment { message, help } => {
                json!({ "ok": false, "error": { "message": message, "help": help } })
            }
        }
    }
}

/// `lines`: those of the description, then those of the board.
fn problem_json(problem: &Problem, sources: &Sources, [own, board]: &[Lines<'_>; 2]) -> Value {
    let label = |label: &Label| {
        let source = sources.get(label.source);
        let lines = match label.source {
            SourceFile::Description => own,
            SourceFile::Board => board,
        };
        let (line, column) = lines.position(label.span.start);
        let (end_line, end_column) = lines.position(label.span.end);
        json!({
            "file": source.path.to_string_lossy(),
            "line": line,
            "column": column,
            "end_line": end_line,
            "end_column": end_column,
            "text": label.text,
        })
    };
    json!({
        "code": problem.code,
        "message": problem.message,
        "help": problem.help,
        "labels": problem.labels.iter().map(label).collect::<Vec<_>>(),
    })
}

/// A problem as `miette` shows it: the text underlined where it is wrong.
pub fn diagnostic(problem: &Problem, sources: &Sources) -> Report {
    let main = problem
        .labels
        .first()
        .map_or(SourceFile::Description, |label| label.source);
    let source = sources.get(main);
    let message = escape::line(&problem.message);
    let mut diagnostic = MietteDiagnostic::new(message).with_code(problem.code);
    diagnostic.help = problem.help.as_deref().map(escape::text);
    let path = escape::line(&source.path.to_string_lossy());
    let text = Escaped::of(&source.text);
    let labels: Vec<_> = problem
        .labels
        .iter()
        .filter(|label| label.source == main)
        .map(|label| {
            let [start, end] = [label.span.start, label.span.end].map(|it| text.place(it));
            LabeledSpan::new(
                Some(escape::line(&label.text)),
                start,
                end.saturating_sub(start),
            )
        })
        .collect();
    if labels.is_empty() {
        return Report::new(diagnostic);
    }
    if source.text.lines().any(|line| line.len() > MAX_LINE) {
        let mut labels = problem.labels.iter().filter(|label| label.source == main);
        let place = labels.next().map_or(0, |label| label.span.start);
        let (line, column) = Lines::of(source).position(place);
        diagnostic.message += &format!(" ({path}, line {line}, column {column})");
        return Report::new(diagnostic);
    }
    diagnostic.labels = Some(labels);
    Report::new(diagnostic).with_source_code(NamedSource::new(path, text.text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_count_lines_and_characters_from_one() {
        let source = Source {
            path: "a.toml".into(),
            text: "ab\näöx\n".into(),
        };
        let lines = Lines::of(&source);
        assert_eq!(lines.position(0), (1, 1));
        assert_eq!(lines.position(2), (1, 3));
        assert_eq!(lines.position(3), (2, 1));
        assert_eq!(lines.position(7), (2, 3));
        assert_eq!(lines.position(99), (3, 1));
    }
}
