// SPDX-License-Identifier: MIT OR Apache-2.0
//! The exit codes of failures.

/// The description, or a file it names, is refused.
pub const EXIT_REFUSED: u8 = 1;
/// The command line is wrong. `clap` uses the same code.
pub const EXIT_COMMAND_LINE: u8 = 2;
/// A file could not be read or written, or a tool is missing.
pub const EXIT_ENVIRONMENT: u8 = 3;
