// SPDX-License-Identifier: MIT OR Apache-2.0
//! `spm`, the host tool: checks a system description, builds one bootable file of it, runs it.
//!
//! This crate does all I/O: TOML files, ELF, gzip, QEMU. The crate `spumone-config` checks descriptions and decides addresses;
//! it does no I/O.

#![forbid(unsafe_code)]
// `println!` and `eprintln!` panic if the output cannot be written; `output` has what replaces them.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod bench;
mod build;
mod bundle;
mod check;
mod cli;
mod command;
mod console;
mod demo;
mod device_tree;
mod escape;
mod exit_code;
mod explain;
mod failure;
pub mod fuzz;
mod guest_files;
mod hypervisor;
mod input;
pub mod key;
mod outfile;
mod output;
mod permission;
mod power;
mod progress;
mod qemu;
mod run;
mod sim;
mod summary;
mod system;
mod verify;
mod words;

use clap::Parser;
use std::io::{self, IsTerminal};
use std::process::ExitCode;

/// Runs the command that the command line names.
pub fn main() -> ExitCode {
    output::ended(run())
}

fn run() -> ExitCode {
    let cli = match cli::Cli::try_parse() {
        Ok(cli) => cli,
        // The same error again, of arguments that a terminal may get.
        Err(error) => return shown(&escaped_arguments().err().unwrap_or(error)),
    };
    let command = cli.command();
    match command.run() {
        Ok(code) => code,
        // The cause is said instead, at the end.
        Err(_) if output::is_lost() => ExitCode::FAILURE,
        Err(failure) => failure.report(command.json()),
    }
}

fn escaped_arguments() -> Result<cli::Cli, clap::Error> {
    let arguments = std::env::args_os();
    cli::Cli::try_parse_from(arguments.map(|it| escape::line(&it.to_string_lossy())))
}

/// Shows the help that was asked for, or what is wrong with the command line.
fn shown(error: &clap::Error) -> ExitCode {
    let text = error.render();
    match (
        error.use_stderr(),
        io::stdout().is_terminal(),
        io::stderr().is_terminal(),
    ) {
        (true, _, true) => output::tell_styled(&text.ansi().to_string()),
        (true, _, false) => output::tell(&text.to_string()),
        (false, true, _) => output::print_styled(&text.ansi().to_string()),
        (false, false, _) => output::print(&text.to_string()),
    }
    ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(exit_code::EXIT_COMMAND_LINE))
}
