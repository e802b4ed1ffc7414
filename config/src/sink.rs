// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where the readers of a file put what is wrong with it.

use crate::problem::{Problem, SourceFile};
use std::cell::{Cell, RefCell};

/// Bytes of the problems of a file after which further problems are dropped. That is room for some thousands; `spm` prints far fewer. A small
/// file can have very many problems, and each problem may quote a long key.
const MAX_BYTES: usize = 2 << 20;

/// The problems of a file.
pub(crate) struct Sink {
    source: SourceFile,
    problems: RefCell<Vec<Problem>>,
    bytes: Cell<usize>,
}

impl Sink {
    pub(crate) fn new(source: SourceFile) -> Self {
        Self {
            source,
            problems: RefCell::new(Vec::new()),
            bytes: Cell::new(0),
        }
    }

    /// The file.
    pub(crate) fn source(&self) -> SourceFile {
        self.source
    }

    /// Keeps a problem, unless there are very many: the first ones are reason enough to refuse the file.
    pub(crate) fn report(&self, problem: Problem) {
        if !self.is_full() {
            self.bytes.set(self.bytes.get() + problem.bytes());
            self.problems.borrow_mut().push(problem);
        }
    }

    /// Whether no more problems are kept.
    pub(crate) fn is_full(&self) -> bool {
        self.bytes.get() >= MAX_BYTES
    }

    pub(crate) fn into_problems(self) -> Vec<Problem> {
        self.problems.into_inner()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn very_many_problems_are_not_all_kept() {
        let sink = Sink::new(SourceFile::Board);
        for _ in 0..1_000_000 {
            sink.report(Problem::new("syntax", "this is not TOML"));
        }
        let kept = sink.into_problems().len();
        assert!((1_000..50_000).contains(&kept), "{kept}");
    }
}
