// SPDX-License-Identifier: MIT OR Apache-2.0
//! The command line.

use crate::failure::Failure;
use crate::{bench, build, check, demo, run, sim};
use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Shown below the help of every command.
const EXIT_CODES: &str = "\
Exit codes:
  0    done
  1    the description, or a file it names, was refused
  2    the command line is wrong
  3    a file cannot be read or written, or a tool is missing; a run of `spm bench` failed,
       or something in `spm demo` went wrong;
       an invariant of `spm sim` did not hold
  124  `spm run` ended the machine after --timeout
  `spm run` else passes on QEMU's exit code (128 + N where signal N ended it).";

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
    #[command(after_help = help(check::EXAMPLES))]
    Check(check::CheckArgs),
    /// Build one bootable file of a system: hypervisor, guests and their device trees.
    ///
    /// It has the format of a Linux arm64 Image, so QEMU's -kernel and U-Boot's booti start
    /// it. The same input gives the same bytes.
    #[command(after_help = help(build::EXAMPLES))]
    Build(build::BuildArgs),
    /// Build a system and start it on QEMU, its console in this terminal.
    ///
    /// Ctrl-A X ends the machine, Ctrl-A C opens QEMU's monitor. What [run] in the description
    /// lists as qemu-args is handed to QEMU; {dir} in it is the description's folder.
    #[command(after_help = help(run::EXAMPLES))]
    Run(run::RunArgs),
    /// Measure: make the runs of a figure on the exact clock, then its page and picture.
    ///
    /// A run whose result is there, of the same files and settings, is not repeated. The page goes to
    /// docs/results/, that of a quick look to build/bench/NAME/quick/.
    #[command(after_help = help(bench::EXAMPLES))]
    Bench(bench::BenchArgs),
    /// Run the demo: both guests side by side, then a table that compares them with the bare machine.
    ///
    /// Runs systems/demo.toml on the exact clock, its console in this terminal, and beside it each guest alone on the bare machine.
    /// The keyboard is not connected: `spm run systems/shell.toml` is interactive.
    #[command(after_help = EXIT_CODES)]
    Demo(demo::DemoArgs),
    /// Simulate: the hypervisor's decisions in a model of time, costs and guests, on up to 1,024 cores.
    ///
    /// The code that decides is the hypervisor's; every invariant is asserted after each event. SMP guests send messages between
    /// processes, as hackbench does; a real-time guest takes the first core of each for a share of every 500 ms. With the policy
    /// "chance" vCPUs move as often as they can instead. The same command gives the same numbers on any machine.
    #[command(after_help = help(sim::EXAMPLES))]
    Sim(sim::SimArgs),
}

fn help(examples: &str) -> String {
    format!("{examples}\n\n{EXIT_CODES}")
}

impl Cli {
    /// Does what the command line says.
    pub fn run(&self) -> Result<ExitCode, Failure> {
        match &self.command {
            Command::Check(args) => check::command(args),
            Command::Build(args) => build::command(args),
            Command::Run(args) => run::command(args),
            Command::Bench(args) => bench::command(args),
            Command::Demo(args) => demo::command(args),
            Command::Sim(args) => sim::command(args),
        }
    }

    /// Whether results are to be JSON.
    pub fn json(&self) -> bool {
        match &self.command {
            Command::Check(args) => args.json,
            Command::Build(args) => args.json,
            Command::Run(_) | Command::Demo(_) => false,
            Command::Bench(args) => args.json,
            Command::Sim(args) => args.json,
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
}
