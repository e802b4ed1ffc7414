// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where the time of all cores went while Linux measured: levels, lock functions, functions.

use super::Table;
use crate::clock::Function;
use crate::results::Outcome;
use crate::stats::Spread;

/// Functions in a row.
const NAMED: usize = 5;
const NS_PER_SECOND: f64 = 1e9;

/// Shares of the time of all cores, from 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shares {
    /// Linux's programs.
    pub programs: f64,
    /// Linux's kernel, without `spinning`; with the little time that it loses by WFE and YIELD elsewhere.
    pub kernel: f64,
    /// In Linux's lock functions.
    pub spinning: f64,
    /// The real-time guest.
    pub rt: f64,
    /// The hypervisor.
    pub hypervisor: f64,
    /// Asleep.
    pub asleep: f64,
}

/// Time of all cores in a profile, in nanoseconds.
fn whole(outcome: &Outcome) -> f64 {
    let profiled = outcome.clock.profiled;
    profiled.to_ns.saturating_sub(profiled.from_ns) as f64 * outcome.clock.cores.len() as f64
}

/// Nanoseconds of these instructions, and of the time lost by WFE and YIELD.
fn ns(outcome: &Outcome, instructions: u64, polled_ns: u64) -> f64 {
    instructions as f64 * 1000.0 / f64::from(outcome.ipus) + polled_ns as f64
}

impl Shares {
    /// The shares of one run; `None` without a profile.
    pub fn of(outcome: &Outcome) -> Option<Self> {
        let whole = whole(outcome);
        let clock = &outcome.clock;
        let ns = |instructions, polled_ns| ns(outcome, instructions, polled_ns);
        // Code at EL1 that is not Linux's is the real-time guest's.
        let unnamed = clock
            .profile
            .iter()
            .find(|it| it.el == 1 && it.function == Function::NO_NAME);
        let rt = unnamed.map_or(0.0, |it| ns(it.instructions, it.polled_ns));
        let spinning = clock.spin.iter();
        let spinning = spinning
            .map(|it| ns(it.instructions, it.polled_ns))
            .fold(0.0, |sum, it| sum + it);
        let profiled = clock.profiled;
        let (programs, hypervisor) = (ns(profiled.el0, 0), ns(profiled.el2, 0));
        let kernel = ns(profiled.el1, profiled.polled_ns) - rt - spinning;
        let asleep = whole - programs - kernel - spinning - rt - hypervisor;
        (whole > 0.0 && !clock.profile.is_empty()).then(|| Self {
            programs: programs / whole,
            kernel: kernel / whole,
            spinning: spinning / whole,
            rt: rt / whole,
            hypervisor: hypervisor / whole,
            asleep: asleep.max(0.0) / whole,
        })
    }
}

/// One share of all seeds, as a cell in per cent.
fn cell(all: &[Shares], part: impl Fn(&Shares) -> f64) -> String {
    let spread = Spread::of(all.iter().map(|it| 100.0 * part(it)));
    spread.map_or("-".into(), |it| it.show(1))
}

/// A row for each run: where the time of its cores went.
pub fn table<'a>(runs: impl Iterator<Item = (String, &'a [Outcome])>) -> Table {
    let mut table = Table::new(
        "Where the time of all cores went while Linux measured, in %",
        &[
            "",
            "Linux's programs",
            "Linux's kernel",
            "Linux waits for a lock",
            "real-time guest",
            "hypervisor",
            "asleep",
        ],
    );
    for (name, outcomes) in runs {
        let shares: Vec<_> = outcomes.iter().filter_map(Shares::of).collect();
        if shares.is_empty() {
            continue;
        }
        table.rows.push(vec![
            name,
            cell(&shares, |it| it.programs),
            cell(&shares, |it| it.kernel),
            cell(&shares, |it| it.spinning),
            cell(&shares, |it| it.rt),
            cell(&shares, |it| it.hypervisor),
            cell(&shares, |it| it.asleep),
        ]);
    }
    table
}

/// A row for each lock function of some runs; a column per run with the share of all cores' time, in per cent.
pub fn locks(title: &str, runs: &[(String, &[Outcome])]) -> Table {
    let mut columns = vec!["function"];
    columns.extend(runs.iter().map(|it| it.0.as_str()));
    let mut table = Table::new(title, &columns);
    let mut names: Vec<&str> = Vec::new();
    for spin in runs
        .iter()
        .flat_map(|it| it.1)
        .flat_map(|it| &it.clock.spin)
    {
        if !names.contains(&spin.function.as_str()) {
            names.push(&spin.function);
        }
    }
    names.sort_unstable();
    for name in names {
        let mut row = vec![format!("`{name}`")];
        for (_, outcomes) in runs {
            let shares = outcomes.iter().map(|outcome| {
                let spin = outcome.clock.spin.iter().find(|it| it.function == name);
                let ns = spin.map_or(0.0, |it| ns(outcome, it.instructions, it.polled_ns));
                100.0 * ns / whole(outcome)
            });
            row.push(Spread::of(shares).map_or("-".into(), |it| it.show(2)));
        }
        if row[1..].iter().any(|it| it != "0.00") {
            table.rows.push(row);
        }
    }
    table
}

/// A row for each run: the functions with most time, of its first seed.
pub fn functions<'a>(runs: impl Iterator<Item = (String, &'a [Outcome])>) -> Table {
    let mut table = Table::new(
        "Functions of the kernel with most time, in % of the time of all cores (first seed)",
        &["", "functions"],
    );
    for (name, outcomes) in runs {
        let Some(outcome) = outcomes.first().filter(|it| !it.clock.profile.is_empty()) else {
            continue;
        };
        let kernel = outcome.clock.profile.iter().filter(|it| it.el == 1);
        let words: Vec<_> = kernel
            .take(NAMED)
            .map(|it| {
                let ns = ns(outcome, it.instructions, it.polled_ns);
                let name = match it.function.as_str() {
                    Function::NO_NAME_UPPER => "entry code without a name".into(),
                    name => format!("`{name}`"),
                };
                format!("{name} {:.1}", 100.0 * ns / whole(outcome))
            })
            .collect();
        table.rows.push(vec![name, words.join(", ")]);
    }
    table
}

/// Seconds in which cores were not asleep, all together; median over seeds.
pub fn busy(outcomes: &[Outcome]) -> Option<f64> {
    let busy = outcomes.iter().filter_map(|outcome| {
        let shares = Shares::of(outcome)?;
        Some((1.0 - shares.asleep) * whole(outcome) / NS_PER_SECOND)
    });
    Some(Spread::of(busy)?.median)
}

/// For sentences: the share of the time of all cores, over all seeds, in lock functions and asleep.
pub fn lost(outcomes: &[Outcome]) -> Option<String> {
    let shares: Vec<_> = outcomes.iter().filter_map(Shares::of).collect();
    (!shares.is_empty()).then(|| {
        format!(
            "waits for locks in {} % of the time of all cores, and sleeps in {} %",
            cell(&shares, |it| it.spinning),
            cell(&shares, |it| it.asleep)
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::{Core, Profiled, Spin};
    use crate::results::samples;

    /// Two cores for 4 µs at 250 instructions per microsecond: the time of 2,000 instructions in all.
    fn profiled(label: &str) -> Outcome {
        let mut outcome = samples::outcome(label, 1, "");
        let core = Core {
            instructions: 0,
            el0: 0,
            el1: 0,
            el2: 0,
            busy_ns: 0,
            polled_ns: 0,
            asleep_ns: 0,
        };
        outcome.clock.cores = vec![core.clone(), core];
        outcome.clock.profiled = Profiled {
            from_ns: 1000,
            to_ns: 5000,
            el0: 200,
            el1: 1000,
            el2: 100,
            polled_ns: 400,
        };
        let function = |name: &str, instructions| Function {
            el: 1,
            function: name.into(),
            instructions,
            polled_ns: 0,
        };
        outcome.clock.profile = vec![
            function("?", 500),
            function("copy", 300),
            function("?upper", 20),
        ];
        outcome.clock.spin = vec![Spin {
            function: "osq_lock".into(),
            entries: 7,
            instructions: 100,
            polled_ns: 400,
            longest_ns: 2_000_000,
        }];
        outcome
    }

    #[test]
    fn shares_add_up() {
        let shares = Shares::of(&profiled("a")).unwrap();
        let expected = Shares {
            programs: 0.1,
            kernel: 0.2,
            spinning: 0.1,
            rt: 0.25,
            hypervisor: 0.05,
            asleep: 0.3,
        };
        for (own, other) in [
            (shares.programs, expected.programs),
            (shares.kernel, expected.kernel),
            (shares.spinning, expected.spinning),
            (shares.rt, expected.rt),
            (shares.hypervisor, expected.hypervisor),
            (shares.asleep, expected.asleep),
        ] {
            assert!((own - other).abs() < 1e-9, "{shares:?}");
        }
    }

    #[test]
    fn who_never_waits_for_a_lock_does_so_in_zero_and_not_in_minus_zero() {
        let mut outcome = profiled("a");
        outcome.clock.spin.clear();
        let outcomes = [outcome];
        let table = table([("a".to_owned(), &outcomes[..])].into_iter());
        assert_eq!(table.rows[0][3], "0.0");
    }

    #[test]
    fn a_run_without_a_profile_has_no_row() {
        let outcomes = [samples::outcome("a", 1, "")];
        assert!(
            table([("a".to_owned(), &outcomes[..])].into_iter())
                .rows
                .is_empty()
        );
        assert!(
            functions([("a".to_owned(), &outcomes[..])].into_iter())
                .rows
                .is_empty()
        );
        assert_eq!(lost(&outcomes), None);
    }

    #[test]
    fn cells_are_in_per_cent() {
        let outcomes = [profiled("a")];
        let run = || [("a".to_owned(), &outcomes[..])];
        assert_eq!(
            table(run().into_iter()).rows,
            [["a", "10.0", "20.0", "10.0", "25.0", "5.0", "30.0"]]
        );
        let mut with_little = profiled("a");
        let mut little = with_little.clock.spin[0].clone();
        little.function = "never_long".into();
        (little.instructions, little.polled_ns) = (0, 0);
        with_little.clock.spin.push(little);
        let all = [("a".to_owned(), &[with_little][..])];
        assert_eq!(locks("", &all).rows, [["`osq_lock`", "10.00"]]);
        assert_eq!(
            functions(run().into_iter()).rows,
            [["a", "`?` 25.0, `copy` 15.0, entry code without a name 1.0"]]
        );
        // 70 % of 8 µs.
        assert!((busy(&outcomes).unwrap() - 5.6e-6).abs() < 1e-9);
        assert_eq!(
            lost(&outcomes).unwrap(),
            "waits for locks in 10.0 % of the time of all cores, and sleeps in 30.0 %"
        );
    }
}
