// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which cores were on in a run, and when: by its marks.

use crate::clock::Mark;
use std::collections::BTreeSet;

/// The marks of the hypervisor when a core goes off, and when one that is off comes back because it is wanted (`hypervisor/src/steps.rs`).
pub(crate) const OFF: u64 = 0xfe01;
pub(crate) const ON: u64 = 0xfe02;
/// Those when the firmware turns a core off, and when it has turned it on again.
pub(crate) const TURN_OFF: u64 = 0xfe03;
pub(crate) const TURNED_ON: u64 = 0xfe04;
/// Those of Linux (`guests/linux/programs/mark.h`): a thread begins a piece of work, and has done it; so many CPUs are online now.
pub(super) const PIECE: u64 = 3;
pub(super) const PIECE_DONE: u64 = 4;
pub(super) const ONLINE: u64 = 5;
/// It begins to idle after its load.
pub(super) const RESTS: u64 = 6;

/// From one time to another, in nanoseconds.
pub(crate) type Span = (u64, u64);

/// How many cores were on, from power on to the end of a run.
pub(crate) struct Trace {
    /// How many were on at first, from time 0.
    cores: u32,
    /// When that changed, in the order of time, and how many were on then.
    changes: Vec<(u64, u32)>,
}

impl Trace {
    /// That of a run on so many cores. If the firmware turns cores off, what it says counts: a core may be turned on for something that came for it
    /// although it is not wanted. Otherwise a core that was off and had something to decide counts as off meanwhile.
    pub(super) fn of(marks: &[Mark], cores: u32) -> Self {
        let by_firmware = marks.iter().any(|it| it.mark == TURN_OFF);
        match by_firmware {
            true => Self::by(marks, cores, TURN_OFF, TURNED_ON),
            false => Self::by(marks, cores, OFF, ON),
        }
    }

    /// The same, by these marks.
    pub(crate) fn by(marks: &[Mark], cores: u32, goes_off: u64, comes_on: u64) -> Self {
        // Cores execute in turns, so marks of different cores may be up to a quantum out of order.
        let mut marks: Vec<_> = marks.iter().collect();
        marks.sort_by_key(|it| it.ns);
        let mut off = BTreeSet::new();
        let mut on = cores;
        let mut changes = Vec::new();
        for mark in marks {
            let now = match (mark.mark, mark.core) {
                (it, Some(core)) if it == goes_off => {
                    off.insert(core);
                    cores.saturating_sub(off.len() as u32)
                }
                (it, Some(core)) if it == comes_on => {
                    off.remove(&core);
                    cores.saturating_sub(off.len() as u32)
                }
                (ONLINE, _) => mark.value().map_or(on, |it| it as u32),
                _ => on,
            };
            if now != on {
                on = now;
                changes.push((mark.ns, on));
            }
        }
        Self { cores, changes }
    }

    /// The parts of a span between changes: from, to, and how many cores were on.
    fn parts(&self, (from, to): Span) -> impl Iterator<Item = (u64, u64, u32)> {
        let begins = [(0, self.cores)]
            .into_iter()
            .chain(self.changes.iter().copied());
        let ends = self.changes.iter().map(|it| it.0).chain([u64::MAX]);
        begins
            .zip(ends)
            .map(move |((begin, on), end)| (begin.max(from), end.min(to), on))
            .filter(|(begin, end, _)| begin < end)
    }

    /// How many cores were on, on average.
    pub(super) fn mean(&self, span: Span) -> f64 {
        let on: f64 = self
            .parts(span)
            .map(|(from, to, on)| (to - from) as f64 * f64::from(on))
            .sum();
        on / span.1.saturating_sub(span.0).max(1) as f64
    }

    /// How often a core went off, and how often one came on.
    pub(crate) fn changes(&self, (from, to): Span) -> Changes {
        let mut before = self.cores;
        let mut all = Changes::default();
        for &(ns, on) in &self.changes {
            if (from..to).contains(&ns) {
                all.off += before.saturating_sub(on);
                all.on += on.saturating_sub(before);
            }
            before = on;
        }
        all
    }

    /// How many cores were on at this time.
    pub(super) fn at(&self, ns: u64) -> u32 {
        let before = self.changes.iter().rev().find(|it| it.0 <= ns);
        before.map_or(self.cores, |it| it.1)
    }

    /// How long after the begin of a span so many cores were on first; `None`: they were not before its end.
    pub(super) fn until(&self, span: Span, cores: u32) -> Option<u64> {
        let found = self.parts(span).find(|it| it.2 == cores);
        found.map(|(from, ..)| from - span.0)
    }
}

/// How often cores changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Changes {
    /// How often one went off.
    pub(crate) off: u32,
    /// How often one came on.
    pub(crate) on: u32,
}

/// When pieces of work with the same number began and were done: from the first thread's begin to the last one's end, in the order
/// of their numbers.
pub(super) fn pieces(marks: &[Mark]) -> Vec<Span> {
    let mut spans = std::collections::BTreeMap::new();
    for mark in marks {
        let (PIECE | PIECE_DONE, Some(number)) = (mark.mark, mark.value()) else {
            continue;
        };
        let (from, to) = spans.entry(number).or_insert((u64::MAX, 0));
        match mark.mark {
            PIECE => *from = mark.ns.min(*from),
            _ => *to = mark.ns.max(*to),
        }
    }
    spans.into_values().filter(|(from, to)| from < to).collect()
}

/// The least possible: the smallest number of whole cores that carry a load without being fuller than this share of the time that the
/// real-time guest leaves. `load`: the whole of it, with the share `rt` of a core that the real-time guest takes, in cores.
pub fn least(load: f64, rt: f64, full: f64, cores: u32) -> u32 {
    let fits = |&count: &u32| load - rt <= full * (f64::from(count) - rt);
    (1..cores).find(fits).unwrap_or(cores)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn mark(core: u32, mark: u64, ns: u64) -> Mark {
        Mark {
            mark,
            core: Some(core),
            ns,
            x0: None,
        }
    }

    pub(crate) fn with_value(number: u64, value: u64, ns: u64) -> Mark {
        Mark {
            x0: Some(format!("{value:#x}")),
            ..mark(0, number, ns)
        }
    }

    fn marks() -> Vec<Mark> {
        vec![
            mark(3, OFF, 50),
            mark(2, OFF, 120),
            // It had something to decide meanwhile, and went off again.
            mark(2, OFF, 130),
            mark(2, ON, 140),
            mark(3, ON, 250),
            // A quantum out of order.
            mark(1, OFF, 180),
        ]
    }

    #[test]
    fn a_core_is_off_between_its_marks() {
        let trace = Trace::of(&marks(), 4);
        // Core 3 was off all the time, core 2 for a fifth of it, core 1 for another fifth.
        assert!((trace.mean((100, 200)) - 2.6).abs() < 1e-9);
        assert!((trace.mean((300, 400)) - 3.0).abs() < 1e-9);
        assert_eq!(trace.at(119), 3);
        assert_eq!(trace.at(120), 2);
        let all = Trace::of(&[], 4);
        assert!((all.mean((100, 200)) - 4.0).abs() < 1e-9);
        assert_eq!(all.at(7), 4);
    }

    #[test]
    fn changes_count_once_and_only_within_the_span() {
        let trace = Trace::of(&marks(), 4);
        assert_eq!(trace.changes((100, 300)), Changes { off: 2, on: 2 });
        assert_eq!(trace.changes((0, 60)), Changes { off: 1, on: 0 });
    }

    #[test]
    fn the_time_until_cores_are_on_begins_with_the_span() {
        let trace = Trace::of(&marks(), 4);
        assert_eq!(trace.until((125, 400), 3), Some(15));
        assert_eq!(trace.until((125, 400), 2), Some(0));
        assert_eq!(trace.until((125, 400), 4), None);
        assert_eq!(trace.until((0, 400), 4), Some(0));
    }

    #[test]
    fn what_the_firmware_turns_off_counts_if_it_does() {
        let marks = [
            mark(3, OFF, 10),
            mark(3, TURN_OFF, 20),
            // Something came for it.
            mark(3, TURNED_ON, 30),
            mark(3, OFF, 35),
            mark(3, TURN_OFF, 40),
            mark(3, TURNED_ON, 80),
            mark(3, ON, 85),
        ];
        let trace = Trace::of(&marks, 4);
        assert!((trace.mean((0, 100)) - 3.5).abs() < 1e-9);
        assert_eq!(trace.changes((0, 100)), Changes { off: 2, on: 2 });
        assert_eq!(trace.until((50, 100), 4), Some(30));
    }

    #[test]
    fn a_script_says_how_many_cpus_are_online() {
        let trace = Trace::of(&[with_value(ONLINE, 3, 10), with_value(ONLINE, 1, 20)], 4);
        assert_eq!([trace.at(5), trace.at(15), trace.at(25)], [4, 3, 1]);
        assert_eq!(trace.changes((0, 30)), Changes { off: 3, on: 0 });
    }

    #[test]
    fn a_burst_lasts_from_the_first_thread_to_the_last() {
        let marks = [
            with_value(PIECE, 1, 12),
            with_value(PIECE, 1, 10),
            with_value(PIECE_DONE, 1, 30),
            with_value(PIECE, 2, 100),
            with_value(PIECE_DONE, 1, 35),
            // Not done when the run ended.
            with_value(PIECE, 3, 200),
            with_value(PIECE_DONE, 2, 140),
        ];
        assert_eq!(pieces(&marks), [(10, 35), (100, 140)]);
    }

    #[test]
    fn the_least_is_a_whole_number_of_cores_with_a_reserve() {
        assert_eq!(least(0.01, 0.0, 0.8, 4), 1);
        assert_eq!(least(1.02, 0.0, 0.8, 4), 2);
        assert_eq!(least(2.05, 0.0, 0.8, 4), 3);
        assert_eq!(least(4.0, 0.0, 0.8, 4), 4);
        // Half of a core is the real-time guest's: 0.8 of one and a half are more than one.
        assert_eq!(least(1.5, 0.5, 0.8, 4), 2);
        assert_eq!(least(1.8, 0.5, 0.8, 4), 3);
    }
}
