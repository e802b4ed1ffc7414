// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the runs have measured.

use super::super::{Plan, exits};
use super::runs::{KVM_SOCKETS, MEMORY, SOCKETS, transfers};
use crate::clock::Profiled;
use crate::results::{Outcome, Results};
use crate::stats::Spread;

const BYTES_PER_MIB: f64 = 1_048_576.0;
const KIB_PER_MIB: f64 = 1024.0;

/// A round trip that a scenario of Linux reports.
#[derive(Clone, Copy)]
pub(super) struct Trip {
    /// The run.
    label: &'static str,
    /// The fact, in nanoseconds.
    fact: &'static str,
    /// The name on the page.
    pub(super) title: &'static str,
}

impl Trip {
    /// Over the memory link: the shortest of all, and the mean.
    const LEAST: Self = Self {
        label: MEMORY,
        fact: "trip_ns",
        title: "memory link, empty message, shortest",
    };
    pub(super) const MEMORY: Self = Self {
        label: MEMORY,
        fact: "trip_avg_ns",
        title: "memory link, empty message, mean",
    };
    /// Over other links, with what KVM has.
    pub(super) const OTHERS: [Self; 6] = [
        Self {
            label: SOCKETS,
            fact: "round_trip_ns",
            title: "vsock link, 64 bytes",
        },
        Self {
            label: KVM_SOCKETS,
            fact: "round_trip_ns",
            title: "KVM, vsock to the host, 64 bytes",
        },
        Self {
            label: SOCKETS,
            fact: "messages_ns",
            title: "vsock link, a message of 10,000 bytes",
        },
        Self {
            label: KVM_SOCKETS,
            fact: "messages_ns",
            title: "KVM, vsock to the host, 10,000 bytes",
        },
        Self {
            label: SOCKETS,
            fact: "large_ns",
            title: "vsock link, 64 KiB",
        },
        Self {
            label: KVM_SOCKETS,
            fact: "large_ns",
            title: "KVM, vsock to the host, 64 KiB",
        },
    ];

    /// All of them.
    pub(super) fn all() -> impl Iterator<Item = Self> {
        [Self::LEAST, Self::MEMORY].into_iter().chain(Self::OTHERS)
    }
}

/// A round trip in microseconds, over all seeds.
pub(super) fn trip(results: &Results, trip: Trip) -> Option<Spread> {
    let outcomes = results.of(trip.label).iter();
    Spread::of(outcomes.filter_map(|it| Some(it.linux(trip.fact)? / 1000.0)))
}

/// One fact of Linux over another one, over all seeds.
pub(super) fn ratio(results: &Results, label: &str, above: &str, below: &str) -> Option<Spread> {
    let outcomes = results.of(label).iter();
    Spread::of(outcomes.filter_map(|it| Some(it.linux(above)? / it.linux(below)?)))
}

/// A stream in Mbit/s: the facts that have its bytes and its seconds.
pub(super) fn stream(results: &Results, label: &str, bytes: &str, seconds: &str) -> Option<Spread> {
    ratio(results, label, bytes, seconds).map(|it| it.over(1e6 / 8.0))
}

/// TCP between two Linux guests in Mbit/s, of all transfers.
pub(super) fn tcp_rate(results: &Results, label: &str) -> Option<Spread> {
    Spread::of(results.values(label, Outcome::rates))
}

/// The share of the cores' time, in per cent, in which they poll instead of executing or sleeping.
pub(super) fn polled(results: &Results, label: &str, cores: u32) -> Option<Spread> {
    let of = |it: &Outcome| {
        let part = &it.clock.profiled;
        let all = f64::from(cores) * part.to_ns.saturating_sub(part.from_ns) as f64;
        100.0 * part.polled_ns as f64 / all
    };
    Spread::of(results.of(label).iter().map(of))
}

/// Its bytes for each 1,000 instructions that all cores together have executed.
pub(super) fn tcp_efficiency(plan: &Plan, results: &Results, label: &str) -> Option<Spread> {
    let bytes = mib(plan) * BYTES_PER_MIB;
    let of = |it: &Outcome| {
        let Profiled { el0, el1, el2, .. } = it.clock.profiled;
        1000.0 * bytes / (el0 + el1 + el2) as f64
    };
    Spread::of(results.of(label).iter().map(of))
}

/// Its instructions for each KiB at EL0, EL1 and EL2.
pub(super) fn per_level(plan: &Plan, results: &Results, label: &str) -> [Option<Spread>; 3] {
    let kib = mib(plan) * KIB_PER_MIB;
    let levels: [fn(&Profiled) -> u64; 3] = [|it| it.el0, |it| it.el1, |it| it.el2];
    levels.map(|level| {
        let outcomes = results.of(label).iter();
        Spread::of(outcomes.map(|it| level(&it.clock.profiled) as f64 / kib))
    })
}

/// The longest stretch at EL2 without a look for interrupts, in instructions.
pub(super) fn longest_stretch(results: &Results, label: &str) -> Option<u64> {
    let (exits, _) = exits::longest(results, std::iter::once(label))?;
    Some(exits.longest_deaf)
}

/// All MiB of a TCP run that count.
fn mib(plan: &Plan) -> f64 {
    let (runs, mib) = transfers(plan);
    f64::from(runs * mib)
}
