// SPDX-License-Identifier: MIT OR Apache-2.0
//! All that `spm` writes to standard output and standard error.
//!
//! That standard output takes no more is remembered here, and said once, at the end ([`ended`]), as GNU tools do it.

use crate::escape;
use crate::exit_code::EXIT_ENVIRONMENT;
use serde_json::Value;
use signal_hook::consts::SIGPIPE;
use signal_hook::low_level::emulate_default_handler;
use std::io::{self, ErrorKind, Write};
use std::process::ExitCode;
use std::sync::OnceLock;
use std::time::Duration;

/// How long to wait before a terminal that takes no more is tried again.
const FULL: Duration = Duration::from_millis(1);

/// Why standard output has taken no more, if that was so.
static LOST: OnceLock<io::Error> = OnceLock::new();

/// Standard output. It remembers that something could not be written.
pub struct Stdout;

impl Stdout {
    fn remember<T>(result: io::Result<T>) -> io::Result<T> {
        result.inspect_err(|error| {
            if !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) {
                // The first error is the cause.
                let _ = LOST.set(copy(error));
            }
        })
    }
}

impl Write for Stdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Self::remember(io::stdout().write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        Self::remember(io::stdout().flush())
    }
}

fn copy(error: &io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(number) => io::Error::from_raw_os_error(number),
        None => error.kind().into(),
    }
}

/// Writes all, also to a terminal that takes no more for now: QEMU, which reads from the same one, has made reading and
/// writing return at once.
pub fn write_all(out: &mut impl Write, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match out.write(bytes) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(count) => bytes = &bytes[count..],
            Err(error) if error.kind() == ErrorKind::WouldBlock => std::thread::sleep(FULL),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    loop {
        match out.flush() {
            Err(error) if error.kind() == ErrorKind::WouldBlock => std::thread::sleep(FULL),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

/// Prints text on standard output, as a terminal may get it.
pub fn print(text: &str) {
    print_styled(&escape::text(text));
}

/// Prints text that may have colours: of what comes from elsewhere nothing is in it that was not escaped.
pub fn print_styled(text: &str) {
    if LOST.get().is_none() {
        // What fails is remembered.
        let _ = write_all(&mut Stdout, text.as_bytes());
    }
}

/// Prints a result as JSON.
pub fn json(value: &Value) {
    // Its strings are escaped as JSON has it.
    print_styled(&format!("{value:#}\n"));
}

/// Writes a message to standard error. If standard error takes no more, the message is dropped.
pub fn tell(text: &str) {
    tell_styled(&escape::text(text));
}

/// The same with text that may have colours, as in [`print_styled`].
pub fn tell_styled(text: &str) {
    let _ = write_all(&mut io::stderr(), text.as_bytes());
}

/// As `println!`, by [`print()`].
macro_rules! say {
    () => { $crate::output::print("\n") };
    ($($text:tt)*) => { $crate::output::print(&(format!($($text)*) + "\n")) };
}

/// As `eprintln!`, by [`tell`].
macro_rules! note {
    ($($text:tt)*) => { $crate::output::tell(&(format!($($text)*) + "\n")) };
}

pub(crate) use {note, say};

/// Whether standard output takes no more.
pub fn is_lost() -> bool {
    LOST.get().is_some()
}

/// The exit code of a `spm` that would end with `code`. If its reader has gone, it ends without a word by SIGPIPE, which Rust programs ignore
/// otherwise; if standard output took no more for another reason, it says so.
pub fn ended(code: ExitCode) -> ExitCode {
    // All was flushed when it was printed. Standard output is not touched here: another thread of `spm run` may wait in it for a reader.
    match LOST.get() {
        None => code,
        Some(error) => {
            if error.kind() == ErrorKind::BrokenPipe {
                // It does not return.
                let _ = emulate_default_handler(SIGPIPE);
            }
            tell(&format!("spm: cannot write to standard output: {error}\n"));
            ExitCode::from(EXIT_ENVIRONMENT)
        }
    }
}
