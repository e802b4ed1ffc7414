// SPDX-License-Identifier: MIT OR Apache-2.0
//! `spm sim --power`: which cores are on in each mode of `[power]`, what that costs the guests, and how soon cores follow the load.

mod picture;
mod row;
mod words;

use self::row::Row;
use super::{SimArgs, failure, guest_cores, show_effort, simulate};
use crate::failure::Failure;
use crate::output;
use crate::progress::Progress;
use clap::builder::{PossibleValue, PossibleValuesParser};
use serde_json::json;
use spumone_config::description::POWER_MODES;
use spumone_config::packed::PowerMode;
use spumone_core::schedule::Ticks;
use spumone_sim::loads::Load;
use spumone_sim::{Failed, Outcome, Setup, TICKS_PER_SECOND};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::process::ExitCode;
use std::time::Instant;

/// One simulation.
#[derive(Clone, Debug)]
struct Run {
    cores: usize,
    guest_cores: usize,
    mode: PowerMode,
    load: Load,
    /// The share of a core that the real-time guest takes.
    rt_percent: u8,
    seconds: u32,
    seed: u64,
}

/// The modes as values of `--power`.
pub(super) fn modes() -> PossibleValuesParser {
    PossibleValuesParser::new(POWER_MODES.iter().map(|(name, _)| PossibleValue::new(name)))
}

/// A value of `--linux`.
pub(super) fn load(word: &str) -> Result<Load, String> {
    match word {
        "idle" => Ok(Load::Idle),
        "full" => Ok(Load::Full),
        "bursts" => Ok(Load::Bursts),
        _ => match word.parse() {
            Ok(percent @ 1..=99) => Ok(Load::Share(percent)),
            _ => Err("use `idle`, 1 to 99 (percent), `full` or `bursts`".into()),
        },
    }
}

/// A load as a value of `--linux`.
fn load_name(load: Load) -> String {
    match load {
        Load::Idle => "idle".into(),
        Load::Share(percent) => percent.to_string(),
        Load::Full => "full".into(),
        Load::Bursts => "bursts".into(),
    }
}

fn mode_name(mode: PowerMode) -> &'static str {
    let named = POWER_MODES.iter().find(|(_, it)| *it == mode);
    named.map_or("", |it| it.0)
}

impl Run {
    fn setup(&self) -> Setup {
        let length = Ticks(u64::from(self.seconds) * TICKS_PER_SECOND);
        let (cores, rt) = (self.guest_cores, self.rt_percent);
        Setup {
            cores: self.cores,
            ..Setup::power(cores, self.mode, self.load, rt, length, self.seed)
        }
    }

    fn simulate(&self, progress: &Progress) -> Result<Outcome, Failure> {
        let (mode, load) = (mode_name(self.mode), load_name(self.load));
        let (rt, seconds) = (self.rt_percent, self.seconds);
        let what = format!("mode {mode}, Linux {load}, load {rt} %");
        let again = format!("--power {mode} --linux {load} --load {rt} --seconds {seconds}");
        simulate(&self.setup(), progress, &what, &again)
    }
}

/// All combinations. The size of the machine changes last, and the seed first.
fn runs(args: &SimArgs) -> Result<Vec<Run>, Failure> {
    let mut runs = Vec::new();
    for cores in args.cores.iter().map(|&it| usize::from(it)) {
        for &rt_percent in &args.load {
            for &load in &args.linux {
                for &(name, mode) in POWER_MODES {
                    if !args.power.iter().any(|it| it == name) {
                        continue;
                    }
                    for more in 0..u64::from(args.seeds) {
                        let run = Run {
                            cores,
                            guest_cores: guest_cores(args, cores),
                            mode,
                            load,
                            rt_percent,
                            seconds: args.seconds,
                            seed: args.seed + more,
                        };
                        let checked = run.setup().check();
                        checked.map_err(|error| failure(Failed::Setup(error)))?;
                        runs.push(run);
                    }
                }
            }
        }
    }
    Ok(runs)
}

/// Simulates all runs, and shows the results.
pub(super) fn run(args: &SimArgs) -> Result<ExitCode, Failure> {
    let runs = runs(args)?;
    let started = Instant::now();
    let progress = Progress::start("simulating");
    // The runs with all cores on, with which the others are compared.
    let mut all_on = BTreeMap::new();
    let mut rows = Vec::new();
    for run in runs {
        let key = (run.cores, run.rt_percent, run.load, run.seed);
        let base: Outcome = match all_on.entry(key) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(place) => {
                let mode = PowerMode::Performance;
                let base = Run {
                    mode,
                    ..run.clone()
                };
                *place.insert(base.simulate(&progress)?)
            }
        };
        let outcome = match run.mode {
            PowerMode::Performance => base,
            PowerMode::Balanced | PowerMode::Saving => run.simulate(&progress)?,
        };
        rows.extend(Row::new(run, outcome, &base));
    }
    drop(progress);
    if args.json {
        let runs: Vec<_> = rows.iter().map(words::json).collect();
        output::json(&json!({ "ok": true, "runs": runs }));
    } else {
        words::show(&rows);
        show_effort(rows.iter().map(|it| &it.outcome), started);
    }
    if let Some(path) = &args.svg {
        picture::draw(&rows, path)?;
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{args, refused};
    use super::*;

    #[test]
    fn each_combination_is_a_run() {
        let line = "--cores 4,64 --guest-cores 4 --power balanced,saving --load 0,50 --seeds 3";
        let all = runs(&args(line)).unwrap();
        assert_eq!(all.len(), 2 * 2 * 5 * 2 * 3);
        assert!(all.iter().all(|it| it.guest_cores == 4));
        let few = runs(&args("--power saving --linux 7,bursts --load 0")).unwrap();
        let loads: Vec<_> = few.iter().map(|it| it.load).collect();
        assert_eq!(loads, [Load::Share(7), Load::Bursts]);
    }

    #[test]
    fn what_has_no_modes_is_refused() {
        assert!(refused("--power full"));
        assert!(refused("--power saving --policy steal"));
        assert!(refused("--power saving --linux 100"));
        assert!(refused("--power saving --linux 0"));
        assert!(refused("--linux idle"));
        // As many cores as the governor knows.
        let large = args("--cores 31 --guest-cores 31 --power saving");
        assert!(runs(&large).is_err());
    }

    #[test]
    fn names_of_loads_are_read_again() {
        for word in ["idle", "1", "99", "full", "bursts"] {
            assert_eq!(load_name(load(word).unwrap()), word);
        }
    }
}
