// SPDX-License-Identifier: MIT OR Apache-2.0
//! `spm`, the host tool: checks a system description, builds one bootable file of it, runs it.
//!
//! This crate does all I/O: TOML files, ELF, gzip, QEMU. The crate `spumone-config` checks descriptions and decides addresses;
//! it does no I/O.

#![forbid(unsafe_code)]

mod bench;
mod build;
mod bundle;
mod check;
mod cli;
mod command;
mod console;
mod demo;
mod device_tree;
mod explain;
mod failure;
pub mod fuzz;
mod guest_files;
mod hypervisor;
mod input;
pub mod key;
mod outfile;
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
use std::process::ExitCode;

/// Runs the command that the command line names.
pub fn main() -> ExitCode {
    let cli = cli::Cli::parse();
    let command = cli.command();
    match command.run() {
        Ok(code) => code,
        Err(failure) => failure.report(command.json()),
    }
}
