// SPDX-License-Identifier: MIT OR Apache-2.0
//! Packets that reach no peer, and what their sender is answered.

mod any_order;
mod queues;

use super::driver::{BASE, Driver, Link, Memory, after_a_piece};
use super::packets::{DATA, DEVICES, HEADER, OWN, PEER, RESET, STREAM, bytes, header, word};
use crate::virtio::registers::*;
use crate::virtio::{Direction, End, Memories, Step};
use spumone_config::GuestAddr;
use std::vec;
use std::vec::Vec;

/// `VIRTIO_VSOCK_OP_REQUEST`, `_RESPONSE`, `_SHUTDOWN`.
const REQUEST: u16 = 1;
const RESPONSE: u16 = 2;
const SHUTDOWN: u16 = 4;
/// A context identifier that is not the peer's.
const OTHER: u32 = 2;
/// Descriptors of each queue.
const QUEUE: u16 = 8;
/// More steps than all packets of a test need.
const MANY: usize = 5000;

/// A packet without payload.
fn control(target: u64, operation: u16) -> Vec<u8> {
    let mut packet = header(target, 0, STREAM, 0);
    packet[30..32].copy_from_slice(&operation.to_le_bytes());
    packet
}

/// What the sender of such a packet to `target` is answered.
fn answer(target: u32) -> Vec<u8> {
    let mut answer = u64::from(target).to_le_bytes().to_vec();
    answer.extend(u64::from(OWN).to_le_bytes());
    // The ports of `header`, the other way round.
    for word in [1025_u32, 1024, 0] {
        answer.extend(word.to_le_bytes());
    }
    answer.extend(STREAM.to_le_bytes());
    answer.extend(RESET.to_le_bytes());
    answer.extend([0; 12]);
    answer
}

/// The memory of both guests as the other direction has it.
struct Swapped<'a>(&'a mut Memory);

fn other(end: End) -> End {
    match end {
        End::Sender => End::Receiver,
        End::Receiver => End::Sender,
    }
}

impl Memories for Swapped<'_> {
    fn load16(&self, end: End, at: GuestAddr) -> Option<u16> {
        self.0.load16(other(end), at)
    }
    fn load64(&self, end: End, at: GuestAddr) -> Option<u64> {
        self.0.load64(other(end), at)
    }
    fn store16(&mut self, end: End, at: GuestAddr, value: u16) -> Option<()> {
        self.0.store16(other(end), at, value)
    }
    fn store_pair(&mut self, end: End, at: GuestAddr, pair: [u32; 2]) -> Option<()> {
        self.0.store_pair(other(end), at, pair)
    }
    fn read(&self, at: GuestAddr, into: &mut [u8]) -> Option<()> {
        let place = at.0.checked_sub(BASE)? as usize;
        into.copy_from_slice(self.0.of[1].get(place..)?.get(..into.len())?);
        Some(())
    }
    fn write(&mut self, end: End, at: GuestAddr, bytes: &[u8]) -> Option<()> {
        Memories::write(self.0, other(end), at, bytes)
    }
    fn copy(
        &mut self,
        from: GuestAddr,
        to: GuestAddr,
        bytes: u32,
        stops: impl FnMut() -> bool,
    ) -> Result<u32, End> {
        self.0.of.swap(0, 1);
        let copied = self.0.copy(from, to, bytes, stops);
        self.0.of.swap(0, 1);
        copied
    }
}

/// Two guests of which each transmits and receives. Steps are made as the hypervisor makes them: of a direction in which
/// something is due.
struct Both {
    link: Link,
    back: Direction,
    /// Queues of the guest whose packets may reach no peer, and of its peer.
    transmit: Driver,
    receive: Driver,
    peers_receive: Driver,
    peers_transmit: Driver,
    /// The direction to the peer has something to do, and that from it.
    due: [bool; 2],
}

impl Both {
    /// Only the first guest's driver is up.
    fn alone() -> Self {
        let mut both = Self::new();
        both.peer_goes_down();
        both
    }

    fn new() -> Self {
        let mut link = Link::between(DEVICES);
        Self {
            transmit: Driver::start(&mut link, End::Sender, QUEUE),
            receive: Driver::second(&mut link, End::Sender, QUEUE),
            peers_receive: Driver::start(&mut link, End::Receiver, QUEUE),
            peers_transmit: Driver::second(&mut link, End::Receiver, QUEUE),
            link,
            back: Direction::new(),
            due: [false; 2],
        }
    }

    fn is_peer_up(&self) -> bool {
        self.link.devices[1].is_up()
    }

    /// As `tell_peer` of the hypervisor, of the direction to the peer.
    fn peer_has_changed(&mut self) {
        let _ = self.link.devices[0].peer_changed(self.is_peer_up());
        self.due[0] |= self.link.may_go_on();
    }

    fn peer_goes_down(&mut self) {
        let _ = self.link.devices[1].write(STATUS, 0);
        self.link.devices[1].finish_reset();
        self.peer_has_changed();
    }

    fn peer_comes_up(&mut self) {
        self.peers_receive = Driver::start(&mut self.link, End::Receiver, QUEUE);
        self.peers_transmit = Driver::second(&mut self.link, End::Receiver, QUEUE);
        self.peer_has_changed();
    }

    fn sends(&mut self, packet: &[u8]) -> bool {
        self.due[0] = true;
        self.transmit
            .add(&mut self.link, &[packet.len() as u32], packet)
    }

    fn peer_sends(&mut self, packet: &[u8]) -> bool {
        self.due[1] = true;
        self.peers_transmit
            .add(&mut self.link, &[packet.len() as u32], packet)
    }

    /// The guest offers a buffer, and notifies its device if it is to.
    fn offers(&mut self, size: u32) {
        self.receive.add(&mut self.link, &[size], &[]);
        self.notifies();
    }

    /// The guest notifies its device of receive buffers, if it is to.
    fn notifies(&mut self) {
        if self.receive.must_notify(&self.link) {
            let Link {
                devices, memory, ..
            } = &mut self.link;
            self.due[0] |= devices[0].may_answer();
            self.due[1] |= self.back.may_go_on(&devices[0], &Swapped(memory));
        }
    }

    fn peer_offers(&mut self, size: u32) {
        self.peers_receive.add(&mut self.link, &[size], &[]);
        if self.peers_receive.must_notify(&self.link) {
            self.due[0] |= self.link.may_go_on();
        }
    }

    /// A step to the peer, if one is due.
    fn step(&mut self, pause: impl FnMut() -> bool) -> Step {
        if !core::mem::take(&mut self.due[0]) {
            return Step::Idle;
        }
        let step = self.link.step_until(pause);
        self.due[0] |= step != Step::Idle;
        step
    }

    /// A step of the peer.
    fn step_back(&mut self, pause: impl FnMut() -> bool) -> Step {
        if !core::mem::take(&mut self.due[1]) {
            return Step::Idle;
        }
        let Link {
            devices, memory, ..
        } = &mut self.link;
        let [to, from] = &*devices;
        let step = self.back.step(from, to, &mut Swapped(memory), pause);
        self.due[1] |= step != Step::Idle;
        step
    }

    /// Of the peer's packet, the first stretch is moved.
    fn peer_moves_a_part(&mut self) {
        for _ in 0..6 {
            assert!(matches!(
                self.step_back(after_a_piece(true)),
                Step::Moved { .. }
            ));
        }
    }

    fn until_idle(&mut self) {
        for _ in 0..MANY {
            let steps = [self.step(|| false), self.step_back(|| false)];
            if steps == [Step::Idle, Step::Idle] {
                return;
            }
        }
        panic!("the steps do not end");
    }
}

#[test]
fn a_request_to_a_peer_that_is_down_is_answered() {
    let mut both = Both::alone();
    both.offers(4096);
    both.sends(&control(PEER.into(), REQUEST));
    let answered = Step::Moved {
        interrupt_sender: true,
        interrupt_receiver: false,
    };
    assert_eq!(both.step(|| false), answered);
    assert_eq!(both.receive.take(&both.link), Some(answer(PEER)));
    assert_eq!(both.transmit.take(&both.link), Some(vec![]));
    assert_eq!(both.step(|| false), Step::Idle);
}

#[test]
fn the_interrupt_is_raised_if_the_driver_wants_one_at_either_queue() {
    for (wants, interrupts) in [
        ([true, false], true),
        ([false, true], true),
        ([false; 2], false),
    ] {
        let mut both = Both::alone();
        both.offers(4096);
        both.sends(&control(PEER.into(), REQUEST));
        both.transmit.want_interrupts(&mut both.link, wants[0]);
        both.receive.want_interrupts(&mut both.link, wants[1]);
        let answered = Step::Moved {
            interrupt_sender: interrupts,
            interrupt_receiver: false,
        };
        assert_eq!(both.step(|| false), answered);
    }
}

#[test]
fn a_packet_to_another_context_is_answered_whether_the_peer_is_up_or_not() {
    for mut both in [Both::new(), Both::alone()] {
        for operation in [REQUEST, RESPONSE, SHUTDOWN, DATA] {
            both.offers(4096);
            both.peer_offers(4096);
            both.sends(&control(OTHER.into(), operation));
            both.until_idle();
            assert_eq!(both.receive.take(&both.link), Some(answer(OTHER)));
            assert_eq!(both.transmit.take(&both.link), Some(vec![]));
            assert_eq!(both.peers_receive.take(&both.link), None);
        }
    }
}

/// An answer to an answer could go on for ever. Of a connection whose peer is down the driver is told by an event.
#[test]
fn what_is_no_request_to_the_peer_is_dropped() {
    let large = header(OTHER.into(), u32::MAX, STREAM, 0);
    for packet in [
        control(PEER.into(), RESET),
        control(OTHER.into(), RESET),
        control(PEER.into(), DATA),
        control(PEER.into(), SHUTDOWN),
        control(1 << 32 | u64::from(PEER), REQUEST),
        control(PEER.into(), REQUEST)[..HEADER - 1].to_vec(),
        large,
    ] {
        let mut both = Both::alone();
        both.offers(4096);
        both.sends(&packet);
        both.until_idle();
        assert_eq!(both.receive.take(&both.link), None);
        assert_eq!(both.transmit.take(&both.link), Some(vec![]));
    }
}

#[test]
fn a_driver_without_a_receive_queue_gets_its_packet_back() {
    let mut both = Both::alone();
    for (register, value) in [(QUEUE_SEL, 0), (QUEUE_READY, 0)] {
        let _ = both.link.devices[0].write(register, value);
    }
    both.sends(&control(PEER.into(), REQUEST));
    both.until_idle();
    assert_eq!(both.transmit.take(&both.link), Some(vec![]));
}

#[test]
fn packets_wait_for_buffers_of_their_own_guest() {
    for mut both in [Both::new(), Both::alone()] {
        both.peer_offers(4096);
        for _ in 0..2 {
            both.sends(&control(OTHER.into(), REQUEST));
        }
        both.until_idle();
        assert_eq!(both.transmit.take(&both.link), None);
        for _ in 0..2 {
            // The peer's buffers are of no use.
            both.peer_offers(4096);
            both.until_idle();
            assert_eq!(both.transmit.take(&both.link), None);
            both.offers(4096);
            assert!(both.due[0], "the guest that has a buffer is to go on");
            both.until_idle();
            assert_eq!(both.receive.take(&both.link), Some(answer(OTHER)));
            assert_eq!(both.transmit.take(&both.link), Some(vec![]));
        }
    }
}

/// It waits for a buffer for its answer; then the peer is there.
#[test]
fn a_request_that_waits_reaches_a_peer_that_comes_up() {
    let mut both = Both::alone();
    both.sends(&control(PEER.into(), REQUEST));
    both.until_idle();
    assert_eq!(both.transmit.take(&both.link), None);
    both.peer_comes_up();
    both.peer_offers(4096);
    both.until_idle();
    assert_eq!(both.transmit.take(&both.link), Some(vec![]));
    let received = both.peers_receive.take(&both.link).unwrap();
    assert_eq!((word(&received, 0), word(&received, 8)), (OWN, PEER));
    both.offers(4096);
    both.until_idle();
    assert_eq!(both.receive.take(&both.link), None, "it was answered, too");
}

/// A peer cannot wake a guest whose answer waits by offers of buffers.
#[test]
fn the_peers_buffers_do_not_wake_a_guest_whose_answer_waits() {
    let mut both = Both::new();
    both.peer_offers(4096);
    both.sends(&control(OTHER.into(), REQUEST));
    both.until_idle();
    for _ in 0..3 {
        both.peer_offers(4096);
        assert!(!both.due[0]);
    }
}

/// A packet of the peer waits, too, and takes a buffer before the driver looks whether it is to notify its device.
#[test]
fn the_peers_packet_does_not_turn_off_the_notification_for_an_answer() {
    let mut both = Both::new();
    both.peer_sends(&header(OWN.into(), 0, STREAM, 0));
    both.until_idle();
    both.sends(&control(OTHER.into(), REQUEST));
    both.until_idle();
    for _ in 0..2 {
        both.receive.add(&mut both.link, &[4096], &[]);
    }
    both.due[1] = true;
    assert!(matches!(both.step_back(|| false), Step::Moved { .. }));
    both.notifies();
    both.until_idle();
    assert_eq!(both.transmit.take(&both.link), Some(vec![]));
    assert_eq!(both.receive.used(&both.link), 2);
}

/// The peer has stopped within a packet, in the first buffer: it goes on there.
#[test]
fn an_answer_uses_the_buffer_behind_a_part_of_a_packet() {
    let mut both = Both::new();
    let mut packet = header(OWN.into(), 4000, STREAM, 0);
    packet.extend(bytes(4000));
    both.peer_sends(&packet);
    both.offers(4096);
    both.peer_moves_a_part();
    for _ in 0..2 {
        both.sends(&control(OTHER.into(), REQUEST));
        let _ = both.step(|| false);
        assert_eq!(both.transmit.take(&both.link), None, "there is one buffer");
        both.offers(4096);
        let _ = both.step(|| false);
        assert_eq!(both.transmit.take(&both.link), Some(vec![]));
        assert_eq!(both.receive.take(&both.link), Some(answer(OTHER)));
    }
    both.until_idle();
    let received = both.receive.take(&both.link).unwrap();
    assert_eq!(received[HEADER..], packet[HEADER..]);
    assert_eq!(both.receive.used(&both.link), 3);
}

/// The buffer that has a part of its packet is free, with an answer in the one behind it or not, and its rest is never written.
#[test]
fn the_buffer_of_a_peer_that_has_gone_down_within_a_packet_is_used() {
    for has_answer in [true, false] {
        let mut both = Both::new();
        let mut packet = header(OWN.into(), 4000, STREAM, 0);
        packet.extend(bytes(4000));
        both.peer_sends(&packet);
        both.offers(4096);
        both.peer_moves_a_part();
        let mut answers = 1;
        if has_answer {
            both.offers(4096);
            both.sends(&control(OTHER.into(), REQUEST));
            let _ = both.step(|| false);
            answers = 2;
        }
        // Without a reset: when the bit is cleared, its queues are as before.
        let _ = both.link.devices[1].write(STATUS, 15 | FAILED);
        both.peer_has_changed();
        both.sends(&control(PEER.into(), REQUEST));
        let _ = both.step(|| false);
        let _ = both.link.devices[1].write(STATUS, 15);
        both.due[1] = true;
        both.until_idle();
        assert_eq!(both.receive.used(&both.link), answers);
        let received = core::iter::from_fn(|| both.receive.take(&both.link));
        let received: Vec<_> = received.collect();
        let all = [answer(OTHER), answer(PEER)];
        assert_eq!(received, all[usize::from(!has_answer)..]);
        assert_eq!(both.peers_transmit.take(&both.link), Some(vec![]));
    }
}

/// Of a request nothing but the beginning was moved, and then the peer began anew: it is refused, as it would be while the peer is down.
#[test]
fn a_request_whose_peer_begins_anew_meanwhile_is_answered() {
    let mut both = Both::new();
    both.offers(4096);
    both.peer_offers(4096);
    both.sends(&control(PEER.into(), REQUEST));
    // Its header has been read, and a buffer for it has been found.
    for _ in 0..4 {
        assert!(matches!(both.step(after_a_piece(true)), Step::Moved { .. }));
    }
    both.peer_goes_down();
    both.peer_comes_up();
    both.until_idle();
    assert_eq!(both.transmit.take(&both.link), Some(vec![]));
    assert_eq!(both.receive.take(&both.link), Some(answer(PEER)));
}

#[test]
fn a_receive_buffer_without_room_for_an_answer_breaks_the_rules() {
    let mut both = Both::alone();
    both.offers(HEADER as u32 - 1);
    both.sends(&control(PEER.into(), REQUEST));
    assert_eq!(both.step(|| false), Step::Broken(End::Sender));
    assert!(!both.link.devices[0].is_up());
}

/// A guest whose answer waits begins anew: the packet of its former life is not answered.
#[test]
fn an_answer_is_given_up_with_its_life() {
    let mut both = Both::alone();
    both.sends(&control(PEER.into(), REQUEST));
    both.until_idle();
    both.transmit = Driver::start(&mut both.link, End::Sender, QUEUE);
    both.receive = Driver::second(&mut both.link, End::Sender, QUEUE);
    assert!(!both.link.devices[0].may_answer());
    both.offers(4096);
    both.due[0] = true;
    both.until_idle();
    assert_eq!(both.receive.take(&both.link), None);
}
