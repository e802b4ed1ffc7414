// SPDX-License-Identifier: MIT OR Apache-2.0
//! `spm explain`.

use crate::command::{Command, help};
use crate::console::{Console, Reader, Screen};
use crate::failure::Failure;
use clap::Args;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Shown below the help.
const EXAMPLES: &str = "\
Examples:
  spm explain serial.log
  cat /dev/ttyUSB0 | spm explain";

/// Print what a machine has written to its serial line, with reports about faults explained, as `spm run` does.
#[derive(Args)]
#[command(after_help = help(EXAMPLES))]
pub struct ExplainArgs {
    /// The file; without one, standard input.
    pub file: Option<PathBuf>,
}

impl Command for ExplainArgs {
    fn run(&self) -> Result<ExitCode, Failure> {
        let path = self.file.as_deref().unwrap_or(Path::new("standard input"));
        let failed = |error| Failure::io("read", path, &error);
        let mut input: Box<dyn Read> = match &self.file {
            Some(path) => Box::new(File::open(path).map_err(failed)?),
            None => Box::new(io::stdin()),
        };
        let screen = Screen::new([], Reader::File);
        let mut console = Console::of(screen, io::stdout());
        let mut buffer = [0; 4096];
        loop {
            match input.read(&mut buffer) {
                Ok(0) => break,
                Ok(count) => console.feed(&buffer[..count]).map_err(failed)?,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(failed(error)),
            }
        }
        console.end().map_err(failed)?;
        Ok(ExitCode::SUCCESS)
    }
}
