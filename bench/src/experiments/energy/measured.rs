// SPDX-License-Identifier: MIT OR Apache-2.0
//! What was measured of a case: each quantity, over all seeds.

use super::cores::{Changes, RESTS, Span, Trace, least, pieces};
use super::runs::{CORES, Case, Kind, Load, PERFORMANCE};
use crate::clock::MARK_BEGIN;
use crate::results::{Outcome, Results};
use crate::stats::{Mean, Spread};
use spumone_config::packed::PowerMode;
use spumone_core::power::full_percent;

/// In microseconds: what it costs to turn a core off and on, as the board file says.
pub(super) const OFF_US: u32 = 5;
pub(super) const ON_US: u32 = 5;
const NS_PER_SECOND: f64 = 1e9;
const NS_PER_US: f64 = 1000.0;
const US_PER_MS: f64 = 1000.0;

/// How long something took each time, in milliseconds; `None`: it did not happen in time.
pub(super) type Times = Vec<Option<f64>>;

/// One run.
pub(super) struct Measured {
    case: Case,
    trace: Trace,
    /// From the begin of its load to its end.
    span: Span,
    bursts: Vec<Span>,
    /// When Linux began to idle after its load.
    rests: u64,
    /// When the run ended, in nanoseconds.
    end: u64,
    busy: f64,
}

impl Measured {
    /// A run; `None` if it has no load's begin and end.
    fn of(case: Case, outcome: &Outcome) -> Option<Self> {
        let clock = &outcome.clock;
        let span = (clock.first(MARK_BEGIN)?, clock.last_end()?);
        let profiled = clock.profiled;
        let length = profiled.to_ns.saturating_sub(profiled.from_ns).max(1) as f64;
        let instructions = profiled.el0 + profiled.el1 + profiled.el2;
        let ns = instructions as f64 * NS_PER_US / f64::from(outcome.ipus);
        (span.0 < span.1).then(|| Self {
            case,
            trace: Trace::of(&clock.marks, CORES),
            span,
            bursts: match case.load {
                Load::Bursts => pieces(&clock.marks),
                _ => Vec::new(),
            },
            rests: clock.first(RESTS).unwrap_or(span.1),
            end: clock.virtual_ns,
            busy: (ns + profiled.polled_ns as f64) / length,
        })
    }

    fn seconds(&self) -> f64 {
        (self.span.1 - self.span.0) as f64 / NS_PER_SECOND
    }

    /// How many cores executed, on average, in the last repeat: those that were not in WFI, nor off.
    pub(super) fn busy(&self) -> f64 {
        self.busy
    }

    /// How many cores were on, on average.
    pub(super) fn on(&self) -> f64 {
        match self.case.kind {
            Kind::Bare => self.busy(),
            Kind::Mode(_) | Kind::Hotplug => self.trace.mean(self.span),
        }
    }

    fn changes(&self) -> Changes {
        self.trace.changes(self.span)
    }

    /// How often a core went off or came on, in a second.
    pub(super) fn changes_per_second(&self) -> f64 {
        let Changes { off, on } = self.changes();
        f64::from(off + on) / self.seconds()
    }

    /// What the changes cost, as a share of one core's time.
    pub(super) fn switching(&self) -> f64 {
        let Changes { off, on } = self.changes();
        let us = f64::from(off * OFF_US + on * ON_US);
        us * NS_PER_US / NS_PER_SECOND / self.seconds()
    }

    /// How many cores were on, with the cost of the changes.
    pub(super) fn paid(&self) -> f64 {
        self.on() + self.switching()
    }

    /// The same for the whole work.
    pub(super) fn core_seconds(&self) -> f64 {
        self.paid() * self.seconds()
    }

    /// For each burst that began while a core was off: how long it took from its begin until all cores were on; `None`: not before its end.
    fn until_all(&self) -> Times {
        let bursts = self.bursts.iter();
        let few = bursts.filter(|(from, _)| self.trace.at(*from) < CORES);
        few.map(|&burst| self.trace.until(burst, CORES).map(ms))
            .collect()
    }

    /// After each end of the load: how long it took until one core was on; `None`: not before the load began again, or the run ended.
    fn until_one(&self) -> Times {
        let idle: Vec<Span> = match self.case.load {
            Load::Bursts => {
                let pairs = self.bursts.windows(2);
                let between = pairs.filter_map(|it| Some((it.first()?.1, it.last()?.0)));
                between.chain([(self.rests, self.end)]).collect()
            }
            _ => vec![(self.rests, self.end)],
        };
        let until = |span: Span| self.trace.until(span, 1).map(ms);
        idle.into_iter().map(until).collect()
    }
}

fn ms(ns: u64) -> f64 {
    ns as f64 / NS_PER_US / US_PER_MS
}

/// The runs of a case.
fn all(results: &Results, case: Case) -> Vec<Measured> {
    let outcomes = results.of(&case.label()).iter();
    outcomes.filter_map(|it| Measured::of(case, it)).collect()
}

/// A quantity over all seeds.
pub(super) fn spread(
    results: &Results,
    case: Case,
    value: impl Fn(&Measured) -> f64,
) -> Option<Spread> {
    Spread::of(all(results, case).iter().map(value))
}

/// The times until all cores were on, of all seeds.
pub(super) fn until_all(results: &Results, case: Case) -> Times {
    let all = all(results, case);
    all.iter().flat_map(Measured::until_all).collect()
}

/// The times until one core was on, of all seeds.
pub(super) fn until_one(results: &Results, case: Case) -> Times {
    // Linux alone keeps all CPUs that it has, and idling has no end.
    if case.kind == Kind::Bare || case.load == Load::Idle {
        return Times::new();
    }
    let all = all(results, case);
    all.iter().flat_map(Measured::until_one).collect()
}

/// How many bursts there were, of all seeds.
pub(super) fn bursts(results: &Results, case: Case) -> usize {
    all(results, case).iter().map(|it| it.bursts.len()).sum()
}

/// The longest of these times; `None` if there is none, or one did not happen in time.
pub(super) fn longest(times: &Times) -> Option<f64> {
    let all: Option<Vec<f64>> = times.iter().copied().collect();
    all?.into_iter().reduce(f64::max)
}

/// Times in words: median, the longest, and how many there were none of.
pub(super) fn show(times: &Times) -> String {
    if times.is_empty() {
        return "-".into();
    }
    let missing = times.iter().filter(|it| it.is_none()).count();
    let said = Spread::of(times.iter().flatten().copied())
        .map(|it| format!("{:.2} ms, longest {:.2} ms", it.median, it.high));
    match (said, missing) {
        (None, _) => "never in time".into(),
        (Some(said), 0) => said,
        (Some(said), missing) => format!("{said}, {missing} of {} not in time", times.len()),
    }
}

/// Work done in a second, over that with all cores on: the mean of the seconds with all cores on over each value.
pub(super) fn throughput(results: &Results, case: Case) -> Option<Spread> {
    // Idling is no work.
    if case.load == Load::Idle {
        return None;
    }
    let unit = mean(&results.values(&case.performance().label(), Outcome::seconds))?;
    let seconds = results.values(&case.label(), Outcome::seconds);
    Spread::of(seconds.into_iter().map(|it| unit / it))
}

/// The mean of the work done in a second, over that with all cores on, with its standard error; `None` with less than two values.
pub(super) fn mean_throughput(results: &Results, case: Case) -> Option<Mean> {
    let mean = |case: Case| Mean::of(results.values(&case.label(), Outcome::seconds));
    Some(mean(case.performance())?.over(mean(case)?))
}

fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// The longest wait of the real-time guest over all seeds, in instructions.
pub(super) fn wait(results: &Results, case: Case) -> Option<f64> {
    let outcomes = results.of(&case.label()).iter();
    let waits = outcomes.filter_map(|it| Some(it.instructions(it.clock.longest_wait_ns()? as f64)));
    waits.reduce(f64::max)
}

/// The load of all cores: how many execute while all are on.
pub(super) fn load(results: &Results, case: Case) -> Option<Spread> {
    spread(results, case.performance(), Measured::busy)
}

/// The least number of cores that can carry the load in this mode, with the mode's reserve.
pub(super) fn least_of(results: &Results, case: Case) -> Option<u32> {
    let steady = matches!(case.load, Load::Idle | Load::Share(_));
    let Kind::Mode(mode) = case.kind else {
        return None;
    };
    if !steady || mode == PERFORMANCE {
        return None;
    }
    let load = load(results, case)?.median;
    Some(least(load, f64::from(case.rt) / 100.0, full(mode)?, CORES))
}

/// How full cores may be in a mode, as a share of the time that the real-time guest leaves; `None`: all cores are on in this mode.
pub fn full(mode: &str) -> Option<f64> {
    let mode = match mode {
        "balanced" => PowerMode::Balanced,
        "saving" => PowerMode::Saving,
        _ => return None,
    };
    Some(f64::from(full_percent(mode)) / 100.0)
}

#[cfg(test)]
mod tests {
    use super::super::cores::tests::{mark, with_value};
    use super::super::cores::{OFF, ON, PIECE, PIECE_DONE};
    use super::*;
    use crate::clock::{MARK_END, Profiled};
    use crate::results::samples;

    const CASE: Case = Case {
        load: Load::Bursts,
        rt: 0,
        kind: Kind::Mode("balanced"),
    };
    const MS: u64 = 1_000_000;

    /// Two bursts in 200 ms. Before the first one core is on; the second one has all from the begin. A core is left to the end.
    fn outcome() -> Outcome {
        let mut outcome = samples::linux(&CASE.label(), 1, &[0.2]);
        outcome.clock.virtual_ns = 300 * MS;
        outcome.clock.profiled = Profiled {
            from_ns: 0,
            to_ns: 200 * MS,
            el0: 25_000_000,
            ..Profiled::default()
        };
        let off = [1, 2, 3].map(|core| mark(core, OFF, 0));
        let on = [1, 2, 3].map(|core| mark(core, ON, 11 * MS + u64::from(core)));
        let again = [1, 2, 3].map(|core| mark(core, OFF, 135 * MS + u64::from(core)));
        outcome.clock.marks = [off, on, again].concat();
        outcome.clock.marks.extend([
            mark(0, MARK_BEGIN, 0),
            with_value(PIECE, 1, 10 * MS),
            with_value(PIECE_DONE, 1, 30 * MS),
            with_value(PIECE, 2, 110 * MS),
            with_value(PIECE_DONE, 2, 130 * MS),
            mark(0, MARK_END, 200 * MS),
            mark(0, RESTS, 134 * MS),
        ]);
        outcome
    }

    fn results() -> Results {
        let mut results = Results::default();
        results.add(outcome());
        results.add(samples::linux(&CASE.performance().label(), 1, &[0.19]));
        results
    }

    #[test]
    fn cores_are_paid_for_with_their_changes() {
        let value = |value: fn(&Measured) -> f64| spread(&results(), CASE, value).unwrap().median;
        // Three cores for 124 ms of 200.
        assert!((value(Measured::on) - 2.86).abs() < 1e-6);
        // 25 million instructions at 250 per microsecond are 100 ms.
        assert!((value(Measured::busy) - 0.5).abs() < 1e-9);
        // Six times off, three of which at the begin, and three times on.
        assert!((value(Measured::changes_per_second) - 45.0).abs() < 1e-9);
        let switching = (6.0 * 5.0 + 3.0 * 5.0) / 200_000.0;
        assert!((value(Measured::switching) - switching).abs() < 1e-9);
        let paid = value(Measured::paid) * 0.2;
        assert!((value(Measured::core_seconds) - paid).abs() < 1e-9);
        assert!((throughput(&results(), CASE).unwrap().median - 0.95).abs() < 1e-9);
    }

    #[test]
    fn only_bursts_that_cores_were_off_for_have_to_wait_for_cores() {
        let times = until_all(&results(), CASE);
        assert_eq!(times.len(), 1);
        assert!((times[0].unwrap() - 1.000_003).abs() < 1e-9);
        assert_eq!(bursts(&results(), CASE), 2);
    }

    #[test]
    fn a_load_that_begins_again_before_cores_are_off_is_too_late() {
        let times = until_one(&results(), CASE);
        assert_eq!(times[0], None);
        assert!((times[1].unwrap() - 1.000_003).abs() < 1e-9);
        assert_eq!(longest(&times), None);
        assert_eq!(show(&times), "1.00 ms, longest 1.00 ms, 1 of 2 not in time");
        assert_eq!(longest(&vec![Some(1.0), Some(3.0)]), Some(3.0));
    }

    /// The results of the load are printed before.
    #[test]
    fn after_other_loads_time_counts_from_when_linux_idles() {
        let case = Case {
            load: Load::Full,
            ..CASE
        };
        let mut idles = outcome();
        idles.label = case.label();
        let mut results = Results::default();
        results.add(idles.clone());
        idles.seed = 2;
        idles.clock.marks.retain(|it| it.mark != RESTS);
        results.add(idles);
        let times = until_one(&results, case);
        assert!((times[0].unwrap() - 1.000_003).abs() < 1e-9);
        // Without the mark, that is the end of the measured span.
        assert_eq!(times[1], Some(0.0));
    }

    #[test]
    fn the_costs_are_those_of_the_board_file() {
        let board = include_str!("../../../../boards/qemu-virt.toml");
        let costs = format!("[power]\noff = \"{OFF_US}us\"\non = \"{ON_US}us\"\n");
        assert!(board.contains(&costs), "{costs}");
    }
}
