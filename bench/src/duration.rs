// SPDX-License-Identifier: MIT OR Apache-2.0
//! About how long runs take on the host. Nothing is measured by it.

use crate::experiments::{Experiment, seeds_of};
use crate::machine::Run;
use std::time::Duration;

/// How much of [`Run::weight`] one job gets done in a second, on a host core that it has for itself: 50 million
/// instructions. Figures that were made by two jobs on two idle cores went at 100 (`latency`) to 390 (`dhrystone`);
/// this is the middle, so that it is wrong by a factor of two at most.
const WEIGHT_PER_SECOND: f64 = 200.0;

/// Host time to make the runs of an experiment with these seeds, `jobs` at a time, each on a core of its own. To a
/// factor of two.
pub fn of(experiment: &dyn Experiment, runs: &[Run], seeds: &[u32], jobs: usize) -> Duration {
    let of_run = |run| run_weight(run) * seeds_of(experiment, run, seeds).len() as f64;
    let shared = runs.iter().map(of_run).sum::<f64>() / jobs.max(1) as f64;
    let longest = runs.iter().map(run_weight).fold(0.0, f64::max);
    let any = f64::from(u8::from(!seeds.is_empty()));
    Duration::from_secs_f64(shared.max(any * longest) / WEIGHT_PER_SECOND)
}

fn run_weight(run: &Run) -> f64 {
    run.weight as f64
}

/// For people, no finer than it is known: `40 s`, `12 min`, `2.5 h`.
pub fn show(duration: Duration) -> String {
    let seconds = duration.as_secs_f64();
    match seconds {
        ..90.0 => format!("{:.0} s", (seconds / 10.0).ceil().max(1.0) * 10.0),
        90.0..5400.0 => format!("{:.0} min", seconds / 60.0),
        _ => format!("{:.1} h", seconds / 3600.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::{self, Plan};

    fn minutes(name: &str, quick: bool, policies: &[&str]) -> f64 {
        let experiment = experiments::find(name).unwrap();
        let defaults = experiment.about().defaults;
        let plan = Plan {
            quick,
            policies: policies.iter().map(|&it| it.into()).collect(),
            yardstick: None,
            ipus: defaults.ipus,
            quantum: defaults.quantum,
        };
        let runs = experiment.runs(&plan).unwrap();
        of(experiment, &runs, &[1], 2).as_secs_f64() / 60.0
    }

    /// Of one seed on two idle cores of a host, two runs at a time.
    #[test]
    fn it_is_right_to_a_factor_of_two() {
        const ALL: [&str; 7] = [
            "none", "steal", "ondemand", "trap", "delay", "balance", "cosched",
        ];
        for (name, quick, policies, took) in [
            ("lhp", false, &ALL[..], 20.0),
            ("lhp", true, &ALL[..1], 1.5),
            ("latency", false, &ALL[..5], 34.0),
            ("overhead", false, &ALL[..1], 8.0),
            ("timer-on-shared-core", false, &ALL[..1], 4.0),
            ("dhrystone", false, &ALL[..1], 4.0),
            ("priorities", false, &ALL[..1], 3.0),
            ("ipi", false, &ALL[..1], 4.0),
        ] {
            let told = minutes(name, quick, policies);
            assert!(
                (took / 2.0..=took * 2.0).contains(&told),
                "{name}: {told:.1} min told, {took} taken"
            );
        }
    }

    #[test]
    fn one_run_is_not_divided_among_jobs() {
        let experiment = experiments::find("priorities").unwrap();
        let plan = crate::experiments::loads::tests::plan();
        let runs = experiment.runs(&plan).unwrap();
        let of = |runs, seeds, jobs| of(experiment, runs, seeds, jobs);
        assert_eq!(of(&runs[..1], &[1], 1), of(&runs[..1], &[1], 8));
        assert_eq!(
            of(&runs[..1], &[1, 2, 3, 4], 1),
            4 * of(&runs[..1], &[1], 1)
        );
        assert_eq!(of(&[], &[1, 2, 3], 2), Duration::ZERO);
    }

    #[test]
    fn people_are_told_no_more_than_is_known() {
        let shown = |seconds| show(Duration::from_secs(seconds));
        assert_eq!(shown(0), "10 s");
        assert_eq!(shown(47), "50 s");
        assert_eq!(shown(90), "2 min");
        assert_eq!(shown(3000), "50 min");
        assert_eq!(shown(9000), "2.5 h");
    }
}
