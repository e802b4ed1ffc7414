// SPDX-License-Identifier: MIT OR Apache-2.0
//! `spm`, the host tool: checks a system description, builds one bootable file of it, runs it.
//!
//! Reading, ELF, gzip and QEMU are here; what makes a description sound, and where everything
//! goes, is decided by the `spumone-config` crate, which does no I/O.

#![forbid(unsafe_code)]

mod bench;
mod build;
mod bundle;
mod check;
mod cli;
mod command;
mod demo;
mod device_tree;
mod failure;
mod guest_files;
mod hypervisor;
mod progress;
mod qemu;
mod run;
mod sim;
mod summary;
mod system;

use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    let cli = cli::Cli::parse();
    let command = cli.command();
    match command.run() {
        Ok(code) => code,
        Err(failure) => failure.report(command.json()),
    }
}
