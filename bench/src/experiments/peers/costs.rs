// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the code below the guests costs: instructions for interrupts and switches, and the time until each side works.

use super::super::Table;
use super::super::beside::Load;
use super::super::exits::{Kind as Exit, mean_of};
use super::column::Column;
use super::runs::wakeup_label;
use super::systems::{Kind, Peer, all};
use crate::clock::{MARK_FIRST, MARK_INIT, MARK_THREAD};
use crate::results::{Outcome, Results};
use crate::stats::{Spread, grouped};

const NS_PER_MS: f64 = 1e6;

/// The exits to EL2 that are compared, with what they are.
const EXITS: [(Exit, &str); 3] = [
    (Exit::Interrupt, "an interrupt, the guest stays"),
    (Exit::SentSgi, "the guest sends an SGI"),
    (Exit::Switch, "a switch to another guest"),
];

/// Mean instructions at EL2 of one kind of exit, beside hackbench. `None` for a Linux with real-time threads, which has no EL2.
fn exit(results: &Results, peer: &Peer, kind: Exit) -> Option<f64> {
    match peer.kind {
        Kind::Threads(..) => None,
        _ => mean_of(results, &wakeup_label(peer, Load::Hackbench), kind),
    }
}

/// The share of EL2 in all instructions, in per cent, while hackbench runs.
fn share(results: &Results, peer: &Peer) -> Option<Spread> {
    let percent_of_el2 = |outcome: &Outcome| {
        let profiled = &outcome.clock.profiled;
        let all = profiled.el0 + profiled.el1 + profiled.el2;
        profiled.el2 as f64 / all.max(1) as f64 * 100.0
    };
    match peer.kind {
        Kind::Threads(..) => None,
        _ => Spread::of(
            results
                .of(&wakeup_label(peer, Load::Hackbench))
                .iter()
                .map(percent_of_el2),
        ),
    }
}

/// Whether the real-time side starts at power on, without waiting for Linux.
fn starts_at_power_on(peer: &Peer) -> bool {
    matches!(peer.kind, Kind::Spumone(_) | Kind::Xen(_))
}

/// Milliseconds from power on to the first period of the real-time side, Linux idle.
fn first_period(results: &Results, peer: &Peer) -> Option<Spread> {
    let begin = match peer.kind {
        Kind::Threads(..) => MARK_THREAD,
        _ => MARK_FIRST,
    };
    first(results, peer, begin)
}

/// Milliseconds from power on to the first process of Linux.
fn first_process(results: &Results, peer: &Peer) -> Option<Spread> {
    first(results, peer, MARK_INIT)
}

fn first(results: &Results, peer: &Peer, mark: u64) -> Option<Spread> {
    let outcomes = results.of(&wakeup_label(peer, Load::Idle)).iter();
    let times = outcomes.filter_map(|it| it.clock.first(mark));
    Spread::of(times.map(|ns| ns as f64 / NS_PER_MS))
}

/// What is compared.
pub(super) fn columns(results: &Results) -> Vec<Column> {
    let mut columns: Vec<_> = EXITS
        .into_iter()
        .map(|(kind, title)| {
            let name = format!("instructions at EL2, {title}");
            Column::new(name, 0, |peer| Spread::of(exit(results, peer, kind)))
        })
        .collect();
    columns.push(Column::new(
        "share of EL2 in %, hackbench runs",
        1,
        |peer| share(results, peer),
    ));
    columns.push(Column::new("first period in ms", 0, |peer| {
        first_period(results, peer).filter(|_| starts_at_power_on(peer))
    }));
    columns.push(Column::new("first process of Linux in ms", 0, |peer| {
        first_process(results, peer)
    }));
    columns
}

/// Instructions at EL2 for an interrupt, for an SGI that a guest sends, and for a switch of guests.
pub(super) fn exits_table(results: &Results) -> Table {
    let mut table = Table::new(
        "Mean instructions at EL2 in the wake-up runs beside hackbench, from power on; and EL2's share of all instructions while \
         hackbench runs. On KVM, exits of the host's own programs count, too. Where FreeRTOS has a core alone, switches are those of \
         the start",
        &[""],
    );
    table
        .columns
        .extend(EXITS.map(|(_, title)| title.to_owned()));
    table.columns.push("share of EL2".into());
    for peer in all() {
        let Some(share) = share(results, peer) else {
            continue;
        };
        let mut row = vec![peer.title.to_owned()];
        row.extend(EXITS.map(|(kind, _)| exit(results, peer, kind).map_or("-".into(), grouped)));
        row.push(format!("{:.1} %", share.median));
        table.rows.push(row);
    }
    table
}

/// When the real-time side and Linux begin to work, after power on.
pub(super) fn starts_table(results: &Results) -> Table {
    let mut table = Table::new(
        "Milliseconds from power on, Linux idle: to the first period of the real-time side, and to the first process of Linux. With \
         SCHED_FIFO and on KVM, these runs start the real-time side when Linux has booted",
        &["", "first period", "first process"],
    );
    for peer in all() {
        if results.of(&wakeup_label(peer, Load::Idle)).is_empty() {
            continue;
        }
        let show = |it: Option<Spread>| it.map_or("-".into(), |it| it.show(0));
        table.rows.push(vec![
            peer.title.to_owned(),
            show(first_period(results, peer)),
            show(first_process(results, peer)),
        ]);
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
                    core: None,
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
