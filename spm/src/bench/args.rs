// SPDX-License-Identifier: MIT OR Apache-2.0
//! The command line of `spm bench`.

use crate::command::help;
use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser};
use spumone_bench::experiments::{self, yardstick};
use spumone_config::description::POLICIES;
use std::path::PathBuf;

/// Shown below the help.
const EXAMPLES: &str = "\
Examples:
  spm bench --list
  spm bench latency --quick
  spm bench lhp --policy none,steal --seeds 5
  spm bench lhp --only load-50 --seed 1
  spm bench latency --only hackbench-steal --seed 1 --trails IRQ:switches
  spm bench yardsticks --out /tmp/figures --json | jq .verdicts";

/// Measure: make the runs of a figure on the exact clock, then its page and picture.
///
/// A run is not repeated if it already has a result from the same files and settings. The page goes
/// to docs/results/, that of a quick look to build/bench/NAME/quick/.
#[derive(Args, Clone)]
#[command(after_help = help(EXAMPLES))]
pub struct BenchArgs {
    /// The figure; without one, `spm bench` lists the figures.
    #[arg(value_parser = figures())]
    pub name: Option<String>,
    /// Make a short version: smaller runs, fewer seeds.
    #[arg(long)]
    pub quick: bool,
    /// Make each run with the seeds 1 to N [default: the figure's own].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub seeds: Option<u32>,
    /// Make each run with this seed only, show trace hashes and numbers; write a page only with --out.
    #[arg(long, value_name = "N", conflicts_with = "seeds")]
    pub seed: Option<u32>,
    /// How many runs at a time; each keeps one core of the host busy.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=256))]
    pub jobs: u32,
    /// The folder for page, numbers and pictures.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Make only runs whose label contains this, and show them as --seed does; write a page only with --out.
    #[arg(long, value_name = "FILTER")]
    pub only: Option<String>,
    /// Print the numbers as JSON.
    #[arg(long)]
    pub json: bool,
    /// List the figures, or the runs of the named figure.
    #[arg(long)]
    pub list: bool,
    /// Continue when a run fails, and write a page that says what is missing.
    #[arg(long)]
    pub keep_going: bool,
    /// Instructions in a virtual microsecond of each core [default: the figure's own].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub ipus: Option<u32>,
    /// Instructions that a core executes in its turn [default: the figure's own].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(50..=1_000_000))]
    pub q: Option<u32>,
    /// Also print which functions and source lines these exits to EL2 spend their instructions in, and the longest stretches
    /// without a look for interrupts.
    #[arg(long, value_name = "CAUSE:END", conflicts_with = "json", value_parser = exits)]
    pub trails: Option<String>,
    /// Policies against lock-holder preemption, each a line of the figure [default: the figure's own].
    #[arg(
        long,
        value_name = "NAME",
        value_delimiter = ',',
        value_parser = system_policies()
    )]
    pub policy: Vec<String>,
    /// Program by which Linux is measured, where a figure leaves the choice; its page goes to build/bench/FIGURE/NAME/.
    #[arg(long, value_name = "NAME", value_parser = yardsticks())]
    pub yardstick: Option<String>,
    /// The hypervisor's ELF file [default: where `make` leaves it, in target/].
    #[arg(long, value_name = "ELF")]
    pub hypervisor: Option<PathBuf>,
    /// The QEMU to start.
    #[arg(long, value_name = "PROGRAM", default_value = spumone_bench::qemu::PROGRAM)]
    pub qemu: PathBuf,
}

/// The kind of exits that `--trails` names: how the exit began and ended, as on the pages.
fn exits(text: &str) -> Result<String, String> {
    const ENDS: [&str; 4] = ["stays", "switches", "sleeps", "unfinished"];
    match text.rsplit_once(':') {
        Some((cause, end)) if !cause.is_empty() && ENDS.contains(&end) => Ok(text.into()),
        _ => Err(format!(
            "expected CAUSE:END, such as IRQ:switches; the ends are {}",
            ENDS.join(", ")
        )),
    }
}

/// The policies of systems.
fn system_policies() -> PossibleValuesParser {
    PossibleValuesParser::new(POLICIES.iter().map(|(name, _)| PossibleValue::new(*name)))
}

/// The figures.
fn figures() -> PossibleValuesParser {
    let figures = experiments::ALL.iter();
    PossibleValuesParser::new(
        figures.map(|it| PossibleValue::new(it.about().name).help(it.about().title)),
    )
}

/// The programs by which Linux can be measured.
fn yardsticks() -> PossibleValuesParser {
    let all = yardstick::ALL.iter();
    PossibleValuesParser::new(all.map(|it| PossibleValue::new(it.name).help(it.what)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_of_exits_has_a_cause_and_a_known_end() {
        for good in ["IRQ:switches", "HVC 0x84000002:sleeps"] {
            assert_eq!(exits(good).as_deref(), Ok(good));
        }
        for bad in ["IRQ", ":stays", "IRQ:goes", "IRQ:"] {
            assert!(exits(bad).is_err_and(|it| it.contains("switches")), "{bad}");
        }
    }
}
