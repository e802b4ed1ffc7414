// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages between cores, without locks.
//!
//! There is a box for each ordered pair of cores: a ring that one core fills and one core empties, so neither ever
//! waits for the other. A mask for each receiver says which of its boxes may have messages. A core uses its boxes
//! through its [`Port`], of which there is one for each core.
//!
//! To send: [`Port::send`], then `DSB ISHST`, then the SGI of the band concerned
//! ([`kick_sgi`](crate::schedule::kick_sgi)). The SGI is written to a system register, which no memory order covers,
//! hence the barrier. To receive, on any of these SGIs: [`Port::receive`] until `None`. Mail for a lower band is read
//! together with that for a higher one. Mail only for a lower band does not interrupt the running vCPU, because its SGI
//! is masked.
//!
//! No message is missed: a sender first fills the box, then sets its bit in the mask, then kicks. A receiver first
//! clears the bit, then empties the box. If it just misses a message, the message's bit is set and its kick sent after
//! the bit was cleared, so the receiver finds it at that kick.

mod message;
mod ring;

#[cfg(test)]
#[cfg(loom)]
mod loom_tests;
#[cfg(test)]
#[cfg(not(loom))]
mod tests;

pub use message::Message;

use crate::bits::bits;
use crate::sync::atomic::{AtomicU32, Ordering};
use ring::{Line, Ring};
use spumone_config::types::{MAX_GUESTS, MAX_PCPUS, MAX_VCPUS, PcpuId};

/// A box has no room. This cannot happen, see [`CAPACITY`], so it is fatal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// Messages that fit into one box: as many as can be unread by one core at any time.
///
/// A core receives all its mail immediately before it acknowledges that it has taken a guest's vCPUs off
/// ([`acknowledge`](crate::psci::Lifecycle::acknowledge)), and a life of a guest does not end before each of its cores
/// has acknowledged. So the messages about a guest in a core's boxes are at most those that were sent in its present
/// life and at the end of the life before:
/// - for each vCPU two `StartVcpu`, one of each life: a vCPU being started is not started again before
///   its core has received the first message;
/// - for each guest one `StopGuest`, because the next life does not end before this core has acknowledged the end of
///   the present one, and one `RestartGuest`, because a life begins once.
pub const CAPACITY: usize = (2 * MAX_VCPUS + 2 * MAX_GUESTS).next_power_of_two();

/// The boxes between all cores.
#[derive(Debug)]
pub struct Post<const CORES: usize = MAX_PCPUS, const SLOTS: usize = CAPACITY> {
    /// Indexed by receiver, then by sender.
    boxes: [[Ring<SLOTS>; CORES]; CORES],
    /// Indexed by receiver: bit n is set if the box from core n may have messages. Shared by all senders so that the
    /// receiver finds its mail without a look into each box.
    pending: [Line<AtomicU32>; CORES],
    /// Bit n is set once core n has its port.
    taken: AtomicU32,
}

/// A core's access to its boxes, which makes it the only producer and the only consumer of them: neither `Clone` nor
/// `Copy`, handed out once, and used by one core.
#[derive(Debug)]
pub struct Port<'a, const CORES: usize = MAX_PCPUS, const SLOTS: usize = CAPACITY> {
    post: &'a Post<CORES, SLOTS>,
    core: PcpuId,
    /// The core's own mask.
    pending: &'a AtomicU32,
    /// Boxes to be read: bits that were cleared in the pending mask.
    open: u32,
}

impl<const CORES: usize, const SLOTS: usize> Post<CORES, SLOTS> {
    /// The masks have a bit for each core.
    const CORES_FIT_THE_MASK: () = assert!(CORES <= u32::BITS as usize);

    constructor! {
        /// Empty boxes.
        #[expect(
            clippy::new_without_default,
            reason = "made once, as a constant initializer; a copy on the stack would be too large"
        )]
        pub fn new() -> Self {
            let () = Self::CORES_FIT_THE_MASK;
            Self {
                boxes: atomics!(atomics!(Ring::new())),
                pending: atomics!(Line(AtomicU32::new(0))),
                taken: AtomicU32::new(0),
            }
        }
    }

    /// The port of `core`, the first time; `None` later, or if there is no such core.
    pub fn port(&self, core: PcpuId) -> Option<Port<'_, CORES, SLOTS>> {
        let pending = &self.pending.get(core.index())?.0;
        let this = 1 << core.index();
        // Relaxed: only one of two callers sees the bit clear, and nothing else depends on it.
        let taken = self.taken.fetch_or(this, Ordering::Relaxed);
        (taken & this == 0).then_some(Port {
            post: self,
            core,
            pending,
            open: 0,
        })
    }
}

impl<const CORES: usize, const SLOTS: usize> Port<'_, CORES, SLOTS> {
    /// The core whose port this is.
    pub fn core(&self) -> PcpuId {
        self.core
    }

    /// Puts a message into the box towards core `to`, which may be this one. The caller then kicks
    /// that core.
    ///
    /// # Errors
    ///
    /// [`Full`], also if there is no such core.
    pub fn send(&mut self, to: PcpuId, message: Message) -> Result<(), Full> {
        let boxes = self.post.boxes.get(to.index()).ok_or(Full)?;
        let pending = self.post.pending.get(to.index()).ok_or(Full)?;
        boxes.get(self.core.index()).ok_or(Full)?.send(message)?;
        // Release: the core that clears the bit sees the message in the box.
        pending
            .0
            .fetch_or(1 << self.core.index(), Ordering::Release);
        Ok(())
    }

    /// Whether there may be a message for this core: cheaper than [`receive`](Self::receive).
    pub fn has_mail(&self) -> bool {
        // Acquire: as in `receive`.
        self.open != 0 || self.pending.load(Ordering::Acquire) != 0
    }

    /// Removes the next message for this core; those of one sender come in order.
    ///
    /// To be repeated until [`has_mail`](Self::has_mail) returns `false`: the kick for messages that are left has been taken, and there is
    /// no other. `None` alone does not say so, if interrupts were taken between two calls: a box that was empty at the first one may
    /// have a message.
    pub fn receive(&mut self) -> Option<Message> {
        let boxes = self.post.boxes.get(self.core.index())?;
        if self.open == 0 {
            // Acquire: pairs with the release in `send`, also of earlier senders, whose changes of the mask belong to
            // the same release sequence.
            if self.pending.load(Ordering::Acquire) == 0 {
                return None;
            }
            self.open = self.pending.swap(0, Ordering::Acquire);
        }
        // At most 8 times: senders.
        for sender in bits(self.open) {
            if let Some(message) = boxes.get(sender as usize).and_then(Ring::receive) {
                return Some(message);
            }
            self.open &= !(1 << sender);
        }
        None
    }
}
