// SPDX-License-Identifier: MIT OR Apache-2.0
//! The runs in which a guest changes the mode of `[power]` again and again: whether it did, whether cores went off and on, and whether the
//! real-time guest noticed it.

use super::super::bursts::Bursts;
use super::super::energy::cores::{OFF, ON, TURN_OFF, TURNED_ON, Trace};
use super::super::{Plan, Table, Verdict};
use super::{CORES, Case};
use crate::clock::{MARK_DONE, MARK_MODE};
use crate::linux::Linux;
use crate::machine::{Machine, Order, Run};
use crate::results::{Outcome, Results};
use crate::stats::{Spread, grouped};
use crate::system::{Probe, Rt, System};
use serde_json::{Value, json};

/// The policy that `[power]` needs.
pub(super) const POLICY: &str = "steal";
/// Between two changes of the mode, in milliseconds.
pub(super) const BETWEEN_MS: u32 = 50;
/// The modes, by their numbers in the call.
const MODES: [&str; 3] = ["performance", "balanced", "saving"];
/// CPU 0 is at home on a core that may go off; the guest may use all cores.
const SETTER: [u32; 4] = [3, 0, 1, 2];
/// How much longer than the work takes on bare cores the guests beside Linux run. All guests end by themselves: so the real-time guest counts its
/// periods.
const ROOM: f64 = 1.5;

/// The run. The real-time guest, and the guest that sets the modes, run for longer than Linux.
pub(super) fn run(plan: &Plan, label: String, bursts: Bursts, linux: Linux, seconds: f64) -> Run {
    let Bursts { load, ms } = bursts;
    let seconds = ROOM * (plan.boot_seconds() + seconds);
    let changes = (seconds * 1000.0 / f64::from(BETWEEN_MS)).ceil() as u32;
    let duration = changes * BETWEEN_MS;
    let rt = format!("period=1ms load={load}% burst={ms}ms duration={duration}ms histogram=off");
    let setter = Probe {
        homes: SETTER.to_vec(),
        // Another sequence for each load.
        bootargs: format!(
            "suite=modes changes={changes} ms={BETWEEN_MS} seed={}",
            load + 1
        ),
        sets_power: true,
    };
    Run {
        label,
        machine: Machine::Spumone(System {
            cores: CORES,
            policy: POLICY.into(),
            power: Some(MODES[0].into()),
            rt: vec![Rt::new(rt)],
            linux: Some(linux),
            probe: Some(setter),
            ..System::default()
        }),
        disk_mib: 0,
        clock: plan.clock(None),
        order: Order::Any,
    }
}

pub(super) fn method() -> String {
    format!(
        "Power modes change: a further guest of Linux's priority, whose vCPU may use all cores, changes the mode of `[power]` every {BETWEEN_MS} ms, \
         by a pseudorandom choice. This guest and the real-time guest run for longer than Linux; then the real-time guest says how many of its periods were lost or \
         late. Marks of the clock say when the mode was set, when a core went off and came back, and when the firmware turned one off and on."
    )
}

/// What the clock saw in one run, and what the real-time guest counted.
struct Seen {
    /// How often each mode was set while Linux worked.
    modes: [usize; 3],
    /// How often a core went off and came back by the wish of the governor or of waiting vCPUs, and how often the firmware turned one off and on,
    /// while Linux worked.
    cores: [u32; 4],
    /// The longest wait of the real-time guest, in instructions.
    longest: f64,
    /// Its periods, and those that were lost or late.
    periods: f64,
    missed: f64,
    /// Whether both other guests were still there when Linux ended.
    to_the_end: bool,
}

impl Seen {
    /// `None`: a number is missing.
    fn of(outcome: &Outcome) -> Option<Self> {
        let clock = &outcome.clock;
        let done = clock.first(MARK_DONE)?;
        let changes = clock.marks.iter().filter(|it| it.mark == MARK_MODE);
        let last = changes.clone().map(|it| it.ns).max()?;
        let mut modes = [0; 3];
        for mark in changes.filter(|it| it.ns < done) {
            *modes.get_mut(mark.value()? as usize)? += 1;
        }
        let [by_wish, by_firmware] = [(OFF, ON), (TURN_OFF, TURNED_ON)].map(|(off, on)| {
            let trace = Trace::by(&clock.marks, CORES, off, on);
            trace.changes((0, done))
        });
        Some(Self {
            modes,
            cores: [by_wish.off, by_wish.on, by_firmware.off, by_firmware.on],
            longest: outcome.rt_instructions("max_ns")?,
            periods: outcome.rt("periods")?,
            missed: outcome.rt("lost")? + outcome.rt("late")?,
            // The real-time guest measures for as long as modes change.
            to_the_end: last > done,
        })
    }

    fn changes(&self) -> usize {
        self.modes.iter().sum()
    }

    /// Whether all modes were set, and cores went off and on by the wish and by the firmware.
    fn is_proof(&self) -> bool {
        self.to_the_end
            && self.modes.iter().all(|&it| it > 0)
            && self.cores.iter().all(|&it| it > 0)
    }
}

/// All runs, by load.
pub(super) struct Changes(Vec<(u32, Vec<Option<Seen>>)>);

impl Changes {
    /// Those of these loads; none, if there was no such run.
    pub(super) fn of(loads: &[u32], results: &Results) -> Self {
        let case = Case {
            policy: POLICY.into(),
            modes: true,
        };
        let rows = loads.iter().map(|&load| {
            let outcomes = results.of(&case.label(load)).iter();
            (load, outcomes.map(Seen::of).collect())
        });
        Self(rows.filter(|it: &(u32, Vec<_>)| !it.1.is_empty()).collect())
    }

    fn all(&self) -> impl Iterator<Item = &Seen> {
        self.0.iter().flat_map(|it| it.1.iter().flatten())
    }

    /// The longest wait of the real-time guest in any run, in instructions.
    fn longest(&self) -> f64 {
        self.all().map(|it| it.longest).fold(0.0, f64::max)
    }

    pub(super) fn findings(&self) -> Option<String> {
        self.all().next()?;
        let sum = |value: fn(&Seen) -> f64| grouped(self.all().map(value).sum());
        Some(format!(
            "Policy `{POLICY}`, {} changes of the power mode while Linux worked: a core went off {} times and came back {} times, the firmware turned \
             one off {} times and on {} times. Of {} periods of the real-time guest {} were lost or late, and its longest wait was {} instructions.",
            sum(|it| it.changes() as f64),
            sum(|it| it.cores[0].into()),
            sum(|it| it.cores[1].into()),
            sum(|it| it.cores[2].into()),
            sum(|it| it.cores[3].into()),
            sum(|it| it.periods),
            sum(|it| it.missed),
            grouped(self.longest()),
        ))
    }

    pub(super) fn verdicts(&self) -> Vec<Verdict> {
        let count = self.0.iter().map(|it| it.1.len()).sum::<usize>();
        if count == 0 {
            return Vec::new();
        }
        let proofs = self.all().filter(|it| it.is_proof()).count();
        let missed: f64 = self.all().map(|it| it.missed).sum();
        let are_all_there = self.all().count() == count;
        let of = format!("power modes change every {BETWEEN_MS} ms");
        vec![
            Verdict {
                aim: format!(
                    "{of}: in each run all modes are set, and cores go off and on, until Linux has ended"
                ),
                measured: format!("in {proofs} of {count}"),
                met: Some(proofs == count),
            },
            Verdict {
                aim: format!("{of}: no period of the real-time guest is lost or late"),
                measured: grouped(missed),
                met: Some(are_all_there && missed == 0.0),
            },
        ]
    }

    pub(super) fn table(&self) -> Option<Table> {
        self.all().next()?;
        let row = |(load, seen): &(u32, Vec<Option<Seen>>)| {
            let show = |value: &dyn Fn(&Seen) -> f64| {
                let values = seen.iter().flatten().map(value);
                Spread::of(values).map_or("-".into(), |it| it.show(0))
            };
            let modes = (0..MODES.len()).map(|mode| show(&|it| it.modes[mode] as f64));
            let cores = (0..4).map(|which| show(&|it| it.cores[which].into()));
            [format!("{load} %")]
                .into_iter()
                .chain(modes)
                .chain(cores)
                .chain([show(&|it| it.missed), show(&|it| it.longest)])
                .collect()
        };
        Some(Table {
            title: format!(
                "Policy `{POLICY}` while the power mode changes every {BETWEEN_MS} ms, in a run until Linux has ended: how often each mode is set, cores \
                 go off and on by the governor's wish, and the firmware turns them off and on; and of the real-time guest the periods lost or late, and \
                 the longest wait in instructions"
            ),
            columns: [
                "load",
                MODES[0],
                MODES[1],
                MODES[2],
                "off",
                "on",
                "turned off",
                "turned on",
                "lost or late",
                "longest wait",
            ]
            .map(Into::into)
            .to_vec(),
            rows: self.0.iter().map(row).collect(),
        })
    }

    pub(super) fn summary(&self) -> impl Iterator<Item = (String, Value)> + use<> {
        let value = self.all().next().map(|_| {
            json!({
                "changes": self.all().map(Seen::changes).sum::<usize>(),
                "off": self.all().map(|it| it.cores[0]).sum::<u32>(),
                "turned_off": self.all().map(|it| it.cores[2]).sum::<u32>(),
                "lost_or_late": self.all().map(|it| it.missed).sum::<f64>(),
                "longest_wait": self.longest(),
            })
        });
        value.map(|it| ("modes".into(), it)).into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::energy::cores::tests::{mark, with_value};
    use super::*;
    use crate::experiments::loads::tests::plan;
    use crate::results::samples;

    const MS: u64 = 1_000_000;

    fn outcome(seed: u32, late: u32) -> Outcome {
        let log = format!(
            "rt-result periods=1000 lost=0 late={late} min_ns=400 max_ns=8000\n\
             linux-result scenario=soak ok=1 cyclictest_max_us=1500\n"
        );
        let mut outcome = samples::outcome("steal-modes-load-30", seed, &log);
        outcome.clock.marks = vec![
            with_value(MARK_MODE, 1, 50 * MS),
            mark(3, OFF, 60 * MS),
            mark(3, TURN_OFF, 61 * MS),
            with_value(MARK_MODE, 0, 100 * MS),
            mark(3, TURNED_ON, 101 * MS),
            mark(3, ON, 102 * MS),
            with_value(MARK_MODE, 2, 150 * MS),
            mark(0, MARK_DONE, 160 * MS),
            with_value(MARK_MODE, 1, 200 * MS),
        ];
        outcome
    }

    fn changes(outcomes: impl IntoIterator<Item = Outcome>) -> Changes {
        let mut results = Results::default();
        outcomes.into_iter().for_each(|it| results.add(it));
        Changes::of(&[0, 30], &results)
    }

    fn met(changes: &Changes) -> Vec<Option<bool>> {
        changes.verdicts().iter().map(|it| it.met).collect()
    }

    #[test]
    fn what_was_seen_while_linux_worked_is_the_proof() {
        let changes = changes([outcome(1, 0), outcome(2, 0)]);
        assert_eq!(met(&changes), [Some(true); 2]);
        let row = ["30 %", "1", "1", "1", "1", "1", "1", "1", "0", "2000"];
        assert_eq!(changes.table().unwrap().rows, [row]);
        let said = changes.findings().unwrap();
        assert!(
            said.contains("6 changes") && said.ends_with("2,000 instructions."),
            "{said}"
        );
    }

    #[test]
    fn a_mode_that_was_not_set_a_core_that_stayed_on_and_an_early_end_are_no_proof() {
        for lacks in [OFF, ON, TURN_OFF, TURNED_ON] {
            let mut outcome = outcome(1, 0);
            outcome.clock.marks.retain(|it| it.mark != lacks);
            assert_eq!(met(&changes([outcome])), [Some(false), Some(true)]);
        }
        for ms in [100, 200] {
            let mut outcome = outcome(1, 0);
            outcome.clock.marks.retain(|it| it.ns != ms * MS);
            assert_eq!(met(&changes([outcome])), [Some(false), Some(true)]);
        }
    }

    #[test]
    fn a_period_that_is_late_and_a_run_without_numbers_are_told() {
        let late = changes([outcome(1, 0), outcome(2, 1)]);
        assert_eq!(met(&late), [Some(true), Some(false)]);
        let silent = samples::outcome("steal-modes-load-30", 2, "linux-result ok=1\n");
        let silent = changes([outcome(1, 0), silent]);
        assert_eq!(met(&silent), [Some(false); 2]);
        assert!(met(&changes([])).is_empty());
    }

    #[test]
    fn the_modes_change_for_as_long_as_the_real_time_guest_measures() {
        let bursts = Bursts { load: 60, ms: 500 };
        let run = run(&plan(), "a".into(), bursts, Linux::new(4, "soak", &[]), 4.0);
        let Machine::Spumone(system) = &run.machine else {
            panic!("not a system");
        };
        let probe = system.probe.as_ref().unwrap();
        assert_eq!(probe.bootargs, "suite=modes changes=210 ms=50 seed=61");
        assert!(probe.sets_power && system.power.is_some());
        assert!(system.rt[0].bootargs.contains(" duration=10500ms "));
        assert_eq!(run.end_mark(), None);
    }
}
