//! The command line.

use crate::failure::Failure;
use crate::{build, check, run};
use clap::{Args, Parser, Subcommand};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Shown below the help of every command.
const EXIT_CODES: &str = "\
Exit codes:
  0    done
  1    the description, or a file it names, was refused
  2    the command line is wrong
  3    a file cannot be read or written, or a tool is missing
  124  `spm run` ended the machine after --timeout
  `spm run` else passes on QEMU's exit code (128 + N where signal N ended it).";

const CHECK_EXAMPLES: &str = "\
Examples:
  spm check systems/demo.toml
  spm check --json systems/demo.toml | jq .system.guests";

const BUILD_EXAMPLES: &str = "\
Examples:
  spm build systems/demo.toml
  spm build systems/demo.toml -o demo.img --hypervisor spumone.elf";

const RUN_EXAMPLES: &str = "\
Examples:
  spm run systems/demo.toml
  spm run systems/demo.toml --timeout 60 --log demo.log
  spm run systems/demo.toml --gdb
  spm run systems/disk.toml -- -drive if=none,id=d,file=disk.img -device virtio-blk-device,drive=d";

/// The host tool of the Spumone hypervisor.
#[derive(Parser)]
#[command(name = "spm", version, propagate_version = true, after_help = EXIT_CODES)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Check a system description and every file it names; show what goes where.
    #[command(after_help = help(CHECK_EXAMPLES))]
    Check(CheckArgs),
    /// Build one bootable file of a system: hypervisor, guests and their device trees.
    ///
    /// It has the format of a Linux arm64 Image, so QEMU's -kernel and U-Boot's booti start
    /// it. The same input gives the same bytes.
    #[command(after_help = help(BUILD_EXAMPLES))]
    Build(BuildArgs),
    /// Build a system and start it on QEMU, its console in this terminal.
    ///
    /// Ctrl-A X ends the machine, Ctrl-A C opens QEMU's monitor. What [run] in the description
    /// lists as qemu-args is handed to QEMU; {dir} in it is the description's folder.
    #[command(after_help = help(RUN_EXAMPLES))]
    Run(RunArgs),
}

fn help(examples: &str) -> String {
    format!("{examples}\n\n{EXIT_CODES}")
}

/// What names a system.
#[derive(Args)]
pub struct SystemArgs {
    /// The system description; paths in it count from its folder.
    #[arg(value_name = "SYSTEM.toml")]
    pub description: PathBuf,
    /// The hypervisor's ELF file [default: where `make` leaves it, in target/].
    #[arg(long, value_name = "ELF")]
    pub hypervisor: Option<PathBuf>,
}

/// `spm check`.
#[derive(Args)]
pub struct CheckArgs {
    #[command(flatten)]
    pub system: SystemArgs,
    /// Print the result as JSON.
    #[arg(long)]
    pub json: bool,
}

/// `spm build`.
#[derive(Args)]
pub struct BuildArgs {
    #[command(flatten)]
    pub system: SystemArgs,
    /// The file to write [default: build/systems/SYSTEM.img].
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Print the result as JSON.
    #[arg(long)]
    pub json: bool,
}

impl BuildArgs {
    /// The file to write.
    pub fn output(&self) -> PathBuf {
        self.output
            .clone()
            .unwrap_or_else(|| default_output(&self.system.description))
    }
}

/// `build/systems/NAME.img` for a description `NAME.toml`.
pub fn default_output(description: &Path) -> PathBuf {
    let name = description.file_stem().unwrap_or_default();
    Path::new("build/systems").join(name).with_extension("img")
}

/// `spm run`.
#[derive(Args)]
pub struct RunArgs {
    #[command(flatten)]
    pub system: SystemArgs,
    /// Wait for a debugger at the first instruction, and say how to attach one.
    #[arg(long)]
    pub gdb: bool,
    /// End the machine after so many seconds, with exit code 124.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    pub timeout: Option<u64>,
    /// Write the console to this file too.
    #[arg(long, value_name = "FILE")]
    pub log: Option<PathBuf>,
    /// The QEMU to start.
    #[arg(long, value_name = "PROGRAM", default_value = "qemu-system-aarch64")]
    pub qemu: PathBuf,
    /// More arguments for QEMU.
    #[arg(last = true, value_name = "QEMU ARGS")]
    pub qemu_args: Vec<String>,
}

impl Cli {
    /// Does what the command line says.
    pub fn run(&self) -> Result<ExitCode, Failure> {
        match &self.command {
            Command::Check(args) => check::command(args),
            Command::Build(args) => build::command(args),
            Command::Run(args) => run::command(args),
        }
    }

    /// Whether results are to be JSON.
    pub fn json(&self) -> bool {
        match &self.command {
            Command::Check(args) => args.json,
            Command::Build(args) => args.json,
            Command::Run(_) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_image_is_named_after_the_description() {
        let output = default_output(Path::new("systems/demo.toml"));
        assert_eq!(output, Path::new("build/systems/demo.img"));
    }
}
