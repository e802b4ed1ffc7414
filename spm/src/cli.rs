// SPDX-License-Identifier: MIT OR Apache-2.0
//! The command line.

use crate::failure::Failure;
use crate::{bench, build, check, demo, run, sim};
use clap::builder::{PossibleValue, PossibleValuesParser};
use clap::{Args, Parser, Subcommand};
use spumone_bench::experiments::{self, yardstick};
use spumone_config::description::POLICIES;
use std::path::{Path, PathBuf};
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

const BENCH_EXAMPLES: &str = "\
Examples:
  spm bench --list
  spm bench latency --quick
  spm bench lhp --policy none,steal --seeds 5
  spm bench lhp --only load-50 --seed 1
  spm bench yardsticks --out /tmp/figures --json | jq .verdicts";

const SIM_EXAMPLES: &str = "\
Examples:
  spm sim
  spm sim --load 0,10,30,50,70,90 --seeds 5 --svg lhp.svg
  spm sim --cores 4,16,64,256,1024 --guest-cores 4 --policy steal --load 50 --seconds 1
  spm sim --cores 2,4,8,16,31 --guest-cores 31 --policy steal
  spm sim --policy chance --migrations 1000000000
  spm sim --json | jq '.runs[] | {policy, load_percent, time_over_ideal}'";

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
    /// Measure: make the runs of a figure on the exact clock, then its page and picture.
    ///
    /// A run whose result is there, of the same files and settings, is not repeated. The page goes to
    /// docs/results/, that of a quick look to build/bench/NAME/quick/.
    #[command(after_help = help(BENCH_EXAMPLES))]
    Bench(BenchArgs),
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
    #[command(after_help = help(SIM_EXAMPLES))]
    Sim(SimArgs),
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

/// `spm bench`.
#[derive(Args, Clone)]
pub struct BenchArgs {
    /// The figure; without one, those that there are.
    #[arg(value_parser = figures())]
    pub name: Option<String>,
    /// A short look: smaller runs, fewer seeds.
    #[arg(long)]
    pub quick: bool,
    /// Make each run with the seeds 1 to N [default: the figure's own].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub seeds: Option<u32>,
    /// Make each run with this seed only, show trace hashes and numbers, write no page (but with --out).
    #[arg(long, value_name = "N", conflicts_with = "seeds")]
    pub seed: Option<u32>,
    /// How many runs at a time; each keeps one core of the host busy.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=256))]
    pub jobs: u32,
    /// Where page, numbers and pictures go.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Make only runs whose label contains this, show them as --seed does, write no page (but with --out).
    #[arg(long, value_name = "FILTER")]
    pub only: Option<String>,
    /// Print the numbers as JSON.
    #[arg(long)]
    pub json: bool,
    /// List the figures, or the runs of the figure that is named, and about how long they take.
    #[arg(long)]
    pub list: bool,
    /// Go on when a run fails, and write a page that says what is missing.
    #[arg(long)]
    pub keep_going: bool,
    /// Instructions in a virtual microsecond of each core [default: the figure's own].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub ipus: Option<u32>,
    /// Instructions that a core executes before the next one's turn [default: the figure's own].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(50..=1_000_000))]
    pub q: Option<u32>,
    /// Policies against lock-holder preemption, each a line of the figure [default: the figure's own].
    #[arg(
        long,
        value_name = "NAME",
        value_delimiter = ',',
        value_parser = system_policies()
    )]
    pub policy: Vec<String>,
    /// What Linux is measured by, where a figure leaves the choice; its page goes to build/bench/FIGURE/NAME/.
    #[arg(long, value_name = "NAME", value_parser = yardsticks())]
    pub yardstick: Option<String>,
    /// The hypervisor's ELF file [default: where `make` leaves it, in target/].
    #[arg(long, value_name = "ELF")]
    pub hypervisor: Option<PathBuf>,
    /// The QEMU to start.
    #[arg(long, value_name = "PROGRAM", default_value = "qemu-system-aarch64")]
    pub qemu: PathBuf,
}

/// `spm sim`.
#[derive(Args)]
pub struct SimArgs {
    /// Cores of the machine.
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "4", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub cores: Vec<u16>,
    /// Cores of each SMP guest [default: all, if they are 8 at most; else the largest part of them that 8 cores have room for].
    ///
    /// A machine with fewer cores has one guest on all of them.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=31))]
    pub guest_cores: Option<u16>,
    /// vCPUs of each SMP guest [default: one for each of its cores; with the policy "chance" two].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=31))]
    pub guest_vcpus: Option<u16>,
    /// What is done against lock-holder preemption.
    #[arg(long, value_name = "NAME", value_delimiter = ',', default_value = "none,steal", value_parser = policies())]
    pub policy: Vec<String>,
    /// Share of a core that the real-time guest takes, in percent.
    #[arg(long, value_name = "PERCENT", value_delimiter = ',', default_value = "0,50,90", value_parser = clap::value_parser!(u8).range(0..100))]
    pub load: Vec<u8>,
    /// Virtual seconds of each run.
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub seconds: u32,
    /// Moves of vCPUs after which a run with the policy "chance" ends.
    #[arg(long, value_name = "N", default_value_t = 10_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub migrations: u64,
    /// Of all random numbers.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(..=u64::from(u32::MAX)))]
    pub seed: u64,
    /// Make each run with so many seeds, from --seed on.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub seeds: u32,
    /// Draw time over ideal by load into this file: the median over seeds, and the range.
    #[arg(long, value_name = "FILE.svg")]
    pub svg: Option<PathBuf>,
    /// Print the numbers as JSON.
    #[arg(long)]
    pub json: bool,
}

/// The policies that can be simulated.
fn policies() -> PossibleValuesParser {
    PossibleValuesParser::new(sim::policies().map(PossibleValue::new))
}

/// Those that a system can have.
fn system_policies() -> PossibleValuesParser {
    PossibleValuesParser::new(POLICIES.iter().map(|(name, _)| PossibleValue::new(*name)))
}

/// The figures there are.
fn figures() -> PossibleValuesParser {
    let figures = experiments::ALL.iter();
    PossibleValuesParser::new(figures.map(|it| PossibleValue::new(it.name()).help(it.title())))
}

/// What Linux can be measured by.
fn yardsticks() -> PossibleValuesParser {
    let all = yardstick::ALL.iter();
    PossibleValuesParser::new(all.map(|it| PossibleValue::new(it.name).help(it.what)))
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

    /// The arguments of `spm bench`, if it is that.
    #[cfg(test)]
    pub fn into_bench(self) -> Option<BenchArgs> {
        match self.command {
            Command::Bench(args) => Some(args),
            _ => None,
        }
    }

    /// The arguments of `spm sim`, if it is that.
    #[cfg(test)]
    pub fn into_sim(self) -> Option<SimArgs> {
        match self.command {
            Command::Sim(args) => Some(args),
            _ => None,
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

    #[test]
    fn the_image_is_named_after_the_description() {
        let output = default_output(Path::new("systems/demo.toml"));
        assert_eq!(output, Path::new("build/systems/demo.img"));
    }
}
