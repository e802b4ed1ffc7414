// SPDX-License-Identifier: MIT OR Apache-2.0
//! The last events of each core, for the epitaph: a small ring buffer, cheap enough to be always on.

use crate::hardware::per_machine;
use crate::sysreg::mrs;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use spumone_config::PcpuId;
use spumone_config::types::MAX_PCPUS;

/// Events kept for each core.
pub const KEPT: usize = 16;

/// The kind of an event, and what its argument is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Event {
    /// A vCPU took the core; its id.
    Dispatch = 1,
    /// The core went idle.
    Idle = 2,
    /// A physical interrupt; its INTID.
    Interrupt = 3,
    /// A synchronous exception of a guest, other than the most frequent ones; its `ESR_EL2`.
    Trap = 4,
    /// Mail from another core.
    Mail = 5,
    /// A core stops a guest; the guest's id.
    Stop = 6,
    /// A guest begins a life; its id.
    Start = 7,
    /// A vCPU came from another core; its id.
    Take = 8,
    /// A vCPU was sent away; its id.
    Send = 9,
}

impl Event {
    /// The name, from the number kept in the ring.
    pub fn name(number: u64) -> &'static str {
        match number {
            1 => "dispatch",
            2 => "idle",
            3 => "interrupt",
            4 => "trap",
            5 => "mail",
            6 => "stop",
            7 => "start",
            8 => "take",
            9 => "send",
            _ => "-",
        }
    }
}

/// One core's ring. Atomics with relaxed order: only the core itself writes, and it is read only by
/// the epitaph. An event of four words lets its address be computed by a shift. Aligned so that
/// no two cores write to one cache line.
#[repr(align(64))]
pub struct Ring {
    /// Kind, argument, time, unused.
    events: [[AtomicU64; 4]; KEPT],
    next: AtomicUsize,
}

per_machine! {
    static RINGS: [Ring; MAX_PCPUS] = [const {
        Ring {
            events: [const { [const { AtomicU64::new(0) }; 4] }; KEPT],
            next: AtomicUsize::new(0),
        }
    }; MAX_PCPUS];
}

impl Ring {
    /// The ring of a core.
    pub fn of(core: PcpuId) -> &'static Self {
        &RINGS[core.index() % MAX_PCPUS]
    }

    /// Notes an event of the calling core, whose ring this is.
    #[inline(always)]
    pub fn note(&self, event: Event, argument: u64) {
        let at = self.next.load(Relaxed);
        let [kind, of, time, _] = &self.events[at % KEPT];
        kind.store(event as u64, Relaxed);
        of.store(argument, Relaxed);
        time.store(mrs!(CNTPCT_EL0), Relaxed);
        self.next.store(at.wrapping_add(1), Relaxed);
    }
}

/// The events of `core`, oldest first, as (kind, argument, counter value).
pub fn last(core: PcpuId) -> impl Iterator<Item = (u64, u64, u64)> {
    let ring = Ring::of(core);
    let next = ring.next.load(Relaxed);
    (0..KEPT).map(move |back| {
        let [kind, of, time, _] = &ring.events[next.wrapping_add(back) % KEPT];
        (kind.load(Relaxed), of.load(Relaxed), time.load(Relaxed))
    })
}
