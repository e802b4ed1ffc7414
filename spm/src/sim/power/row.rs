// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a simulation shows of its mode, as numbers.

use super::{Run, mode_name};
use spumone_bench::experiments::energy::{full, least};
use spumone_config::packed::PowerMode;
use spumone_sim::costs::Costs;
use spumone_sim::loads::Load;
use spumone_sim::{Outcome, PowerOutcome, TICKS_PER_SECOND, Times};

/// One simulation and its results.
pub(super) struct Row {
    pub(super) run: Run,
    pub(super) outcome: Outcome,
    /// Work in a second over that with all cores on; `None`: the guests idle.
    pub(super) throughput: Option<f64>,
    /// How many cores work while all are on.
    pub(super) work: f64,
    /// How long the load took, in seconds.
    pub(super) seconds: f64,
    /// How many cores were on, with what changes cost.
    pub(super) on: f64,
    /// How many would have been on if at each time as many were as work while all are on, and at least one of each system.
    pub(super) least: f64,
    /// The least constant number of cores that leaves the mode's reserve; `None`: the load is not constant, or all cores are on in this mode.
    pub(super) with_reserve: Option<u32>,
    pub(super) changes_per_second: f64,
    /// `None`: there is no begin of a load on all cores.
    pub(super) until_all_work: Option<Times>,
    /// `None`: all cores are on in this mode, or the load has no end.
    pub(super) until_one_is_on: Option<Times>,
    /// How long pieces of work took; `None`: there are none.
    pub(super) pieces: Option<Times>,
}

impl Row {
    /// `base`: the same with all cores on. `None` if the power was not measured.
    pub(super) fn new(run: Run, outcome: Outcome, base: &Outcome) -> Option<Self> {
        let (power, all_on) = (outcome.power?, base.power?);
        let systems = run.cores / run.guest_cores;
        // Of all cores, on average.
        let mean = |it: &PowerOutcome, sum: u64| ratio(sum, it.time) * systems as f64;
        let rate = |outcome: &Outcome, power: &PowerOutcome| {
            mean(power, outcome.work.messages + outcome.work.pieces)
        };
        let costs = Costs::SPUMONE;
        let switching = power.went_off * costs.turn_off + power.came_on * costs.turn_on;
        let goes_off = run.mode != PowerMode::Performance;
        let work = mean(&all_on, all_on.works);
        let constant = matches!(run.load, Load::Idle | Load::Share(_));
        let with_reserve = full(mode_name(run.mode)).filter(|_| constant).map(|full| {
            let rt = f64::from(run.rt_percent) / 100.0;
            let of_each = least(work / systems as f64, rt, full, run.guest_cores as u32);
            of_each * systems as u32
        });
        let some = |it: Times| (it.count + it.missed != 0).then_some(it);
        Some(Self {
            throughput: (run.load != Load::Idle)
                .then(|| rate(&outcome, &power) / rate(base, &all_on)),
            work,
            seconds: power.time as f64 / systems as f64 / TICKS_PER_SECOND as f64,
            on: mean(&power, power.on + switching),
            least: mean(&all_on, all_on.least),
            with_reserve,
            changes_per_second: mean(&power, power.went_off + power.came_on)
                * TICKS_PER_SECOND as f64,
            until_all_work: some(power.until_all_work),
            until_one_is_on: some(power.until_one_is_on).filter(|_| goes_off),
            pieces: some(outcome.pieces),
            run,
            outcome,
        })
    }
}

fn ratio(sum: u64, of: u64) -> f64 {
    sum as f64 / of.max(1) as f64
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in super::super) fn row(mode: PowerMode, load: Load) -> Row {
        let run = Run {
            cores: 8,
            guest_cores: 4,
            mode,
            load,
            rt_percent: 0,
            seconds: 1,
            seed: 1,
        };
        let outcome = spumone_sim::simulate(&run.setup()).unwrap();
        let all_on = Run {
            mode: PowerMode::Performance,
            ..run.clone()
        };
        let base = spumone_sim::simulate(&all_on.setup()).unwrap();
        Row::new(run, outcome, &base).unwrap()
    }

    #[test]
    fn numbers_are_those_of_the_whole_machine() {
        let row = row(PowerMode::Saving, Load::Share(25));
        assert!((0.99..1.01).contains(&row.throughput.unwrap()));
        assert!((2.0..2.2).contains(&row.work), "{}", row.work);
        assert!((row.work..2.3).contains(&row.least), "{}", row.least);
        // A core of each system would be full.
        assert_eq!(row.with_reserve, Some(4));
        assert!((3.5..4.5).contains(&row.on), "{}", row.on);
        assert!((0.9..1.1).contains(&row.seconds), "{}", row.seconds);
        assert!(row.until_all_work.is_none());
        assert_eq!(row.until_one_is_on.unwrap().count, 2);
        assert_eq!(row.pieces.unwrap().count, 2 * 4 * 100);
    }

    #[test]
    fn with_all_cores_on_there_is_nothing_to_compare() {
        let row = row(PowerMode::Performance, Load::Bursts);
        assert!((row.throughput.unwrap() - 1.0).abs() < 1e-9);
        assert!((row.on - 8.0).abs() < 1e-9 && row.changes_per_second == 0.0);
        assert_eq!(row.with_reserve, None);
        assert!(row.until_one_is_on.is_none());
        assert_eq!(row.until_all_work.unwrap().count, 20);
    }

    #[test]
    fn what_changes_cost_counts() {
        let row = row(PowerMode::Balanced, Load::Bursts);
        let power = row.outcome.power.unwrap();
        let on = power.on as f64 / power.time as f64 * 2.0;
        // 5 µs for each change.
        let cost = row.changes_per_second * 5e-6;
        assert!(cost > 0.0 && (row.on - on - cost).abs() < 1e-9);
    }
}
