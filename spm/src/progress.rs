// SPDX-License-Identifier: MIT OR Apache-2.0
//! Shows the current step on a terminal. Shows nothing where standard error is no terminal.

use indicatif::{ProgressBar, ProgressStyle};
use std::borrow::Cow;
use std::time::Duration;

/// How often the line is drawn; shorter steps are not shown.
const TICK: Duration = Duration::from_millis(120);

/// A line that names the current step; dropping it erases the line.
pub struct Progress(ProgressBar);

impl Progress {
    /// Shows the first step.
    pub fn start(step: impl Into<Cow<'static, str>>) -> Self {
        let bar = ProgressBar::new_spinner();
        if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} {elapsed}") {
            bar.set_style(style);
        }
        bar.enable_steady_tick(TICK);
        bar.set_message(step);
        Self(bar)
    }

    /// Shows nothing.
    pub fn hidden() -> Self {
        Self(ProgressBar::hidden())
    }

    /// Shows the next step.
    pub fn step(&self, step: impl Into<Cow<'static, str>>) {
        self.0.set_message(step);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
