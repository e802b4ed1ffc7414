// SPDX-License-Identifier: MIT OR Apache-2.0
//! All interleavings of cores that load a guest together.

use super::{Claim, Claims, Phases};
use crate::psci::Generation;
use crate::psci::loom_tests::explore;
use crate::sync::atomic::{AtomicU32, Ordering};
use loom::sync::Arc;
use loom::thread;
use spumone_config::PcpuId;

const OWNER: PcpuId = PcpuId(0);
const HELPER: PcpuId = PcpuId(1);

/// One page, which is cleared and then written twice.
const PHASES: Phases = Phases { ends: [1, 2, 3] };

/// Claims chunks and carries them out, until all are done.
fn until_done(claims: &Claims, core: PcpuId, phases: Phases, carry_out: impl Fn(u32)) {
    loop {
        match claims.claim(core, phases) {
            Claim::Done => return,
            Claim::Wait => thread::yield_now(),
            Claim::Chunk(number) => carry_out(number),
        }
    }
}

struct Machine {
    claims: Claims,
    /// How many chunks were carried out on the page. Relaxed: a core that must see what another one has done sees it because of the
    /// claims.
    page: AtomicU32,
}

impl Machine {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            claims: Claims::new(),
            page: AtomicU32::new(0),
        })
    }

    /// Carries out a claimed chunk.
    fn carry_out(&self, number: u32) {
        assert_eq!(self.page.load(Ordering::Relaxed), number);
        self.page.store(number + 1, Ordering::Relaxed);
        self.claims.finish();
    }

    /// One look for work of a core that has nothing else to do. Returns whether it carried out a chunk.
    fn help(&self) -> bool {
        let Claim::Chunk(number) = self.claims.claim(HELPER, PHASES) else {
            return false;
        };
        self.carry_out(number);
        true
    }

    /// Loads the guest, and looks whether all was done.
    fn load(&self, life: u32) {
        assert!(!self.claims.has_begun(Generation(life)));
        self.page.store(0, Ordering::Relaxed);
        self.claims.begin(Generation(life));
        until_done(&self.claims, OWNER, PHASES, |number| self.carry_out(number));
        assert_eq!(self.page.load(Ordering::Relaxed), PHASES.total());
    }
}

#[test]
fn each_chunk_is_carried_out_once_and_in_the_order_of_phases() {
    let outcomes = explore(|| {
        let machine = Machine::new();
        let helper = {
            let machine = Arc::clone(&machine);
            thread::spawn(move || [machine.help(), machine.help()])
        };
        machine.load(0);
        helper.join().unwrap()
    });
    // The helper comes too late, or does its part.
    for outcome in [[false, false], [true, false], [true, true]] {
        assert!(outcomes.contains(&outcome), "{outcomes:?}");
    }
}

/// Two chunks of one phase at the same time: both must be done before the next phase begins. With two preemptions of a thread at most;
/// with more it takes minutes.
#[test]
fn a_phase_begins_when_all_chunks_of_the_former_one_are_done() {
    const PHASES: Phases = Phases { ends: [2, 4, 4] };
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(|| {
        let machine = Arc::new((Claims::new(), [AtomicU32::new(0), AtomicU32::new(0)]));
        machine.0.begin(Generation(0));
        let load = |core: PcpuId, (claims, pages): &(Claims, [AtomicU32; 2])| {
            until_done(claims, core, PHASES, |number| {
                // Phase 1 writes the pages one by one, phase 2 in the opposite order.
                let (page, before) = [(0, 0), (1, 0), (1, 1), (0, 1)][number as usize];
                let page: &AtomicU32 = &pages[page];
                assert_eq!(page.load(Ordering::Relaxed), before);
                page.store(before + 1, Ordering::Relaxed);
                claims.finish();
            });
            assert!(pages.iter().all(|page| page.load(Ordering::Relaxed) == 2));
        };
        let helper = {
            let machine = Arc::clone(&machine);
            thread::spawn(move || load(HELPER, &machine))
        };
        load(OWNER, &machine);
        helper.join().unwrap();
    });
}

/// A chunk that a core gives back is carried out once, by either of them. With two preemptions of a thread at most.
#[test]
fn a_chunk_that_is_given_back_is_carried_out_once() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(|| {
        let machine = Machine::new();
        let helper = {
            let machine = Arc::clone(&machine);
            thread::spawn(move || {
                if let Claim::Chunk(number) = machine.claims.claim(HELPER, PHASES) {
                    machine.claims.give_back(HELPER, number);
                    machine.help();
                }
            })
        };
        machine.load(0);
        helper.join().unwrap();
    });
}

/// A core may look for work in one life and claim it in the next one.
#[test]
fn a_core_that_looked_for_work_in_a_former_life_does_no_harm_in_the_next_one() {
    let outcomes = explore(|| {
        let machine = Machine::new();
        let helper = {
            let machine = Arc::clone(&machine);
            thread::spawn(move || machine.help())
        };
        machine.load(0);
        machine.load(1);
        helper.join().unwrap()
    });
    assert_eq!(outcomes, [false, true]);
}
