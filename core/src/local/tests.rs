// SPDX-License-Identifier: MIT OR Apache-2.0
//! A guest with a few pages more than there are frames, which reads and writes, beside a device that changes main memory.

use super::*;
use crate::sha256::{BLOCK, State};
use proptest::prelude::*;
use spumone_config::packed::{Local, MemoryRange};
use std::boxed::Box;
use std::collections::BTreeSet;
use std::vec::Vec;

const PAGES: usize = 24;
const FRAMES: usize = Local::LEAST_FRAMES as usize;
const GUEST: u64 = 0x4000_0000;
const MAIN: u64 = 0x8000_0000;
const LOCAL: u64 = 0x4010_0000;

/// Main memory, and the frames.
struct Memory {
    main: Vec<u8>,
    frames: Vec<u8>,
    frames_at: u64,
    has_instructions: bool,
    forgotten: u32,
}

impl Memory {
    fn place(&mut self, at: u64) -> &mut [u8] {
        let (bytes, start) = match at.checked_sub(MAIN) {
            Some(offset) => (&mut self.main, offset),
            None => (&mut self.frames, at - self.frames_at),
        };
        &mut bytes[start as usize..]
    }
}

impl Engine for Memory {
    fn has_instructions(&self) -> bool {
        self.has_instructions
    }

    fn copy_and_hash(&mut self, state: &mut State, from: u64, to: Option<PhysAddr>, blocks: u64) {
        for number in 0..blocks {
            let offset = number * BLOCK as u64;
            let mut block = [0; BLOCK];
            let to = to.map(|to| PhysAddr(to.0 + offset));
            self.fetch(&mut block, from + offset, to, BLOCK as u64);
            sha256::compress(state, &[block]);
        }
    }

    fn hash(&mut self, state: &mut State, block: &[u8; BLOCK]) {
        sha256::compress(state, &[*block]);
    }

    fn fetch(&mut self, block: &mut [u8; BLOCK], from: u64, to: Option<PhysAddr>, bytes: u64) {
        let bytes = bytes as usize;
        block[..bytes].copy_from_slice(&self.place(from)[..bytes]);
        if let Some(to) = to {
            self.place(to.0)[..bytes].copy_from_slice(&block[..bytes]);
        }
    }

    fn hash_at(&self, _: u64) -> Hash {
        unreachable!("hashes are in local memory")
    }
}

impl Machine for Memory {
    fn forget_translations(&mut self) {
        self.forgotten += 1;
    }

    fn publish_entries(&mut self) {}

    fn publish_pages(&mut self) {}
}

fn areas() -> LocalAreas {
    let local = Local {
        memory: MemoryRange {
            start: PhysAddr(LOCAL),
            size: Local::least(PAGES as u64 * PAGE),
        },
        list: 0,
        list_hash: Hash::default(),
    };
    local.areas(PAGES as u64 * PAGE).unwrap()
}

/// A guest, and what it takes for its memory.
struct Model {
    paging: Paging,
    memory: Memory,
    shadow: Vec<u8>,
}

impl Model {
    fn new(has_instructions: bool) -> Self {
        let areas = areas();
        let count = (areas.frames.start.0 - LOCAL) / WORD;
        let words: Vec<_> = (0..count).map(|_| AtomicU64::new(0)).collect();
        let main: Vec<u8> = (0..PAGES as u64 * PAGE)
            .map(|n| (n ^ n >> 8) as u8)
            .collect();
        let paging = Paging {
            // Each test leaves some kilobytes.
            words: Box::leak(words.into_boxed_slice()),
            areas,
            memory: Mapping {
                ipa: GuestAddr(GUEST),
                pa: PhysAddr(MAIN),
                size: PAGES as u64 * PAGE,
            },
            hand: 0,
            copying: Copying::Nothing,
            hashing: None,
        };
        for (number, page) in (0..).zip(main.chunks(PAGE as usize)) {
            paging.set_hash(number, &sha256::hash(page, sha256::compress));
        }
        Self {
            paging,
            shadow: main.clone(),
            memory: Memory {
                main,
                frames: std::vec![0; (areas.frames.size) as usize],
                frames_at: areas.frames.start.0,
                has_instructions,
                forgotten: 0,
            },
        }
    }

    /// Where the tables lead: the offset in the frames, if the access does not fault.
    fn walk(&self, page: usize, is_write: bool) -> Option<usize> {
        let entry = self.paging.entry(page as u32);
        let may = entry.is_here() && entry.is_accessed() && (!is_write || entry.is_written());
        let frame = entry.0 & 0xFFFF_FFFF_F000;
        may.then(|| (frame - self.memory.frames_at) as usize)
    }

    /// The guest accesses a byte until it can, with as many steps in between as `patience` says. `Err`: the page that was changed.
    fn access(&mut self, at: usize, write: Option<u8>, patience: usize) -> Result<u8, Changed> {
        let (page, offset) = (at / PAGE as usize, at % PAGE as usize);
        for _ in 0..1000 {
            if let Some(frame) = self.walk(page, write.is_some()) {
                let place = &mut self.memory.frames[frame + offset];
                if let Some(value) = write {
                    *place = value;
                    self.shadow[at] = value;
                }
                return Ok(*place);
            }
            let fault = Fault {
                at: GuestAddr(GUEST + at as u64),
                is_write: write.is_some(),
                is_forbidden: false,
            };
            let access = self.paging.access(fault, &mut self.memory);
            if access == Some(Access::Again) {
                continue;
            }
            assert_eq!(access, Some(Access::Waits));
            for _ in 0..patience {
                match self.paging.step(&mut self.memory) {
                    Step::Changed(changed) => return Err(changed),
                    Step::Brought => break,
                    Step::More | Step::WrittenBack => {}
                    Step::Nothing => panic!("it waits for nothing"),
                }
            }
        }
        panic!("the access is never made");
    }

    fn here(&self) -> BTreeSet<usize> {
        (0..PAGES)
            .filter(|&page| self.paging.entry(page as u32).is_here())
            .collect()
    }
}

#[test]
fn a_page_is_brought_when_it_is_used_and_another_one_makes_room() {
    for has_instructions in [true, false] {
        let mut model = Model::new(has_instructions);
        for page in 0..FRAMES {
            model.access(page * PAGE as usize + 7, None, 1000).unwrap();
        }
        assert_eq!(model.here(), (0..FRAMES).collect());
        assert_eq!(model.memory.forgotten, 0);
        // All were accessed, so the first one goes.
        model.access(FRAMES * PAGE as usize, None, 1000).unwrap();
        assert_eq!(model.here(), (1..=FRAMES).collect());
        assert_eq!(model.memory.forgotten, 1);
        // Pages 1 to 3 have been spared; page 1 is accessed again.
        model.access(PAGE as usize, None, 1000).unwrap();
        model
            .access((FRAMES + 1) * PAGE as usize, None, 1000)
            .unwrap();
        assert!(model.here().contains(&1) && !model.here().contains(&2));
    }
}

#[test]
fn what_the_guest_has_written_is_there_when_the_page_comes_back() {
    let mut model = Model::new(true);
    model.access(5, Some(0xAA), 1000).unwrap();
    for page in 1..PAGES {
        model.access(page * PAGE as usize, None, 1000).unwrap();
    }
    assert!(!model.here().contains(&0));
    assert_eq!(model.memory.main[5], 0xAA);
    assert_eq!(model.access(5, None, 1000), Ok(0xAA));
}

#[test]
fn a_page_that_was_changed_is_never_mapped() {
    let mut model = Model::new(true);
    model.memory.main[3 * PAGE as usize + 1] ^= 0x80;
    let changed = Changed {
        page: GuestAddr(GUEST + 3 * PAGE),
        at: PhysAddr(MAIN + 3 * PAGE),
    };
    assert_eq!(model.access(3 * PAGE as usize, None, 1000), Err(changed));
    assert!(!model.here().contains(&3));
    // Other pages are as before, and so is this one in the next life.
    assert!(model.access(0, None, 1000).is_ok());
    model.memory.main[3 * PAGE as usize + 1] ^= 0x80;
    model.paging.reset();
    assert!(model.access(3 * PAGE as usize, None, 1000).is_ok());
}

#[test]
fn accesses_elsewhere_and_forbidden_ones_are_not_served() {
    let mut model = Model::new(true);
    let fault = |at, is_forbidden| Fault {
        at: GuestAddr(at),
        is_write: true,
        is_forbidden,
    };
    for at in [GUEST - 1, GUEST + PAGES as u64 * PAGE] {
        assert_eq!(
            model.paging.access(fault(at, false), &mut model.memory),
            None
        );
    }
    let refused = model.paging.access(fault(GUEST, true), &mut model.memory);
    assert_eq!(refused, Some(Access::Refused));
    assert!(model.here().is_empty());
}

#[test]
fn addresses_in_frames_are_those_of_the_guest() {
    let mut model = Model::new(true);
    model.access(9 * PAGE as usize, None, 1000).unwrap();
    let frame = model.walk(9, false).unwrap() as u64 + model.memory.frames_at;
    let own = |at| model.paging.own_address(PhysAddr(at));
    assert_eq!(own(frame + 5), Some(GuestAddr(GUEST + 9 * PAGE + 5)));
    assert_eq!(own(frame + PAGE), None);
    assert_eq!(own(MAIN), None);
    assert_eq!(own(LOCAL), None);
}

/// An instruction that needs as many pages at once as one can, in any order, is executed at last.
#[test]
fn an_instruction_that_needs_many_pages_is_executed() {
    const NEEDED: usize = 12;
    for first in 0..PAGES - NEEDED {
        let mut model = Model::new(true);
        for page in 0..PAGES {
            model.access(page * PAGE as usize, Some(1), 1000).unwrap();
        }
        let needed = || first..first + NEEDED;
        let faults = (0..100).find(|_| {
            let missing = needed().find(|&page| model.walk(page, false).is_none());
            if let Some(page) = missing {
                model.access(page * PAGE as usize, None, 1000).unwrap();
            }
            missing.is_none()
        });
        assert!(faults.is_some_and(|it| it <= 3 * NEEDED), "{faults:?}");
    }
}

#[derive(Clone, Copy, Debug)]
enum Action {
    Read(usize),
    Write(usize, u8),
    /// A device changes a byte of main memory.
    Change(usize),
}

fn action() -> impl Strategy<Value = Action> {
    let at = || 0..PAGES * PAGE as usize;
    prop_oneof![
        8 => at().prop_map(Action::Read),
        4 => (at(), any::<u8>()).prop_map(|(at, value)| Action::Write(at, value)),
        1 => at().prop_map(Action::Change),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    /// The guest reads what it has written, whatever a device writes to main memory; only pages that were changed there are refused. An
    /// interrupt may come after any step.
    #[test]
    fn the_guest_never_reads_what_was_changed(
        actions in proptest::collection::vec((action(), 1..80_usize), 1..120),
    ) {
        let mut model = Model::new(true);
        let mut changed = BTreeSet::new();
        for (action, patience) in actions {
            let (at, write) = match action {
                Action::Read(at) => (at, None),
                Action::Write(at, value) => (at, Some(value)),
                Action::Change(at) => {
                    model.memory.main[at] ^= 0x10;
                    changed.insert(at / PAGE as usize);
                    continue;
                }
            };
            match model.access(at, write, patience) {
                Ok(value) => prop_assert_eq!(value, model.shadow[at]),
                Err(refused) => {
                    let page = ((refused.page.0 - GUEST) / PAGE) as usize;
                    prop_assert!(changed.contains(&page));
                    // The guest starts again with what it had, for this test.
                    let range = page * PAGE as usize..(page + 1) * PAGE as usize;
                    model.memory.main[range.clone()].copy_from_slice(&model.shadow[range]);
                    changed.remove(&page);
                }
            }
        }
    }
}
