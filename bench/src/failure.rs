// SPDX-License-Identifier: MIT OR Apache-2.0
//! Failures of an experiment.

use std::fmt;
use std::path::Path;

/// A failure and its cure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What failed.
    pub message: String,
    /// The cure, if one is known.
    pub help: Option<String>,
}

impl Failure {
    /// A failure without a known cure.
    pub fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            help: None,
        }
    }

    /// A file that could not be read or written.
    pub fn io(action: &str, path: &Path, error: &std::io::Error) -> Self {
        Self::new(format!("cannot {action} {}: {error}", path.display()))
    }

    /// Adds the cure.
    #[must_use]
    pub fn help(mut self, text: impl Into<String>) -> Self {
        self.help = Some(text.into());
        self
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}
