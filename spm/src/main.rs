// SPDX-License-Identifier: MIT OR Apache-2.0
//! The program `spm`.

#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    spm::main()
}
