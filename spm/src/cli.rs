// SPDX-License-Identifier: MIT OR Apache-2.0
//! The command line.

use crate::command::{self, EXIT_CODES};
use crate::{bench, build, check, demo, explain, key, run, sim, verify};
use clap::{Parser, Subcommand};

/// The host tool of the Spumone hypervisor.
#[derive(Parser)]
#[command(name = "spm", version, propagate_version = true, after_help = EXIT_CODES)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// The commands. Each describes itself, beside its arguments.
#[derive(Subcommand)]
enum Command {
    Check(check::CheckArgs),
    Build(build::BuildArgs),
    Verify(verify::VerifyArgs),
    Key(key::KeyArgs),
    Run(run::RunArgs),
    Explain(explain::ExplainArgs),
    Bench(bench::BenchArgs),
    Demo(demo::DemoArgs),
    Sim(sim::SimArgs),
}

impl Cli {
    /// The command with its arguments.
    pub fn command(&self) -> &dyn command::Command {
        match &self.command {
            Command::Check(args) => args,
            Command::Build(args) => args,
            Command::Verify(args) => args,
            Command::Key(args) => args,
            Command::Run(args) => args,
            Command::Explain(args) => args,
            Command::Bench(args) => args,
            Command::Demo(args) => args,
            Command::Sim(args) => args,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        <Cli as CommandFactory>::command().debug_assert();
    }
}
