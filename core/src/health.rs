// SPDX-License-Identifier: MIT OR Apache-2.0
//! The health log: how guests have ended lately, for the operator.

use crate::psci::{Generation, StopReason};
use crate::schedule::Ticks;
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use spumone_config::types::GuestId;

/// How many ends it holds: the last ones.
pub const ENTRIES: u32 = 16;

/// The end of a guest's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// When it ended: from then on the guest is being stopped.
    pub at: Ticks,
    /// The guest.
    pub guest: GuestId,
    /// Which of its lives ended.
    pub life: Generation,
    /// Why.
    pub reason: StopReason,
}

/// The last ends. The core that begins to stop a guest writes one, and several cores may at the same time. The console's core reads them.
#[derive(Debug)]
pub struct HealthLog {
    /// How many were written, or begun.
    count: AtomicU32,
    entries: [Entry; ENTRIES as usize],
}

#[derive(Debug)]
struct Entry {
    /// Life, number of the end (its lower 24 bits; in [`NUMBER`]), guest and reason; 0: it is being written.
    what: AtomicU64,
    at: AtomicU64,
}

const LIFE_SHIFT: u32 = 32;
const NUMBER_SHIFT: u32 = 8;
const NUMBER: u32 = 0xff_ffff;
const GUEST_SHIFT: u32 = 4;
const NIBBLE: u32 = 0xf;

impl HealthLog {
    constructor! {
        /// No ends.
        pub fn new() -> Self {
            Self {
                count: AtomicU32::new(0),
                entries: atomics!(Entry {
                    what: AtomicU64::new(0),
                    at: AtomicU64::new(0),
                }),
            }
        }
    }

    /// Notes the end of a life.
    pub fn note(&self, end: End) {
        // Relaxed: it only shares the places out. A core that writes is not interrupted; the others do not stop
        // `ENTRIES` guests meanwhile.
        let number = self.count.fetch_add(1, Ordering::Relaxed);
        let Some(entry) = self.entry(number) else {
            return;
        };
        entry.what.store(0, Ordering::Relaxed);
        // A reader that sees the new time sees that it is being written, too.
        fence(Ordering::Release);
        entry.at.store(end.at.0, Ordering::Relaxed);
        // Release: a reader that sees it sees the time with it.
        entry.what.store(pack(number, end), Ordering::Release);
    }

    /// The numbers of the ends that it holds, the oldest first.
    pub fn numbers(&self) -> core::ops::Range<u32> {
        let count = self.count.load(Ordering::Relaxed);
        count.saturating_sub(ENTRIES)..count
    }

    /// The end with this number; `None`: it is being written, or a later one has taken its place.
    pub fn get(&self, number: u32) -> Option<End> {
        let entry = self.entry(number)?;
        let what = entry.what.load(Ordering::Acquire);
        let at = Ticks(entry.at.load(Ordering::Relaxed));
        fence(Ordering::Acquire);
        let is_whole = entry.what.load(Ordering::Relaxed) == what;
        let (of, end) = unpack(what, at)?;
        (is_whole && of == number & NUMBER).then_some(end)
    }

    fn entry(&self, number: u32) -> Option<&Entry> {
        self.entries.get((number % ENTRIES) as usize)
    }
}

/// Not zero: no reason has the number 0 here.
fn pack(number: u32, end: End) -> u64 {
    let guest = u32::from(end.guest.0) & NIBBLE;
    let low = (number & NUMBER) << NUMBER_SHIFT | guest << GUEST_SHIFT | (end.reason as u32 + 1);
    u64::from(end.life.0) << LIFE_SHIFT | u64::from(low)
}

fn unpack(what: u64, at: Ticks) -> Option<(u32, End)> {
    let low = what as u32;
    let reason = (low & NIBBLE).checked_sub(1)?;
    let end = End {
        at,
        guest: GuestId((low >> GUEST_SHIFT & NIBBLE) as u8),
        life: Generation((what >> LIFE_SHIFT) as u32),
        reason: *StopReason::ALL.get(reason as usize)?,
    };
    Some((low >> NUMBER_SHIFT, end))
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use std::vec::Vec;

    fn end(life: u32) -> End {
        End {
            at: Ticks(u64::from(life) * 1000),
            guest: GuestId((life % 8) as u8),
            life: Generation(life),
            reason: StopReason::ALL[life as usize % StopReason::ALL.len()],
        }
    }

    fn all(log: &HealthLog) -> Vec<End> {
        log.numbers().filter_map(|number| log.get(number)).collect()
    }

    #[test]
    fn the_last_ends_are_kept_in_order() {
        let log = HealthLog::new();
        assert_eq!(all(&log), []);
        for life in 0..50 {
            log.note(end(life));
            let first = (life + 1).saturating_sub(ENTRIES);
            let expected: Vec<_> = (first..=life).map(end).collect();
            assert_eq!(all(&log), expected);
        }
        // Its place was taken.
        assert_eq!(log.get(33), None);
    }
}

#[cfg(test)]
#[cfg(loom)]
mod loom_tests {
    use super::*;
    use loom::sync::Arc;
    use loom::thread;

    fn end(life: u32) -> End {
        End {
            at: Ticks(life.into()),
            guest: GuestId(1),
            life: Generation(life),
            reason: StopReason::Fault,
        }
    }

    /// A core notes an end in the place of an older one: a core that reads meanwhile gets either of them whole, or none.
    #[test]
    fn no_end_is_torn() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(|| {
            let log = Arc::new(HealthLog::new());
            log.note(end(7));
            // The next one has the same place.
            log.count.store(ENTRIES, Ordering::Relaxed);
            let other = Arc::clone(&log);
            let writer = thread::spawn(move || other.note(end(9)));
            for (number, life) in [(0, 7), (ENTRIES, 9)] {
                assert!(log.get(number).is_none_or(|it| it == end(life)));
            }
            writer.join().unwrap();
            assert_eq!(log.get(ENTRIES), Some(end(9)));
            assert_eq!(log.get(0), None);
        });
    }
}
