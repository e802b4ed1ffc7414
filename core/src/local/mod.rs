// SPDX-License-Identifier: MIT OR Apache-2.0
//! A guest that runs from local memory, page by page.
//!
//! Main memory has all pages of the guest, where a device may change them. Local memory, on the chip, has the pages that the guest uses,
//! the hash of each of the others, and the tables that map them. An access to a page that is not there faults: EL2 copies the page into a
//! frame, hashes what it copies, and compares. So the guest never reads or executes what was changed in main memory. If no frame is
//! free, the page of another one makes room; if the guest has written to it, it is written back to main memory first, and hashed anew.
//!
//! Which page makes room: frames are a ring with a hand. A page that was accessed since the hand was there stays, a few times.
//!
//! Source: `spumone-ols-2011.txt`, section 5.1.2, "Hash-Based Integrity Management".

mod entry;
#[cfg(test)]
#[cfg(not(loom))]
mod tests;

use crate::load::{Engine, Expected, Hashing, Subject};
use crate::protect::Changed;
use crate::sha256;
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use entry::Entry;
use spumone_config::packed::{Guest, Hash, LocalAreas, Mapping};
use spumone_config::{GuestAddr, PhysAddr};

const PAGE: u64 = 4096;
const WORD: u64 = 8;
const HASH_WORDS: usize = Hash::SIZE / WORD as usize;
/// How many pages at most keep their frames, for each page that is brought, because the guest has accessed them lately. If more pages kept them, the
/// guest would have more faults, since the next access to each of them faults.
const SPARED: u32 = 4;

/// How many pages were copied, in all lives of a guest. Relaxed: only for the operator.
#[derive(Debug)]
pub struct Counts {
    /// Pages that were brought to local memory.
    pub brought: AtomicU32,
    /// Pages that were written back to main memory.
    pub written_back: AtomicU32,
}

impl Counts {
    constructor! {
        /// None yet.
        pub fn new() -> Self {
            Self {
                brought: AtomicU32::new(0),
                written_back: AtomicU32::new(0),
            }
        }
    }
}

/// How a guest runs from local memory, for the operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// How many pages of it local memory can hold.
    pub frames: u32,
    /// How many it has.
    pub pages: u32,
    /// How many were brought there.
    pub brought: u32,
    /// How many were written back.
    pub written_back: u32,
}

/// How `guest` runs from local memory, if it does.
pub fn progress(guest: &Guest, counts: &Counts) -> Option<Progress> {
    let local = guest.protect.as_ref()?.local?;
    let memory = guest.memory.first()?.size;
    Some(Progress {
        frames: (local.areas(memory)?.frames.size / PAGE) as u32,
        pages: (memory / PAGE) as u32,
        brought: counts.brought.load(Ordering::Relaxed),
        written_back: counts.written_back.load(Ordering::Relaxed),
    })
}

/// What copies pages, and makes changes of tables known to the core.
pub trait Machine: Engine {
    /// What the core has cached of the guest's translations must not be used any more.
    fn forget_translations(&mut self);

    /// Entries that were changed are seen by the next access of the guest.
    fn publish_entries(&mut self);

    /// The same, and what was copied to frames, which may be code.
    fn publish_pages(&mut self);
}

/// Which access of the guest has faulted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The address.
    pub at: GuestAddr,
    /// Whether it was a write.
    pub is_write: bool,
    /// Whether it is a write to a page that the guest must not write.
    pub is_forbidden: bool,
}

impl Fault {
    /// The fault of `guest` at this address of its memory.
    pub fn new(guest: &Guest, at: GuestAddr, is_write: bool) -> Self {
        let protect = guest.protect.as_ref();
        Self {
            at,
            is_write,
            is_forbidden: is_write && protect.is_some_and(|it| it.is_read_only(at, 1)),
        }
    }
}

/// What becomes of an access that has faulted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// The guest executes the instruction again.
    Again,
    /// A page is being brought: see [`Paging::step`]. The guest executes the instruction again after that; or before, after an interrupt.
    Waits,
    /// It is not an access that the guest may do.
    Refused,
}

/// What a step has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A part of what is to be done.
    More,
    /// A page was written back.
    WrittenBack,
    /// Nothing is left: a page was brought.
    Brought,
    /// A page in main memory is not what the guest has left there. It was not mapped.
    Changed(Changed),
    /// Nothing was to be done.
    Nothing,
}

/// A page that is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Wanted {
    page: u32,
    is_write: bool,
}

/// What is being copied.
#[derive(Clone, Copy, Debug)]
enum Copying {
    Nothing,
    /// Page `page` is written back from frame `frame`, to make room.
    Back {
        page: u32,
        frame: u32,
        wanted: Wanted,
    },
    /// A page is brought to a frame.
    Here {
        wanted: Wanted,
        frame: u32,
    },
}

/// The local memory of a guest, whose one vCPU has it. Only for the core that has that vCPU's token.
pub struct Paging {
    /// From the tables to the owners of frames, which follow each other in local memory.
    words: &'static [AtomicU64],
    areas: LocalAreas,
    memory: Mapping,
    /// The frame that is looked at next.
    hand: u32,
    copying: Copying,
    /// Its copy; not in [`Copying`], so that it stays where it is.
    hashing: Option<Hashing>,
}

impl Paging {
    /// Of this guest, if it runs from local memory. `words` returns the words of a range of local memory: from its first byte to the frames.
    pub fn new(
        guest: &Guest,
        words: impl FnOnce(PhysAddr, usize) -> &'static [AtomicU64],
    ) -> Option<Self> {
        let local = guest.protect.as_ref()?.local?;
        let memory = *guest.memory.first()?;
        let areas = local.areas(memory.size)?;
        let count = (areas.frames.start.0 - local.memory.start.0) / WORD;
        Some(Self {
            words: words(local.memory.start, count as usize),
            areas,
            memory,
            hand: 0,
            copying: Copying::Nothing,
            hashing: None,
        })
    }

    /// A life of the guest begins: its memory, the hashes and the tables were [loaded](crate::load).
    pub fn reset(&mut self) {
        self.hand = 0;
        self.copying = Copying::Nothing;
        self.hashing = None;
    }

    /// The guest's own address of an address in a frame.
    pub fn own_address(&self, at: PhysAddr) -> Option<GuestAddr> {
        let offset = at.0.checked_sub(self.areas.frames.start.0)?;
        let owner = self.owner((offset / PAGE) as u32)?;
        Some(GuestAddr(self.address(owner).0 + offset % PAGE))
    }

    /// The guest has made an access that has faulted. Only for an access to its memory; `None` for others.
    pub fn access(&mut self, fault: Fault, machine: &mut impl Machine) -> Option<Access> {
        let page = self.page(fault.at)?;
        if fault.is_forbidden {
            return Some(Access::Refused);
        }
        if !matches!(self.copying, Copying::Nothing) {
            return Some(Access::Waits);
        }
        let entry = self.entry(page);
        if entry.is_here() {
            if !fault.is_write {
                self.set_entry(page, entry.accessed());
                machine.publish_entries();
            } else {
                self.set_entry(page, entry.written());
                // The core may have the entry that forbids the write.
                machine.forget_translations();
            }
            return Some(Access::Again);
        }
        let is_write = fault.is_write;
        self.begin(Wanted { page, is_write }, machine);
        Some(Access::Waits)
    }

    /// Does a step of what is to be done: a few hundred instructions.
    pub fn step(&mut self, machine: &mut impl Machine) -> Step {
        let Some(hashing) = &mut self.hashing else {
            return Step::Nothing;
        };
        let Some(state) = hashing.advance(machine) else {
            return Step::More;
        };
        self.hashing = None;
        match self.copying {
            Copying::Nothing => Step::Nothing,
            Copying::Back {
                page,
                frame,
                wanted,
            } => {
                self.set_hash(page, &sha256::finish(&state));
                self.bring(wanted, frame);
                Step::WrittenBack
            }
            Copying::Here { wanted, frame } => {
                self.copying = Copying::Nothing;
                let Wanted { page, is_write } = wanted;
                if !sha256::is(&state, &self.hash(page)) {
                    return Step::Changed(Changed {
                        page: self.address(page),
                        at: self.main(page),
                    });
                }
                self.set_owner(frame, Some(page));
                self.set_entry(page, Entry::page(self.frame(frame), is_write));
                machine.publish_pages();
                Step::Brought
            }
        }
    }

    /// Makes room for a page, and begins to bring it.
    fn begin(&mut self, wanted: Wanted, machine: &mut impl Machine) {
        let frame = self.next_frame();
        let Some(page) = self.owner(frame) else {
            return self.bring(wanted, frame);
        };
        let is_written = self.entry(page).is_written();
        self.set_owner(frame, None);
        self.set_entry(page, Entry::NONE);
        machine.forget_translations();
        if !is_written {
            return self.bring(wanted, frame);
        }
        self.copying = Copying::Back {
            page,
            frame,
            wanted,
        };
        self.hashing = Some(Hashing::new(
            page,
            Subject {
                from: self.frame(frame).0,
                to: Some(self.main(page)),
                size: PAGE,
                expected: Expected::Nothing,
            },
        ));
    }

    fn bring(&mut self, wanted: Wanted, frame: u32) {
        self.copying = Copying::Here { wanted, frame };
        self.hashing = Some(Hashing::new(
            wanted.page,
            Subject {
                from: self.main(wanted.page).0,
                to: Some(self.frame(frame)),
                size: PAGE,
                expected: Expected::Nothing,
            },
        ));
    }

    /// Chooses the frame for a page that is brought: the first frame from the hand on that is free, or that holds a page which the guest has
    /// not accessed since the hand was there. If the guest has accessed all pages that are looked at, it is the first of these frames.
    fn next_frame(&mut self) -> u32 {
        let first = self.hand;
        // At most 5 times: `SPARED`.
        for _ in 0..=SPARED {
            let frame = self.hand;
            self.hand = (frame + 1) % self.frames().max(1);
            let Some(page) = self.owner(frame) else {
                return frame;
            };
            let entry = self.entry(page);
            if !entry.is_accessed() {
                return frame;
            }
            self.set_entry(page, entry.aged());
        }
        self.hand = (first + 1) % self.frames().max(1);
        first
    }

    fn frames(&self) -> u32 {
        (self.areas.frames.size / PAGE) as u32
    }

    fn frame(&self, number: u32) -> PhysAddr {
        PhysAddr(self.areas.frames.start.0 + u64::from(number) * PAGE)
    }

    /// The number of the page that has this address, if it is in the guest's memory.
    fn page(&self, at: GuestAddr) -> Option<u32> {
        let offset = at.0.checked_sub(self.memory.ipa.0)?;
        (offset < self.memory.size).then_some((offset / PAGE) as u32)
    }

    fn address(&self, page: u32) -> GuestAddr {
        GuestAddr(self.memory.ipa.0 + u64::from(page) * PAGE)
    }

    /// Where a page is in main memory.
    fn main(&self, page: u32) -> PhysAddr {
        PhysAddr(self.memory.pa.0 + u64::from(page) * PAGE)
    }

    // What is in local memory. The core's own walks of the tables, and the cores that have loaded the guest before its vCPU runs, are ordered by
    // barriers (`Machine`, `load`); so all accesses are relaxed.

    fn word(&self, area: PhysAddr, number: usize) -> Option<&AtomicU64> {
        let offset = area.0 - self.areas.tables.start.0;
        self.words.get((offset / WORD) as usize + number)
    }

    fn entry(&self, page: u32) -> Entry {
        let word = self.word(self.areas.tables.start, page as usize);
        word.map_or(Entry::NONE, |it| Entry(it.load(Ordering::Relaxed)))
    }

    fn set_entry(&self, page: u32, entry: Entry) {
        if let Some(word) = self.word(self.areas.tables.start, page as usize) {
            word.store(entry.0, Ordering::Relaxed);
        }
    }

    /// The page in a frame: a word is 0 for none, or the number of the page and 1.
    fn owner(&self, frame: u32) -> Option<u32> {
        let word = self.word(self.areas.owners.start, frame as usize)?;
        (word.load(Ordering::Relaxed) as u32).checked_sub(1)
    }

    fn set_owner(&self, frame: u32, page: Option<u32>) {
        if let Some(word) = self.word(self.areas.owners.start, frame as usize) {
            let value = page.map_or(0, |page| u64::from(page) + 1);
            word.store(value, Ordering::Relaxed);
        }
    }

    fn hash(&self, page: u32) -> Hash {
        let mut hash = Hash::default();
        let (places, _) = hash.0.as_chunks_mut::<{ WORD as usize }>();
        let words = (page as usize * HASH_WORDS..).zip(places);
        // At most 4 times: words of a hash.
        for (number, place) in words {
            let word = self.word(self.areas.hashes.start, number);
            *place = word
                .map_or(0, |it| it.load(Ordering::Relaxed))
                .to_le_bytes();
        }
        hash
    }

    fn set_hash(&self, page: u32, hash: &Hash) {
        let (values, _) = hash.0.as_chunks::<{ WORD as usize }>();
        // At most 4 times: words of a hash.
        for (number, value) in (page as usize * HASH_WORDS..).zip(values) {
            if let Some(word) = self.word(self.areas.hashes.start, number) {
                word.store(u64::from_le_bytes(*value), Ordering::Relaxed);
            }
        }
    }
}
