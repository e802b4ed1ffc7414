// SPDX-License-Identifier: MIT OR Apache-2.0
//! The health log: how guests have ended lately, for the operator, and for the guests at the other ends of their links.

use crate::psci::{Generation, StopReason};
use crate::schedule::Ticks;
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use spumone_config::types::{GuestId, MAX_GUESTS};

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
    /// By guest: its last end.
    last: [Entry; MAX_GUESTS],
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
                last: atomics!(Entry {
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
        if let Some(entry) = self.entry(number) {
            entry.write(number, end);
        }
        // A guest has one life at a time, so one core writes here.
        if let Some(entry) = self.last.get(end.guest.index()) {
            entry.write(number, end);
        }
    }

    /// The numbers of the ends that it holds, the oldest first.
    pub fn numbers(&self) -> core::ops::Range<u32> {
        let count = self.count.load(Ordering::Relaxed);
        count.saturating_sub(ENTRIES)..count
    }

    /// The end with this number; `None`: it is being written, or a later one has taken its place.
    pub fn get(&self, number: u32) -> Option<End> {
        let (of, end) = self.entry(number)?.read()?;
        (of == number & NUMBER).then_some(end)
    }

    /// The last end of a life of `guest`; `None`: none has ended, or it is being written.
    pub fn last_of(&self, guest: GuestId) -> Option<End> {
        let (_, end) = self.last.get(guest.index())?.read()?;
        Some(end)
    }

    fn entry(&self, number: u32) -> Option<&Entry> {
        self.entries.get((number % ENTRIES) as usize)
    }
}

impl Entry {
    fn write(&self, number: u32, end: End) {
        self.what.store(0, Ordering::Relaxed);
        // A reader that sees the new time sees that it is being written, too.
        fence(Ordering::Release);
        self.at.store(end.at.0, Ordering::Relaxed);
        // Release: a reader that sees it sees the time with it.
        self.what.store(pack(number, end), Ordering::Release);
    }

    fn read(&self) -> Option<(u32, End)> {
        let what = self.what.load(Ordering::Acquire);
        let at = Ticks(self.at.load(Ordering::Relaxed));
        fence(Ordering::Acquire);
        let is_whole = self.what.load(Ordering::Relaxed) == what;
        unpack(what, at).filter(|_| is_whole)
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
        assert_eq!(log.last_of(GuestId(0)), None);
        for life in 0..50 {
            log.note(end(life));
            let first = (life + 1).saturating_sub(ENTRIES);
            let expected: Vec<_> = (first..=life).map(end).collect();
            assert_eq!(all(&log), expected);
            assert_eq!(log.last_of(end(life).guest), Some(end(life)));
        }
        // Its place was taken.
        assert_eq!(log.get(33), None);
        assert_eq!(log.last_of(GuestId(MAX_GUESTS as u8)), None);
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
