// SPDX-License-Identifier: MIT OR Apache-2.0
//! What every command of `spm` has.

use crate::failure::Failure;
use std::process::ExitCode;

/// Shown below the help of every command.
pub const EXIT_CODES: &str = "\
Exit codes:
  0    success
  1    the description, or a file it names, is refused
  2    the command line is wrong
  3    a file or standard output cannot be read or written, or a tool is missing; the hypervisor
       refuses the image of `spm run`; a run of `spm bench` failed; a result of `spm demo` is
       not as it should be; an invariant of `spm sim` did not hold
  124  `spm run` stopped the machine after --timeout
  Otherwise `spm run` returns QEMU's exit code (128 + N if signal N ended QEMU).";

/// The arguments of a command: they own its help and know what it does.
pub trait Command {
    /// Does what the arguments say.
    fn run(&self) -> Result<ExitCode, Failure>;

    /// Whether the result, or the failure, is to be printed as JSON.
    fn json(&self) -> bool {
        false
    }
}

/// The text below a command's help.
pub fn help(examples: &str) -> String {
    format!("{examples}\n\n{EXIT_CODES}")
}
