// SPDX-License-Identifier: MIT OR Apache-2.0
//! Virtio devices of links: their registers, and the frames between them. A frame is that of a network device, or a packet of a
//! socket device.
//!
//! A vCPU that has frames to transmit sets a bit of its guest ([`Guest::due`]). Whichever vCPU of the guest is about to be entered moves
//! frames and passes on the interrupts that are raised for them, so the guest that transmits pays, at its priority. The core
//! looks for interrupts before each piece of work for a frame and before each interrupt that it passes on: an interrupt for a higher band waits
//! for one of those at most. If a vCPU has frames to move and an interrupt to handle, [`Precedence`](spumone_core::virtio::Precedence) says
//! what comes first.

use super::{Instance, loaded};
use crate::cpu;
use crate::guest::Guest;
use crate::links::LinkMemories;
use core::sync::atomic::Ordering;
use spumone_config::GuestId;
use spumone_config::packed::{LinkEnd, LinkKind};
use spumone_config::types::MAX_LINKS_PER_GUEST;
use spumone_core::bits::bits;
use spumone_core::console::Subject;
use spumone_core::psci::Phase;
use spumone_core::trap::{AccessSize, DataAccess};
use spumone_core::vgic::VcpuIndexSet;
use spumone_core::virtio::{Effect, End, Step};

/// Most frames that change nothing for any vCPU, moved between two iterations of the core's loop.
const MAX_QUIET_FRAMES: usize = 32;
/// Bits of [`Guest::due`] for link 0; those of link n are n bits above. Frames may wait to be moved to the peer.
const FRAMES: u32 = 1;
/// The peer is to be told: by a signal over a memory link, because the guest's life has begun; else, because a driver at either end has broken
/// the rules. Worked off before the levels, which it may change.
const TELLS_PEER: u32 = FRAMES << MAX_LINKS_PER_GUEST;
/// The interrupt of the guest's own device has been raised, and its level is to be passed to the virtual GIC.
const OWN_LEVEL: u32 = TELLS_PEER << MAX_LINKS_PER_GUEST;
/// The same for the peer's device.
const PEERS_LEVEL: u32 = OWN_LEVEL << MAX_LINKS_PER_GUEST;
/// In [`Guest::broken_virtio`]: the driver of link 0 has not accepted what frames for it need.
const REFUSES: u32 = 1 << MAX_LINKS_PER_GUEST;

impl Instance {
    /// Emulates an access of the running vCPU to the device of its guest's link `index`. Returns whether the instruction is done:
    /// a reset is tried again as long as another core moves a frame of the device.
    pub(super) fn access_virtio(&mut self, index: usize, offset: u64, access: DataAccess) -> bool {
        let vcpu = loaded(&mut self.state);
        let (id, guest) = (vcpu.guest, vcpu.shared);
        let (Some(end), Some(device)) = (guest.config.links.get(index), guest.virtio.get(index))
        else {
            return true;
        };
        let peer = self.platform.machine.guest(end.peer);
        if !access.write {
            let size = access.size.bytes();
            let value = device.read(offset, size, is_up(peer, end.peer_link.into()));
            let value = access.load_value(value);
            access.register.write(&mut vcpu.registers.x, value);
            return true;
        }
        if access.size != AccessSize::Word {
            return true;
        }
        let value = access.store_value(access.register.read(&vcpu.registers.x));
        match device.write(offset, value as u32) {
            Effect::Nothing => {}
            Effect::Transmit => {
                if vcpu.registers.masks_interrupts() {
                    vcpu.precedence.notified_while_masked();
                }
                transmit(guest, index);
            }
            Effect::Receive => {
                if device.may_answer() {
                    transmit(guest, index);
                }
                if self.goes_on(end.peer, usize::from(end.peer_link)) {
                    self.publish_peers(guest, index, end);
                }
            }
            Effect::Line => self.publish_virtio(id, index),
            Effect::Status => {
                if self.tells_peer(id, index) {
                    self.publish_peers(guest, index, end);
                }
            }
            Effect::Reset => {
                if is_claimed(guest, peer, index, end) {
                    return false;
                }
                device.finish_reset();
                self.publish_virtio(id, index);
                if self.tells_peer(id, index) {
                    self.publish_peers(guest, index, end);
                }
            }
        }
        true
    }

    /// The running vCPU has changed the level of its peer's device: passes it on, unless an interrupt is pending. Then, as in `move_frame`, this
    /// vCPU passes it on when it is entered, or one of the peer does.
    fn publish_peers(&mut self, guest: &Guest, index: usize, end: &LinkEnd) {
        if cpu::interrupt_pending() {
            self.publishes_peers_later(guest, index, end);
        } else {
            self.publish_virtio(end.peer, usize::from(end.peer_link));
        }
    }

    /// The level of the peer's device is to be passed on. Whichever of the two guests comes first does so: this vCPU may be preempted before it can.
    fn publishes_peers_later(&self, guest: &Guest, index: usize, end: &LinkEnd) {
        let peer = self.platform.machine.guest(end.peer);
        peer.due
            .fetch_or(OWN_LEVEL << end.peer_link, Ordering::AcqRel);
        guest.due.fetch_or(PEERS_LEVEL << index, Ordering::AcqRel);
    }

    /// The devices of the running vCPU's guest have something to do: passes interrupts on, and moves frames unless the vCPU has an
    /// interrupt to handle first. Returns whether it is to be entered.
    #[inline(never)]
    pub(super) fn serve_devices(&mut self) -> bool {
        if cpu::interrupt_pending() {
            self.take_interrupts();
            return false;
        }
        if self.pass_levels() {
            return false;
        }
        let guest = loaded(&mut self.state).guest;
        let (has_interrupt, rung) = self.has_deliverable();
        self.notify(guest, rung);
        if has_interrupt {
            if cpu::interrupt_pending() {
                return false;
            }
            if loaded(&mut self.state).precedence.is_frame_first() {
                self.move_frame();
                self.pass_levels();
                if cpu::interrupt_pending() {
                    // It may have stopped the step before its first piece of work.
                    loaded(&mut self.state).precedence.frame_still_waits();
                    return false;
                }
            }
            return true;
        }
        loaded(&mut self.state).precedence.has_no_interrupt();
        for _ in 0..MAX_QUIET_FRAMES {
            if cpu::interrupt_pending() {
                return false;
            }
            if !self.move_frame() {
                break;
            }
        }
        self.pass_levels();
        false
    }

    /// Passes interrupts of the loaded vCPU's guest and its peers on, until an interrupt pends. That is no part of a step, because it takes as
    /// long. Returns whether there were some.
    fn pass_levels(&mut self) -> bool {
        let vcpu = loaded(&mut self.state);
        let (id, guest) = (vcpu.guest, vcpu.shared);
        let mut were_some = false;
        // At most 32 times: 24 bits of `due`, and some that a peer has set again meanwhile.
        for _ in 0..u32::BITS {
            let levels = guest.due.load(Ordering::Relaxed) & !(TELLS_PEER - 1);
            let Some(bit) = bits(levels).next() else {
                break;
            };
            were_some = true;
            if cpu::interrupt_pending() {
                break;
            }
            guest.due.fetch_and(!(1 << bit), Ordering::AcqRel);
            let index = bit as usize % MAX_LINKS_PER_GUEST;
            let Some(end) = guest.config.links.get(index) else {
                continue;
            };
            match 1 << bit {
                PEERS_LEVEL.. => {
                    let peer = self.platform.machine.guest(end.peer);
                    let own = OWN_LEVEL << end.peer_link;
                    peer.due.fetch_and(!own, Ordering::AcqRel);
                    self.publish_virtio(end.peer, usize::from(end.peer_link));
                }
                OWN_LEVEL.. => self.publish_virtio(id, index),
                _ => match end.kind {
                    LinkKind::Memory { .. } => self.signal_peer(id, index),
                    _ => self.tell_both_ends(id, index, end),
                },
            }
        }
        if were_some {
            self.look_before_decision();
        }
        were_some
    }

    /// Moves a frame from a device of the loaded vCPU's guest, which has some. Returns whether there may be more, and nothing has
    /// changed for any vCPU: the core need not go through its loop before the next one.
    fn move_frame(&mut self) -> bool {
        let vcpu = loaded(&mut self.state);
        let (id, guest) = (vcpu.guest, vcpu.shared);
        let waiting = guest.due.load(Ordering::Relaxed) & (TELLS_PEER - 1);
        let Some(index) = vcpu.turn.take(waiting) else {
            return false;
        };
        // Taken before the queue is looked at: a vCPU that transmits afterwards sets it again.
        guest.due.fetch_and(!(1 << index), Ordering::AcqRel);
        let (Some(end), Some(device), Some(direction)) = (
            guest.config.links.get(index),
            guest.virtio.get(index),
            guest.outbound.get(index),
        ) else {
            return false;
        };
        let machine = self.platform.machine;
        let peer = machine.guest(end.peer);
        let Some(peers) = peer.virtio.get(usize::from(end.peer_link)) else {
            return false;
        };
        let mut memories = LinkMemories {
            sender: guest,
            receiver: peer,
        };
        match direction.step(device, peers, &mut memories, cpu::interrupt_pending) {
            Step::Idle => {}
            Step::Claimed => transmit(guest, index),
            Step::Moved {
                interrupt_sender,
                interrupt_receiver,
            } => {
                let mut due = FRAMES;
                if interrupt_sender && device.raise() {
                    due |= OWN_LEVEL;
                }
                let raises_peers = interrupt_receiver && peers.raise();
                if raises_peers {
                    self.publishes_peers_later(guest, index, end);
                }
                guest.due.fetch_or(due << index, Ordering::AcqRel);
                return due == FRAMES && !raises_peers;
            }
            Step::Refused { interrupt_sender } => {
                let mut due = FRAMES;
                if interrupt_sender && device.raise() {
                    due |= OWN_LEVEL;
                }
                guest.due.fetch_or(due << index, Ordering::AcqRel);
                self.report_refused(end);
            }
            Step::Broken(End::Sender) => {
                let due = OWN_LEVEL | TELLS_PEER;
                guest.due.fetch_or(due << index, Ordering::AcqRel);
                // The receiver may have got a buffer before.
                self.publishes_peers_later(guest, index, end);
                self.report_broken(id, index);
            }
            Step::Broken(End::Receiver) => {
                // Its device is down from now on: the frames are dropped.
                let due = FRAMES | TELLS_PEER;
                guest.due.fetch_or(due << index, Ordering::AcqRel);
                self.publishes_peers_later(guest, index, end);
                self.report_broken(end.peer, usize::from(end.peer_link));
            }
        }
        false
    }

    /// A frame was dropped because the driver of this end's peer takes no offloads. Says so once in the peer's life.
    fn report_refused(&mut self, end: &LinkEnd) {
        let peer = self.platform.machine.guest(end.peer);
        let bit = REFUSES << end.peer_link;
        if peer.broken_virtio.fetch_or(bit, Ordering::Relaxed) & bit == 0 {
            self.say_of(end.peer, Subject::TakesNoOffloads(end.peer_link));
        }
    }

    /// A driver has broken the rules: its device is down until the driver resets it. Says so once in the guest's life.
    fn report_broken(&mut self, guest: GuestId, index: usize) {
        let shared = self.platform.machine.guest(guest);
        let bit = 1 << index;
        if shared.broken_virtio.fetch_or(bit, Ordering::Relaxed) & bit == 0 {
            self.say_of(guest, Subject::BreaksRules(index as u8));
        }
    }

    /// The device at one end of the link is down, because its driver has broken the rules: the other end is to know. The levels are passed on
    /// afterwards.
    fn tell_both_ends(&mut self, id: GuestId, index: usize, end: &LinkEnd) {
        let guest = self.platform.machine.guest(id);
        let peer = self.platform.machine.guest(end.peer);
        let place = usize::from(end.peer_link);
        if !is_up(guest, index) && self.tells_peer(id, index) {
            self.publishes_peers_later(guest, index, end);
        }
        if !is_up(peer, place) && self.tells_peer(end.peer, place) {
            guest.due.fetch_or(OWN_LEVEL << index, Ordering::AcqRel);
        }
    }

    /// A device has buffers again: if frames wait for them, a vCPU of the guest that transmits is to move them. It is woken by
    /// an interrupt of its device, in which its driver finds nothing to do. Returns whether the level of its device may have changed, which the caller
    /// passes on.
    fn goes_on(&self, sender: GuestId, index: usize) -> bool {
        let guest = self.platform.machine.guest(sender);
        let (Some(direction), Some(device)) = (guest.outbound.get(index), guest.virtio.get(index))
        else {
            return false;
        };
        let Some(end) = guest.config.links.get(index) else {
            return false;
        };
        let peer = self.platform.machine.guest(end.peer);
        let Some(peers) = peer.virtio.get(usize::from(end.peer_link)) else {
            return false;
        };
        let memories = LinkMemories {
            sender: guest,
            receiver: peer,
        };
        let goes_on =
            direction.may_go_on(peers, &memories) && guest.lifecycle.now().0 == Phase::Running;
        if goes_on {
            transmit(guest, index);
            // A driver that is not ready has nothing to transmit.
            if device.is_up() {
                let _ = device.wake();
            }
        }
        goes_on
    }

    /// The device of `guest`'s link `index` has gone up or down: its peer is to know, and frames that wait for its buffers go on,
    /// or are dropped. Returns whether the level of the peer's device may have changed, which the caller passes on.
    fn tells_peer(&self, guest: GuestId, index: usize) -> bool {
        let machine = self.platform.machine;
        let shared = machine.guest(guest);
        let Some(end) = shared.config.links.get(index) else {
            return false;
        };
        let (peer, place) = (machine.guest(end.peer), usize::from(end.peer_link));
        let mut is_told = false;
        if let Some(device) = peer.virtio.get(place)
            && peer.lifecycle.now().0 == Phase::Running
            && device.peer_changed(is_up(shared, index))
        {
            if device.has_event() {
                // A vCPU of the peer is to write it: as in `goes_on`.
                transmit(peer, place);
                let _ = device.wake();
            }
            is_told = true;
        }
        self.goes_on(end.peer, place) || is_told
    }

    /// As [`tells_peer`](Self::tells_peer), and passes the level on.
    fn tell_peer(&mut self, guest: GuestId, index: usize) {
        let shared = self.platform.machine.guest(guest);
        if self.tells_peer(guest, index)
            && let Some(end) = shared.config.links.get(index)
        {
            self.publish_virtio(end.peer, usize::from(end.peer_link));
        }
    }

    /// Passes the level of a device's interrupt to the guest's virtual GIC.
    fn publish_virtio(&mut self, guest: GuestId, index: usize) {
        let shared = self.platform.machine.guest(guest);
        let (Some(end), Some(device)) = (shared.config.links.get(index), shared.virtio.get(index))
        else {
            return;
        };
        let mut rung = VcpuIndexSet::EMPTY;
        device.publish(|high| {
            rung = rung.with(shared.gic.set_level(end.interrupt, high));
        });
        self.notify_later(guest, rung);
    }

    /// The life of `guest` has ended: its device of this link, if it is one, is down.
    pub(super) fn virtio_goes_down(&mut self, guest: GuestId, index: usize) {
        if let Some(device) = self.platform.machine.guest(guest).virtio.get(index) {
            device.go_down();
        }
        self.tell_peer(guest, index);
    }

    /// Whether a core moves a frame of `guest`, which has ended: then its memory is not to be loaded yet.
    pub(super) fn moves_frames_of(&self, guest: &Guest) -> bool {
        let mut links = guest.config.links.iter().enumerate();
        // At most 8 times: links.
        links.any(|(index, end)| {
            let peer = self.platform.machine.guest(end.peer);
            is_claimed(guest, peer, index, end)
        })
    }
}

/// Has a vCPU of the guest signal the peers of its memory links: its life has begun.
pub(super) fn signal_peers(guest: &Guest) {
    const _: () = assert!(4 * MAX_LINKS_PER_GUEST <= u32::BITS as usize);
    let mut due = 0;
    // At most 8 times: links.
    for (index, end) in guest.config.links.iter().enumerate() {
        if let LinkKind::Memory { .. } = end.kind {
            due |= TELLS_PEER << index;
        }
    }
    guest.due.fetch_or(due, Ordering::AcqRel);
}

/// Has a vCPU of the guest move frames from this device.
fn transmit(guest: &Guest, index: usize) {
    guest.due.fetch_or(FRAMES << index, Ordering::AcqRel);
}

/// Whether a device is up, and its guest runs.
fn is_up(guest: &Guest, index: usize) -> bool {
    let device = guest.virtio.get(index);
    guest.lifecycle.now().0 == Phase::Running && device.is_some_and(|it| it.is_up())
}

/// Whether a core moves a frame to or from this device.
fn is_claimed(guest: &Guest, peer: &Guest, index: usize, end: &LinkEnd) -> bool {
    let own = guest.outbound.get(index);
    let peers = peer.outbound.get(usize::from(end.peer_link));
    [own, peers].into_iter().flatten().any(|it| it.is_claimed())
}
