// SPDX-License-Identifier: MIT OR Apache-2.0
//! Network cards of links: their registers, and the frames between them.
//!
//! A vCPU that has frames to transmit sets a bit of its guest. Whichever vCPU of the guest is about to be entered moves a
//! frame, then the core goes through its loop again: so the guest that transmits pays, at its priority, and an interrupt
//! for a higher band waits for one frame at most. A vCPU that has an interrupt of its own to handle is entered first, for its
//! peer chooses when frames that have waited can go on; what is left is moved at its next exit.

use super::{Instance, loaded};
use crate::console::say;
use crate::cpu;
use crate::guest::Guest;
use crate::links::LinkMemories;
use core::sync::atomic::Ordering;
use spumone_config::GuestId;
use spumone_config::packed::LinkEnd;
use spumone_core::psci::Phase;
use spumone_core::trap::{AccessSize, DataAccess};
use spumone_core::vgic::VcpuIndexSet;
use spumone_core::virtio::{Effect, End, Step};

impl Instance {
    /// Emulates an access of the running vCPU to the card of its guest's link `index`. Returns whether the instruction is done:
    /// a reset is tried again as long as another core moves a frame of the card.
    pub(super) fn access_card(
        &mut self,
        index: usize,
        mac: [u8; 6],
        offset: u64,
        access: DataAccess,
    ) -> bool {
        let vcpu = loaded(&mut self.state);
        let (id, guest) = (vcpu.guest, vcpu.shared);
        let (Some(end), Some(card)) = (guest.config.links.get(index), guest.cards.get(index))
        else {
            return true;
        };
        let peer = self.platform.machine.guest(end.peer);
        if !access.write {
            let size = access.size.bytes();
            let value = card.read(offset, size, mac, is_up(peer, end.peer_link));
            let value = access.load_value(value);
            access.register.write(&mut vcpu.registers.x, value);
            return true;
        }
        if access.size != AccessSize::Word {
            return true;
        }
        let value = access.store_value(access.register.read(&vcpu.registers.x));
        match card.write(offset, value as u32) {
            Effect::Nothing => {}
            Effect::Transmit => transmit(guest, index),
            Effect::Receive => self.go_on(end.peer, usize::from(end.peer_link)),
            Effect::Line => self.publish_card(id, index),
            Effect::Status => self.tell_peer(end),
            Effect::Reset => {
                if is_claimed(guest, peer, index, end) {
                    return false;
                }
                card.finish_reset();
                self.publish_card(id, index);
                self.tell_peer(end);
            }
        }
        true
    }

    /// The guest of the running vCPU has frames to transmit: moves one, unless the vCPU has an interrupt to handle first.
    /// Returns whether it is to be entered.
    #[inline(never)]
    pub(super) fn transmit_next(&mut self) -> bool {
        if cpu::interrupt_pending() {
            self.take_interrupts();
            return false;
        }
        let guest = loaded(&mut self.state).guest;
        let (has_interrupt, rung) = self.has_deliverable();
        self.notify(guest, rung);
        if has_interrupt {
            return true;
        }
        self.move_frame();
        false
    }

    /// Moves a frame from a card of the loaded vCPU's guest, which has some.
    fn move_frame(&mut self) {
        let vcpu = loaded(&mut self.state);
        let (id, guest) = (vcpu.guest, vcpu.shared);
        let waiting = guest.transmits.load(Ordering::Relaxed);
        let index = waiting.trailing_zeros() as usize;
        let bit = waiting & waiting.wrapping_neg();
        // Taken before the queue is looked at: a vCPU that transmits afterwards sets it again.
        guest.transmits.fetch_and(!bit, Ordering::AcqRel);
        let (Some(end), Some(card), Some(direction)) = (
            guest.config.links.get(index),
            guest.cards.get(index),
            guest.outbound.get(index),
        ) else {
            return;
        };
        let machine = self.platform.machine;
        let peer = machine.guest(end.peer);
        let Some(peers) = peer.cards.get(usize::from(end.peer_link)) else {
            return;
        };
        let mut memories = LinkMemories {
            sender: guest,
            receiver: peer,
        };
        match direction.step(card, peers, &mut memories) {
            Step::Idle => {}
            Step::Claimed => transmit(guest, index),
            Step::Moved {
                interrupt_sender,
                interrupt_receiver,
            } => {
                transmit(guest, index);
                if interrupt_sender && card.raise() {
                    self.publish_card(id, index);
                }
                if interrupt_receiver && peers.raise() {
                    self.publish_card(end.peer, usize::from(end.peer_link));
                }
            }
            Step::Broken(End::Sender) => self.card_broken(id, index),
            Step::Broken(End::Receiver) => {
                // Its card is down from now on: the frames are dropped.
                transmit(guest, index);
                self.card_broken(end.peer, usize::from(end.peer_link));
            }
        }
    }

    /// A driver has broken the rules: its card is down until the driver resets it.
    fn card_broken(&mut self, guest: GuestId, index: usize) {
        let shared = self.platform.machine.guest(guest);
        let Some(end) = shared.config.links.get(index) else {
            return;
        };
        let bit = 1 << index;
        if shared.broken_cards.fetch_or(bit, Ordering::Relaxed) & bit == 0 {
            say!(
                self.platform.core,
                "guest {}: its driver of link {index} breaks the rules of virtio; the card is down until it is reset",
                shared.config.name
            );
        }
        self.publish_card(guest, index);
        self.tell_peer(end);
    }

    /// A card has buffers again: if frames wait for them, a vCPU of the guest that transmits is to move them. It is woken by
    /// an interrupt of its card, in which its driver finds nothing to do.
    fn go_on(&mut self, sender: GuestId, index: usize) {
        let guest = self.platform.machine.guest(sender);
        let (Some(direction), Some(card)) = (guest.outbound.get(index), guest.cards.get(index))
        else {
            return;
        };
        let Some(end) = guest.config.links.get(index) else {
            return;
        };
        let peer = self.platform.machine.guest(end.peer);
        let Some(peers) = peer.cards.get(usize::from(end.peer_link)) else {
            return;
        };
        let memories = LinkMemories {
            sender: guest,
            receiver: peer,
        };
        if direction.may_go_on(peers, &memories) && guest.lifecycle.now().0 == Phase::Running {
            transmit(guest, index);
            let _ = card.raise();
            self.publish_card(sender, index);
        }
    }

    /// A card has gone up or down: its peer is to know, and frames that wait for its buffers go on, or are dropped.
    fn tell_peer(&mut self, end: &LinkEnd) {
        let index = usize::from(end.peer_link);
        let peer = self.platform.machine.guest(end.peer);
        let card = peer.cards.get(index);
        if peer.lifecycle.now().0 == Phase::Running && card.is_some_and(|it| it.peer_changed()) {
            self.publish_card(end.peer, index);
        }
        self.go_on(end.peer, index);
    }

    /// Passes the level of a card's interrupt to the guest's virtual GIC.
    fn publish_card(&mut self, guest: GuestId, index: usize) {
        let shared = self.platform.machine.guest(guest);
        let (Some(end), Some(card)) = (shared.config.links.get(index), shared.cards.get(index))
        else {
            return;
        };
        let mut rung = VcpuIndexSet::EMPTY;
        card.publish(|high| {
            rung = rung.with(shared.gic.set_level(end.interrupt, high));
        });
        self.notify(guest, rung);
    }

    /// The life of `guest` has ended: its cards are down.
    pub(super) fn cards_go_down(&mut self, guest: GuestId) {
        let shared = self.platform.machine.guest(guest);
        for (end, card) in shared.config.links.iter().zip(&shared.cards) {
            card.go_down();
            self.tell_peer(end);
        }
    }

    /// Whether a core moves a frame of `guest`, which has ended: then its memory is not to be loaded yet.
    pub(super) fn moves_frames_of(&self, guest: &Guest) -> bool {
        let mut links = guest.config.links.iter().enumerate();
        links.any(|(index, end)| {
            let peer = self.platform.machine.guest(end.peer);
            is_claimed(guest, peer, index, end)
        })
    }
}

/// Has a vCPU of the guest move frames from this card.
fn transmit(guest: &Guest, index: usize) {
    guest.transmits.fetch_or(1 << index, Ordering::AcqRel);
}

/// Whether a card is up, and its guest runs.
fn is_up(guest: &Guest, index: u8) -> bool {
    let card = guest.cards.get(usize::from(index));
    guest.lifecycle.now().0 == Phase::Running && card.is_some_and(|it| it.is_up())
}

/// Whether a core moves a frame to or from this card.
fn is_claimed(guest: &Guest, peer: &Guest, index: usize, end: &LinkEnd) -> bool {
    let own = guest.outbound.get(index);
    let peers = peer.outbound.get(usize::from(end.peer_link));
    [own, peers].into_iter().flatten().any(|it| it.is_claimed())
}
