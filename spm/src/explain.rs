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
        let mut breaks = Breaks::default();
        let mut buffer = [0; 4096];
        loop {
            match input.read(&mut buffer) {
                Ok(0) => break,
                Ok(count) => console
                    .feed(&breaks.restored(&buffer[..count]))
                    .map_err(failed)?,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(failed(error)),
            }
        }
        console.feed(breaks.end()).map_err(failed)?;
        console.end().map_err(failed)?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Restores the ends of lines. EL2 ends a line with CR LF; what has passed through an editor or a logger often has LF only.
/// EL2 itself writes LF without CR before it only to break a line, and then CR follows.
#[derive(Default)]
struct Breaks {
    last: Option<u8>,
    /// Whether the last byte was LF without CR before it, and is not passed on yet.
    is_pending: bool,
}

impl Breaks {
    /// These bytes, with CR before each LF that ends a line.
    fn restored(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut restored = Vec::with_capacity(bytes.len());
        for &byte in bytes {
            if std::mem::take(&mut self.is_pending) {
                match byte {
                    b'\r' => restored.push(b'\n'),
                    _ => restored.extend(b"\r\n"),
                }
            }
            self.is_pending = byte == b'\n' && self.last != Some(b'\r');
            self.last = Some(byte);
            if !self.is_pending {
                restored.push(byte);
            }
        }
        restored
    }

    /// What ends the last line.
    fn end(&self) -> &'static [u8] {
        match self.last {
            Some(b'\n') if !self.is_pending => b"",
            Some(_) => b"\r\n",
            None => b"",
        }
    }
}
