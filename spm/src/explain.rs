// SPDX-License-Identifier: MIT OR Apache-2.0
//! `spm explain`.

use crate::command::{Command, help};
use crate::console::{Console, IDLE, Pipe, Reader, Screen};
use crate::failure::Failure;
use crate::output;
use clap::Args;
use std::fs::File;
use std::io::{self, Read as _, Write};
use std::os::fd::AsFd as _;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Shown below the help.
const EXAMPLES: &str = "\
Examples:
  spm explain serial.log
  stty -F /dev/ttyUSB0 raw -echo 115200; spm explain /dev/ttyUSB0";

/// Print what a machine has written to its serial line, with reports about faults explained, as `spm run` does.
///
/// The file may be a pipe or the serial line itself: then each line is printed as it comes. A serial line must be raw and
/// without echo: otherwise the terminal driver changes the ends of lines, and sends the machine its own output as input.
#[derive(Args)]
#[command(after_help = help(EXAMPLES))]
pub struct ExplainArgs {
    /// The file; without one, standard input.
    pub file: Option<PathBuf>,
}

impl Command for ExplainArgs {
    fn run(&self) -> Result<ExitCode, Failure> {
        let path = self.file.as_deref().unwrap_or(Path::new("standard input"));
        let input = match &self.file {
            Some(path) => File::open(path),
            None => io::stdin().as_fd().try_clone_to_owned().map(File::from),
        };
        input
            .and_then(|input| explain(input, self.file.is_some(), output::Stdout))
            .map_err(|error| Failure::io("read", path, &error))?;
        Ok(ExitCode::SUCCESS)
    }
}

fn explain(mut input: File, is_named: bool, out: impl Write) -> io::Result<()> {
    let kind = input.metadata()?.file_type();
    let screen = Screen::new([], Reader::File).foreign();
    // A serial line is joined in the middle of a line. Standard input may be a terminal too, where a user types whole lines.
    let mut console = match is_named && kind.is_char_device() {
        true => Console::joining(screen, out),
        false => Console::of(screen, out),
    };
    let mut breaks = Breaks::default();
    if kind.is_char_device() || kind.is_fifo() || kind.is_socket() {
        let pipe = Pipe::new(input);
        while let Some(bytes) = pipe.read(IDLE) {
            console.feed(&breaks.restored(&bytes))?;
        }
    } else {
        let mut bytes = Vec::new();
        input.read_to_end(&mut bytes)?;
        console.feed(&breaks.restored(&bytes))?;
    }
    console.feed(breaks.end())?;
    console.end()
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
