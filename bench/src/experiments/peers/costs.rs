// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the code below the guests costs: instructions for interrupts and switches, and the time until each side works.

use super::super::Table;
use super::super::beside::Load;
use super::super::exits::{Kind as Exit, mean_of};
use super::runs::wakeup_label;
use super::systems::{Kind, all};
use crate::clock::{MARK_FIRST, MARK_INIT, MARK_THREAD};
use crate::results::{Outcome, Results};
use crate::stats::{Spread, grouped};

const NS_PER_MS: f64 = 1e6;

/// Instructions at EL2 for an interrupt, for an SGI that a guest sends, and for a switch of guests.
pub(super) fn exits_table(results: &Results) -> Table {
    let mut table = Table::new(
        "Mean instructions at EL2 in the wake-up runs beside hackbench, and EL2's share of all instructions",
        &[
            "",
            "an interrupt, the guest stays",
            "the guest sends an SGI",
            "a switch to another guest",
            "share of EL2",
        ],
    );
    for peer in all().filter(|peer| !matches!(peer.kind, Kind::Threads(..))) {
        let label = wakeup_label(peer, Load::Hackbench);
        if results.of(&label).is_empty() {
            continue;
        }
        let kinds = [Exit::Interrupt, Exit::SentSgi, Exit::Switch];
        let means = kinds.map(|it| mean_of(results, &label, it).map_or("-".into(), grouped));
        let mut row = vec![peer.title.to_owned()];
        row.extend(means);
        let share = Spread::of(results.of(&label).iter().map(share_of_el2));
        row.push(share.map_or("-".into(), |it| format!("{:.1} %", it.median * 100.0)));
        table.rows.push(row);
    }
    table
}

/// The share of instructions that the cores executed at EL2.
fn share_of_el2(outcome: &Outcome) -> f64 {
    let (el2, all) = outcome.clock.cores.iter().fold((0, 0), |(el2, all), it| {
        (el2 + it.el2, all + it.instructions)
    });
    el2 as f64 / all.max(1) as f64
}

/// When the real-time side and Linux begin to work, after power on.
pub(super) fn starts_table(results: &Results) -> Table {
    let mut table = Table::new(
        "Milliseconds from power on, Linux idle: to the first period of the real-time side, and to the first process of Linux. With \
         SCHED_FIFO and on KVM, these runs start the real-time side when Linux has booted",
        &["", "first period", "first process"],
    );
    for peer in all() {
        let outcomes = results.of(&wakeup_label(peer, Load::Idle));
        if outcomes.is_empty() {
            continue;
        }
        let first = |mark| {
            let times = outcomes.iter().filter_map(|it| it.clock.first(mark));
            let spread = Spread::of(times.map(|ns| ns as f64 / NS_PER_MS));
            spread.map_or("-".into(), |it| it.show(0))
        };
        let begin = match peer.kind {
            Kind::Threads(..) => MARK_THREAD,
            _ => MARK_FIRST,
        };
        table
            .rows
            .push(vec![peer.title.to_owned(), first(begin), first(MARK_INIT)]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::super::systems::{OTHERS, OWN};
    use super::*;
    use crate::clock::Mark;
    use crate::results::samples;

    #[test]
    fn each_system_has_its_own_begin() {
        let mut results = Results::default();
        for (peer, mark) in [(OWN, MARK_FIRST), (&OTHERS[0], MARK_THREAD)] {
            let mut outcome = samples::outcome(&wakeup_label(peer, Load::Idle), 1, "");
            outcome.clock.marks = [(MARK_INIT, 900), (mark, 20), (mark, 30)]
                .map(|(mark, ms)| Mark {
                    mark,
                    ns: ms * 1_000_000,
                    x0: None,
                })
                .to_vec();
            results.add(outcome);
        }
        let rows = starts_table(&results).rows;
        assert_eq!(rows.len(), 2);
        for row in rows {
            assert_eq!(row[1..], ["20", "900"]);
        }
    }
}
