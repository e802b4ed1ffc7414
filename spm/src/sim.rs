// SPDX-License-Identifier: MIT OR Apache-2.0
//! `spm sim`: simulates, and shows the results.

mod power;

use crate::command::{Command, help};
use crate::failure::Failure;
use crate::outfile;
use crate::output::{self, note, say};
use crate::progress::Progress;
use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser};
use serde_json::{Value, json};
use spumone_bench::plot::{Figure, Line, Lines, Reference};
use spumone_bench::stats::Spread;
use spumone_config::description::POLICIES;
use spumone_core::schedule::Ticks;
use spumone_sim::ideal::Bare;
use spumone_sim::loads::Load;
use spumone_sim::{
    Decisions, End, Failed, Outcome, Setup, Simulation, TICKS_PER_SECOND, TICKS_PER_US,
};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

/// Shown below the help.
const EXAMPLES: &str = "\
Examples:
  spm sim
  spm sim --load 0,10,30,50,70,90 --seeds 5 --svg lhp.svg
  spm sim --cores 4,16,64,256,1024 --guest-cores 4 --policy steal --load 50 --seconds 1
  spm sim --cores 2,4,8,16,31 --guest-cores 31 --policy steal
  spm sim --policy chance --migrations 1000000000
  spm sim --cores 4,16,64 --guest-cores 4 --power balanced,saving --linux idle,25,50,full,bursts --load 0,50
  spm sim --json | jq '.runs[] | {policy, load_percent, time_over_ideal}'";

/// Simulate: the hypervisor's decisions in a model of time, costs and guests, on up to 1,024 cores.
///
/// The code that decides is the hypervisor's own. Every invariant is checked after each event. The processes
/// of SMP guests send each other messages, as hackbench does. A real-time guest takes a share of every 500 ms
/// on the first core of each SMP guest. With --power, cores go off and come on with the load. The policy "chance" moves vCPUs as often as they can move. The same
/// command gives the same numbers on every machine.
#[derive(Args)]
#[command(after_help = help(EXAMPLES))]
pub struct SimArgs {
    /// Cores of the machine.
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "4", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub cores: Vec<u16>,
    /// Cores of each SMP guest [default: all, if there are at most 8; else the largest divisor of them up to 8].
    ///
    /// A machine with fewer cores has one guest on all of them.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=31))]
    pub guest_cores: Option<u16>,
    /// vCPUs of each SMP guest [default: one for each of its cores; with the policy "chance" two].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=31))]
    pub guest_vcpus: Option<u16>,
    /// What is done against lock-holder preemption.
    #[arg(long, value_name = "NAME", value_delimiter = ',', default_value = "none,steal", value_parser = policy_names())]
    pub policy: Vec<String>,
    /// Share of a core that the real-time guest takes, in percent.
    #[arg(long, value_name = "PERCENT", value_delimiter = ',', default_value = "0,50,90", value_parser = clap::value_parser!(u8).range(0..100))]
    pub load: Vec<u8>,
    /// Modes of `[power]`, compared with `performance`, in which all cores stay on. The policy is `steal`, and the period of the real-time guest 10 ms.
    #[arg(long, value_name = "MODE", value_delimiter = ',', value_parser = power::modes(), conflicts_with_all = ["policy", "guest_vcpus", "migrations"])]
    pub power: Vec<String>,
    /// What the SMP guests do with --power: `idle`, a share of their cores in percent, `full`, or `bursts` of 20 ms in each 100 ms.
    #[arg(long, value_name = "LOAD", value_delimiter = ',', default_value = "idle,25,50,full,bursts", requires = "power", value_parser = power::load)]
    pub linux: Vec<Load>,
    /// Virtual seconds of each run.
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub seconds: u32,
    /// Moves of vCPUs after which a run with the policy "chance" ends.
    #[arg(long, value_name = "N", default_value_t = 10_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub migrations: u64,
    /// Seed of all random numbers.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(..=u64::from(u32::MAX)))]
    pub seed: u64,
    /// Make each run with this many seeds, from --seed on.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub seeds: u32,
    /// Draw time over ideal by load into this file: the median over the seeds, and the range. With --power: throughput over core-seconds.
    #[arg(long, value_name = "FILE.svg")]
    pub svg: Option<PathBuf>,
    /// Print the numbers as JSON.
    #[arg(long)]
    pub json: bool,
}

/// The policies as values of `--policy`.
fn policy_names() -> PossibleValuesParser {
    PossibleValuesParser::new(policies().map(PossibleValue::new))
}

/// Not a policy of systems: moves vCPUs by chance, to test the protocol.
const CHANCE: &str = "chance";
/// Most vCPUs of a guest that the hypervisor supports: the size of guests unless `--guest-cores` is given.
const USUAL_GUEST: usize = spumone_config::types::MAX_VCPUS_PER_GUEST;
/// Events between two updates of the progress line.
const EVENTS: u64 = 500_000;

/// The policies that can be simulated, by name.
pub fn policies() -> impl Iterator<Item = &'static str> {
    let of_systems = POLICIES.iter().map(|(name, _)| *name);
    of_systems.chain([CHANCE])
}

fn decisions(name: &str) -> Decisions {
    let policy = POLICIES.iter().find(|(known, _)| *known == name);
    policy.map_or(Decisions::Chance, |(_, policy)| Decisions::Policy(*policy))
}

/// One simulation.
#[derive(Clone)]
struct Run {
    policy: String,
    load_percent: u8,
    setup: Setup,
}

/// Its result.
struct Row {
    run: Run,
    outcome: Outcome,
    /// `None` if no work was measured.
    over_ideal: Option<f64>,
}

impl Command for SimArgs {
    fn run(&self) -> Result<ExitCode, Failure> {
        if let Some(path) = &self.svg {
            // Before the time that the runs take.
            outfile::check(path).map_err(|error| Failure::io("write", path, &error))?;
        }
        if !self.power.is_empty() {
            return power::run(self);
        }
        let runs = runs(self)?;
        let started = Instant::now();
        let progress = Progress::start("simulating");
        let mut rows: Vec<Row> = Vec::new();
        // By number of cores and seed.
        let mut bare = BTreeMap::new();
        for run in runs {
            let guest_cores = run.setup.guest_cores;
            let outcome = execute(&run, &progress, self)?;
            let over_ideal = match run.setup.end {
                End::Migrations(_) => None,
                End::Time(_) => {
                    let bare: &Bare = match bare.entry((guest_cores, run.setup.seed)) {
                        Entry::Occupied(known) => known.into_mut(),
                        Entry::Vacant(place) => {
                            progress.step(format!("a guest alone on {guest_cores} cores"));
                            place.insert(Bare::of(&run.setup).map_err(failure)?)
                        }
                    };
                    let guests = (run.setup.cores / guest_cores) as f64;
                    Some(bare.ideal(run.load_percent) * guests / outcome.throughput().max(1.0))
                }
            };
            rows.push(Row {
                run,
                outcome,
                over_ideal,
            });
        }
        drop(progress);
        if self.json {
            let runs: Vec<_> = rows.iter().map(Row::json).collect();
            output::json(&json!({ "ok": true, "runs": runs }));
        } else {
            show(&rows);
            show_effort(rows.iter().map(|it| &it.outcome), started);
        }
        if let Some(path) = &self.svg {
            draw(&rows, path)?;
        }
        Ok(ExitCode::SUCCESS)
    }

    fn json(&self) -> bool {
        self.json
    }
}

/// All combinations; the size of the machine changes last.
fn runs(args: &SimArgs) -> Result<Vec<Run>, Failure> {
    let mut runs = Vec::new();
    for &cores in &args.cores {
        for policy in &args.policy {
            let is_chance = policy == CHANCE;
            // Moves by chance are not compared by load.
            let loads = match is_chance {
                true => &[Setup::CHURN_PERCENT][..],
                false => &args.load,
            };
            for &load_percent in loads {
                let setup = setup(args, usize::from(cores), policy, load_percent);
                setup
                    .check()
                    .map_err(|error| Failure::environment(error.message).help(error.help))?;
                runs.extend((0..u64::from(args.seeds)).map(|more| Run {
                    policy: policy.clone(),
                    load_percent,
                    setup: Setup {
                        seed: args.seed + more,
                        ..setup
                    },
                }));
            }
        }
    }
    Ok(runs)
}

fn setup(args: &SimArgs, cores: usize, policy: &str, load: u8) -> Setup {
    let guest_cores = guest_cores(args, cores);
    let mut setup = match policy {
        CHANCE => Setup::churn(guest_cores, args.seed, args.migrations),
        _ => Setup::new(guest_cores, decisions(policy), load, args.seed),
    };
    setup.cores = cores;
    if policy != CHANCE {
        setup.end = End::Time(Ticks(u64::from(args.seconds) * TICKS_PER_SECOND));
    }
    if let Some(vcpus) = args.guest_vcpus {
        setup.guest_vcpus = usize::from(vcpus);
    }
    setup
}

/// The cores of each guest of a machine with so many cores.
fn guest_cores(args: &SimArgs, cores: usize) -> usize {
    match args.guest_cores {
        Some(wanted) => usize::from(wanted).min(cores),
        None => usual_guest(cores),
    }
}

/// The largest divisor of `cores` that a guest can have as its cores.
fn usual_guest(cores: usize) -> usize {
    let sizes = (1..=USUAL_GUEST.min(cores)).rev();
    sizes
        .into_iter()
        .find(|size| cores.is_multiple_of(*size))
        .unwrap_or(1)
}

fn execute(run: &Run, progress: &Progress, args: &SimArgs) -> Result<Outcome, Failure> {
    let Run {
        policy,
        load_percent,
        setup,
    } = run;
    let again = format!(
        "--guest-vcpus {} --policy {policy} --load {load_percent} --seconds {} --migrations {}",
        setup.guest_vcpus, args.seconds, args.migrations
    );
    let what = format!("policy {policy}, load {load_percent} %");
    simulate(setup, progress, &what, &again)
}

/// Simulates. `what`: the run in words; `again`: the options that repeat it, without its cores and its seed.
fn simulate(
    setup: &Setup,
    progress: &Progress,
    what: &str,
    again: &str,
) -> Result<Outcome, Failure> {
    let again = |failed| {
        failure(failed).help(format!(
            "`spm sim --cores {} --guest-cores {} {again} --seed {}` repeats it",
            setup.cores, setup.guest_cores, setup.seed
        ))
    };
    let mut simulation = Simulation::new(setup).map_err(failure)?;
    while !simulation.run(EVENTS).map_err(again)? {
        progress.step(format!(
            "{} cores, {what}: {:.0} %, {} moves",
            setup.cores,
            simulation.progress() * 100.0,
            simulation.migrations()
        ));
    }
    Ok(simulation.outcome())
}

fn failure(failed: Failed) -> Failure {
    match failed {
        Failed::Setup(error) => Failure::environment(error.message).help(error.help),
        Failed::Violation(violation) => {
            Failure::environment(format!("an invariant does not hold: {violation}"))
        }
    }
}

impl Row {
    fn json(&self) -> Value {
        let Self {
            run,
            outcome,
            over_ideal,
        } = self;
        let counters = &outcome.counters;
        json!({
            "cores": run.setup.cores,
            "guest_cores": run.setup.guest_cores,
            "guest_vcpus": run.setup.guest_vcpus,
            "policy": run.policy,
            "seed": run.setup.seed,
            "load_percent": run.load_percent,
            "virtual_seconds": outcome.time.0 as f64 / TICKS_PER_SECOND as f64,
            "time_over_ideal": over_ideal,
            "messages": outcome.work.messages,
            "spun_seconds": outcome.work.spun as f64 / TICKS_PER_SECOND as f64,
            "activations": outcome.activations,
            "longest_dispatch_instructions": outcome.longest_dispatch.0,
            "longest_wait_us": micros(outcome.longest_wait),
            "longest_wait_beside_an_idle_core_us": micros(outcome.longest_wait_beside_idle),
            "events": counters.events,
            "decisions": counters.decisions,
            "switches": counters.switches,
            "migrations": counters.migrations,
            "sendings": counters.sent_away,
            "parkings": counters.parked_count,
            "lost_claims": counters.lost_claims,
            "glances": counters.slots_read,
            "candidates": counters.candidates,
            "tellings": counters.notifications,
            "cores_asked": counters.asked,
            "kicks": counters.kicks,
            "el2_instructions": counters.el2,
        })
    }
}

/// How long the simulations have taken. It is not printed with the results, which are the same on every machine.
fn show_effort<'a>(outcomes: impl Iterator<Item = &'a Outcome>, started: Instant) {
    let (mut moves, mut events) = (0, 0);
    for outcome in outcomes {
        moves += outcome.counters.migrations;
        events += outcome.counters.events;
    }
    let seconds = started.elapsed().as_secs_f64();
    note!("\n{events} events, {moves} moves in {seconds:.1} s of this machine");
}

fn micros(time: Ticks) -> f64 {
    time.0 as f64 / TICKS_PER_US as f64
}

fn show(rows: &[Row]) {
    say!(
        "{:51} | for each {:16} | longest, in µs",
        "",
        "switch, decision, notice"
    );
    say!(
        "cores  guest vCPUs  policy    load  seed  time/ideal      moves |    EL2  kicks   slots  cores asked | dispatch   wait"
    );
    for row in rows {
        let Row {
            run,
            outcome,
            over_ideal,
        } = row;
        let counters = &outcome.counters;
        let over_ideal = over_ideal.map_or("-".to_owned(), |it| format!("{it:.3}"));
        say!(
            "{:5}  {:5} {:5}  {:8}  {:3} %  {:4}  {over_ideal:>10} {:>10} | {:6.0} {:6.2}  {:6.2} {:12.2} | {:8.2} {:6.0}",
            run.setup.cores,
            run.setup.guest_cores,
            run.setup.guest_vcpus,
            run.policy,
            run.load_percent,
            run.setup.seed,
            counters.migrations,
            counters.el2_per_switch(),
            counters.kicks_per_switch(),
            counters.slots_read_per_decision(),
            counters.asked_per_notification(),
            micros(outcome.longest_dispatch),
            micros(outcome.longest_wait),
        );
    }
}

/// Draws time over ideal by load, a line for each machine and policy.
fn draw(rows: &[Row], path: &Path) -> Result<(), Failure> {
    let mut values: BTreeMap<(usize, &str), BTreeMap<u8, Vec<f64>>> = BTreeMap::new();
    for row in rows {
        let line = values
            .entry((row.run.setup.cores, &row.run.policy))
            .or_default();
        let point = line.entry(row.run.load_percent).or_default();
        point.extend(row.over_ideal);
    }
    let lines = values.into_iter().map(|((cores, policy), points)| Line {
        name: format!("{policy}, {cores} cores"),
        points: points
            .into_iter()
            .filter_map(|(load, values)| Some((f64::from(load), Spread::of(values)?)))
            .collect(),
    });
    let figure = Figure::Lines(Lines {
        title: "Messages in a simulated guest, by the load of the real-time guest".into(),
        y_title: "time over ideal; median, and the range over seeds".into(),
        x_title: "load of the real-time guest on one core of each guest, in %".into(),
        lines: lines.filter(|it| !it.points.is_empty()).collect(),
        curves: Vec::new(),
        references: vec![Reference {
            name: "ideal".into(),
            y: 1.0,
        }],
    });
    outfile::write(path, figure.svg()?.as_bytes())
        .map_err(|error| Failure::io("write", path, &error))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: SimArgs,
    }

    fn parsed(line: &str) -> Result<SimArgs, clap::Error> {
        let words = ["sim"].into_iter().chain(line.split_whitespace());
        Line::try_parse_from(words).map(|line| line.args)
    }

    pub(super) fn args(line: &str) -> SimArgs {
        parsed(line).unwrap()
    }

    pub(super) fn refused(line: &str) -> bool {
        parsed(line).is_err()
    }

    #[test]
    fn each_combination_is_a_run() {
        let all = runs(&args("--cores 4,16 --policy none,steal,chance --load 0,50")).unwrap();
        assert_eq!(all.len(), 2 * (2 * 2 + 1));
        assert!(
            all.iter()
                .all(|it| it.setup.guest_cores == it.setup.cores.min(8))
        );
    }

    #[test]
    fn guests_are_as_large_as_possible_by_default() {
        let sizes = [1, 4, 7, 8, 10, 64, 1024].map(usual_guest);
        assert_eq!(sizes, [1, 4, 7, 8, 5, 8, 8]);
        let named = runs(&args("--cores 31 --guest-cores 31")).unwrap();
        assert_eq!(named[0].setup.guest_cores, 31);
    }

    #[test]
    fn impossible_setups_are_refused() {
        assert!(refused("--policy nothing"));
        assert!(refused("--cores 0"));
        assert!(refused("--cores 1025"));
        assert!(refused("--load 100"));
        assert!(refused("--seconds 0"));
        assert!(runs(&args("--cores 10 --guest-cores 4")).is_err());
    }

    #[test]
    fn a_short_run_has_numbers() {
        let args = args("--policy chance --migrations 1000");
        let progress = Progress::start("test");
        let run = runs(&args).unwrap().remove(0);
        let outcome = execute(&run, &progress, &args).unwrap();
        assert!(outcome.counters.migrations >= 1000);
    }
}
