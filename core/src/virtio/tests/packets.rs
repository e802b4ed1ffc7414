// SPDX-License-Identifier: MIT OR Apache-2.0
//! Packets of sockets between two drivers, of which the second test's break rules.

use super::driver::{AVAILABLE, BASE, BUFFERS, Driver, Link, Memory, SECOND, SIZE, after_a_piece};
use super::fuzz::Random;
use crate::virtio::registers::*;
use crate::virtio::{Effect, End, Kind, Memories, Step};
use proptest::prelude::*;
use spumone_config::GuestAddr;
use std::cell::RefCell;
use std::vec;
use std::vec::Vec;

pub const HEADER: usize = 44;
pub const OWN: u32 = 3;
pub const PEER: u32 = 5;
/// `VIRTIO_VSOCK_OP_RW`.
pub const DATA: u16 = 5;
/// `VIRTIO_VSOCK_OP_RST`.
pub const RESET: u16 = 3;
pub const STREAM: u16 = 1;
const SEQPACKET: u16 = 2;

pub const DEVICES: [Kind; 2] = [
    Kind::Socket {
        own: OWN,
        peer: PEER,
    },
    Kind::Socket {
        own: PEER,
        peer: OWN,
    },
];

/// `virtio_vsock_hdr` from a sender that says it were 99.
pub fn header(target: u64, bytes: u32, kind: u16, flags: u32) -> Vec<u8> {
    let mut header = 99_u64.to_le_bytes().to_vec();
    header.extend(target.to_le_bytes());
    for word in [1024, 1025, bytes] {
        header.extend(word.to_le_bytes());
    }
    header.extend(kind.to_le_bytes());
    header.extend(DATA.to_le_bytes());
    for word in [flags, 0x4_0000, 0x1234] {
        header.extend(word.to_le_bytes());
    }
    header
}

pub fn packet(kind: u16, flags: u32, payload: &[u8]) -> Vec<u8> {
    let mut packet = header(PEER.into(), payload.len() as u32, kind, flags);
    packet.extend(payload);
    packet
}

/// Bytes from 0 on.
pub fn bytes(count: usize) -> Vec<u8> {
    (0..count).map(|at| (at % 251) as u8).collect()
}

pub fn word(packet: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(packet[at..][..4].try_into().unwrap())
}

fn connected() -> (Link, Driver, Driver) {
    let mut link = Link::between(DEVICES);
    let sender = Driver::start(&mut link, End::Sender, 16);
    let receiver = Driver::start(&mut link, End::Receiver, 16);
    (link, sender, receiver)
}

/// What arrives of one packet, in as many buffers of this size as there are, and whether the sender has its buffer back.
fn send(packet: &[u8], room: u32) -> (Vec<Vec<u8>>, bool) {
    let (mut link, mut sender, mut receiver) = connected();
    for _ in 0..16 {
        assert!(receiver.add(&mut link, &[room], &[]));
    }
    let payload = packet.len().saturating_sub(HEADER) as u32;
    let parts = [packet.len() as u32 - payload, payload];
    assert!(sender.add(&mut link, &parts, packet));
    while let Step::Moved { .. } = link.step() {}
    let received = core::iter::from_fn(|| receiver.take(&link)).collect();
    (received, sender.take(&link).is_some())
}

#[test]
fn a_packet_arrives_with_the_address_of_its_sender() {
    let (received, is_done) = send(&packet(STREAM, 0, b"hello"), 4096);
    let mut expected = packet(STREAM, 0, b"hello");
    expected[..8].copy_from_slice(&u64::from(OWN).to_le_bytes());
    assert_eq!((received, is_done), (vec![expected], true));
}

#[test]
fn a_packet_that_is_not_for_the_peer_or_shorter_than_it_says_is_dropped() {
    let other = header(2, 0, STREAM, 0);
    let upper = header(1 << 32 | u64::from(PEER), 0, STREAM, 0);
    let long = header(PEER.into(), 1, STREAM, 0);
    for packet in [other, upper, long, vec![0; HEADER - 1]] {
        assert_eq!(send(&packet, 4096), (vec![], true));
    }
}

#[test]
fn the_largest_packet_has_64_kib_of_payload() {
    for (bytes, arrives) in [(65_536, true), (65_537, false), (u32::MAX, false)] {
        let (mut link, mut sender, mut receiver) = connected();
        receiver.add(&mut link, &[70_000], &[]);
        let header = header(PEER.into(), bytes, STREAM, 0);
        sender.add(&mut link, &[HEADER as u32, 70_000], &header);
        assert!(matches!(link.step(), Step::Moved { .. }));
        assert_eq!(receiver.take(&link).is_some(), arrives, "{bytes} bytes");
        assert_eq!(sender.take(&link), Some(vec![]));
    }
}

#[test]
fn a_large_packet_arrives_in_several_and_the_last_one_ends_the_message() {
    for (room, payloads) in [
        (4096, vec![4000]),
        (HEADER as u32 + 1536, vec![1536, 1536, 928]),
        (HEADER as u32 + 500, vec![500; 8]),
    ] {
        let (received, is_done) = send(&packet(SEQPACKET, 3, &bytes(4000)), room);
        assert!(is_done);
        let found: Vec<usize> = received.iter().map(|it| it.len() - HEADER).collect();
        assert_eq!(found, payloads);
        let mut content = Vec::<u8>::new();
        for (index, packet) in received.iter().enumerate() {
            assert_eq!(word(packet, 24) as usize, packet.len() - HEADER);
            let is_last = index + 1 == received.len();
            assert_eq!(word(packet, 32), if is_last { 3 } else { 0 });
            content.extend(&packet[HEADER..]);
        }
        assert_eq!(content, bytes(4000));
    }
    // Of a stream the flags stay: they say nothing of the message.
    let (received, _) = send(&packet(STREAM, 3, &bytes(6000)), 4096);
    assert_eq!(received.len(), 2);
    assert!(received.iter().all(|it| word(it, 32) == 3));
}

#[test]
fn a_receiver_whose_buffers_have_no_room_for_payload_breaks_the_rules() {
    for room in [HEADER as u32, 10] {
        let (mut link, mut sender, mut receiver) = connected();
        receiver.add(&mut link, &[room], &[]);
        sender.add(&mut link, &[60], &packet(STREAM, 0, &[1; 16]));
        assert_eq!(link.step(), Step::Broken(End::Receiver));
    }
}

/// The rest of a packet of the former life would be taken for the beginning of one.
#[test]
fn a_sender_that_begins_anew_within_a_packet_begins_with_a_whole_one() {
    // Within a buffer, and behind one.
    for (steps, room, arrived) in [(6, 4096, &[1000][..]), (13, 1580, &[1536, 1000])] {
        let (mut link, mut sender, mut receiver) = connected();
        for _ in 0..4 {
            receiver.add(&mut link, &[room], &[]);
        }
        sender.add(&mut link, &[4044], &packet(STREAM, 0, &bytes(4000)));
        for _ in 0..steps {
            assert!(matches!(link.short_step(), Step::Moved { .. }));
        }
        let mut sender = Driver::start(&mut link, End::Sender, 16);
        sender.add(&mut link, &[1044], &packet(STREAM, 0, &bytes(1000)));
        assert!(matches!(link.step(), Step::Moved { .. }));
        assert_eq!(sender.take(&link), Some(vec![]));
        let packets = core::iter::from_fn(|| receiver.take(&link));
        let lengths: Vec<_> = packets.map(|it| word(&it, 24)).collect();
        assert_eq!(lengths, arrived);
    }
}

/// The rest of a packet would be the end of a message of which the new life has no beginning.
#[test]
fn a_receiver_that_begins_anew_within_a_packet_gets_nothing_of_it() {
    for (steps, room) in [(4, 4096), (6, 4096), (12, 1580)] {
        let (mut link, mut sender, mut receiver) = connected();
        receiver.add(&mut link, &[room], &[]);
        sender.add(&mut link, &[4044], &packet(STREAM, 0, &bytes(4000)));
        for _ in 0..steps {
            assert!(matches!(link.short_step(), Step::Moved { .. }));
        }
        let mut receiver = Driver::start(&mut link, End::Receiver, 16);
        receiver.add(&mut link, &[4096], &[]);
        assert!(matches!(link.step(), Step::Moved { .. }));
        assert_eq!(sender.take(&link), Some(vec![]));
        assert_eq!(receiver.take(&link), None);
    }
}

/// A call that goes on with a packet has the packet's header, and copies as many bytes as a call that begins a packet.
#[test]
fn a_call_that_goes_on_does_not_read_the_header_again() {
    let (mut link, mut sender, mut receiver) = connected();
    receiver.add(&mut link, &[4096], &[]);
    sender.add(&mut link, &[4044], &packet(STREAM, 0, &bytes(4000)));
    // The packet and its part are found, and the header is read.
    for _ in 0..3 {
        assert!(matches!(link.short_step(), Step::Moved { .. }));
    }
    // The driver may not change it any more.
    link.memory.write(End::Sender, BUFFERS + 8, &[7; 36]);
    link.short_steps();
    let received = receiver.take(&link).unwrap();
    assert_eq!(received[8..], packet(STREAM, 0, &bytes(4000))[8..]);
}

/// The queue of events of the sender's device.
const EVENTS: u64 = BASE + 0x4000;
/// Where the device is to write an event, which has no alignment.
const EVENT: u64 = EVENTS + 0x1801;

/// The driver offers a buffer of so many bytes for its next event.
fn offer_event(link: &mut Link, number: u16, size: u32) {
    let [low, high] = [EVENT, u64::from(size) | 2 << 32];
    let descriptor = EVENTS + 16 * u64::from(number % 4);
    for (at, value) in [(0, low), (8, high)] {
        let value = value.to_le_bytes();
        link.memory.write(End::Sender, descriptor + at, &value);
    }
    let entry = EVENTS + 0x804 + 2 * u64::from(number % 4);
    for (at, value) in [(entry, number % 4), (EVENTS + 0x802, number + 1)] {
        link.memory.write(End::Sender, at, &value.to_le_bytes());
    }
}

fn start_events(link: &mut Link) {
    for (register, value) in [
        (QUEUE_SEL, 2),
        (QUEUE_NUM, 4),
        (QUEUE_DESC_LOW, EVENTS as u32),
        (QUEUE_DRIVER_LOW, EVENTS as u32 + 0x800),
        (QUEUE_DEVICE_LOW, EVENTS as u32 + 0x1000),
        (QUEUE_READY, 1),
    ] {
        let _ = link.devices[0].write(register, value);
    }
    link.memory.write(End::Sender, EVENTS, &[0; 0x1800]);
}

/// As long as the driver has no buffer for the event, its packets get on however often the core is interrupted.
#[test]
fn an_event_that_waits_does_not_hold_packets_up() {
    let (mut link, mut sender, mut receiver) = connected();
    start_events(&mut link);
    assert!(link.devices[0].peer_changed(false));
    let sent = packet(STREAM, 0, &[7; 10]);
    sender.add(&mut link, &[44, 10], &sent);
    receiver.add(&mut link, &[100], &[]);
    for _ in 0..100 {
        let _ = link.short_step();
    }
    assert!(link.devices[0].has_event());
    assert!(receiver.take(&link).is_some());
    assert!(sender.take(&link).is_some());
}

#[test]
fn a_driver_is_told_once_that_the_sockets_of_its_peer_are_gone() {
    let (mut link, _, _) = connected();
    start_events(&mut link);
    let events = EVENTS + 0x1000;
    link.memory.write(End::Sender, EVENT, &[0xff; 8]);
    assert!(!link.devices[0].peer_changed(true), "it has come up");
    assert!(link.devices[0].peer_changed(false));
    assert_eq!(link.step(), Step::Idle, "there is no buffer");
    offer_event(&mut link, 0, 4);
    assert_eq!(link.devices[0].write(QUEUE_NOTIFY, 2), Effect::Transmit);
    let told = Step::Moved {
        interrupt_sender: true,
        interrupt_receiver: false,
    };
    assert_eq!(link.step(), told);
    let used = link.memory.bytes(End::Sender, events, 12);
    assert_eq!(used, [0, 0, 1, 0, 0, 0, 0, 0, 4, 0, 0, 0]);
    let event = link.memory.bytes(End::Sender, EVENT, 8);
    assert_eq!(event, [0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff]);
    offer_event(&mut link, 1, 4);
    assert_eq!(link.devices[0].write(QUEUE_NOTIFY, 2), Effect::Nothing);
    assert_eq!(link.step(), Step::Idle);
    // A buffer without room for an event.
    offer_event(&mut link, 1, 3);
    assert!(link.devices[0].peer_changed(false));
    assert_eq!(link.step(), Step::Broken(End::Sender));
}

proptest! {
    /// Whatever sizes packets and buffers have, the bytes arrive once and in order, in packets that say how many they have.
    #[test]
    fn a_stream_arrives_whole(
        payloads in prop::collection::vec((0..5000_usize, 0..44_u32), 1..20),
        rooms in prop::collection::vec((1..2000_u32, 0..2000_u32), 1..20),
        pauses in prop::collection::vec(any::<bool>(), 1..20),
    ) {
        let (mut link, mut sender, mut receiver) = connected();
        let all = bytes(payloads.iter().map(|it| it.0).sum());
        let (mut sent, mut received) = (0, Vec::new());
        let mut pauses = pauses.iter().copied().cycle();
        let mut packets = payloads.iter();
        let mut next = packets.next();
        for (first, second) in rooms.iter().cycle().take(20_000) {
            if let Some(&(count, cut)) = next {
                let packet = packet(STREAM, 0, &all[sent..][..count]);
                if sender.add(&mut link, &[cut, packet.len() as u32 - cut], &packet) {
                    sent += count;
                    next = packets.next();
                }
            }
            receiver.add(&mut link, &[*first, HEADER as u32 + second], &[]);
            let _ = link.may_go_on();
            loop {
                    let mut is_after = after_a_piece(true);
                    let step = link.step_until(|| is_after() && pauses.next() == Some(true));
                    let Step::Moved { .. } = step else {
                        break;
                    };
                }
            while sender.take(&link).is_some() {}
            while let Some(packet) = receiver.take(&link) {
                prop_assert_eq!(word(&packet, 24) as usize, packet.len() - HEADER);
                received.extend_from_slice(&packet[HEADER..]);
            }
            if next.is_none() && received.len() == all.len() {
                break;
            }
        }
        prop_assert_eq!(received, all);
    }
}

/// Memory that both guests change before any read: anywhere in the first bytes of a queue or a packet. With the context
/// identifier of which all packets must be.
pub struct Changing<'a>(RefCell<(&'a mut Memory, &'a mut Random)>, Option<u32>);

impl<'a> Changing<'a> {
    pub fn new(memory: &'a mut Memory, random: &'a mut Random, sender: Option<u32>) -> Self {
        Self(RefCell::new((memory, random)), sender)
    }

    fn change(&self) {
        let (memory, random) = &mut *self.0.borrow_mut();
        if !random.once_in(4) {
            return;
        }
        let end = random.one_of(&[End::Sender, End::Receiver]);
        // In most cases a small number, or an address inside.
        let value = match random.below(4) {
            0 => random.any(),
            1 => BASE + random.below(SIZE),
            _ => random.below(64) | random.below(4) << 32 | random.below(4) << 48,
        };
        let area = random.one_of(&[
            BASE,
            AVAILABLE,
            EVENTS,
            EVENTS + 0x800,
            BASE + 0x8000,
            BASE + SECOND,
            AVAILABLE + SECOND,
        ]);
        let at = area + 8 * random.below(16);
        memory.write(end, at, &value.to_le_bytes());
    }
}

impl Memories for Changing<'_> {
    fn load16(&self, end: End, at: GuestAddr) -> Option<u16> {
        self.change();
        self.0.borrow().0.load16(end, at)
    }
    fn load64(&self, end: End, at: GuestAddr) -> Option<u64> {
        self.change();
        self.0.borrow().0.load64(end, at)
    }
    fn store16(&mut self, end: End, at: GuestAddr, value: u16) -> Option<()> {
        self.0.borrow_mut().0.store16(end, at, value)
    }
    fn store_pair(&mut self, end: End, at: GuestAddr, pair: [u32; 2]) -> Option<()> {
        self.0.borrow_mut().0.store_pair(end, at, pair)
    }
    fn read(&self, at: GuestAddr, into: &mut [u8]) -> Option<()> {
        self.change();
        self.0.borrow().0.read(at, into)
    }
    fn write(&mut self, end: End, at: GuestAddr, bytes: &[u8]) -> Option<()> {
        if let (Some(sender), HEADER) = (self.1, bytes.len()) {
            match end {
                End::Receiver => assert_eq!(word(bytes, 0), sender, "it is of another one"),
                End::Sender => {
                    assert_eq!((word(bytes, 8), word(bytes, 24)), (sender, 0));
                    assert_eq!(bytes[30..32], RESET.to_le_bytes(), "no answer");
                }
            }
        }
        Memories::write(self.0.borrow_mut().0, end, at, bytes)
    }
    fn copy(
        &mut self,
        from: GuestAddr,
        to: GuestAddr,
        bytes: u32,
        stops: impl FnMut() -> bool,
    ) -> Result<u32, End> {
        self.0.borrow_mut().0.copy(from, to, bytes, stops)
    }
}

/// Drivers that break the rules break their own devices, and no step goes on without end.
#[test]
fn drivers_that_change_everything_meanwhile_break_only_themselves() {
    let mut outcomes = [0; 4];
    for seed in 0..40 {
        let mut random = Random::new(seed);
        let mut link = Link::between(DEVICES);
        for _ in 0..50 {
            let mut sender = Driver::start(&mut link, End::Sender, 8);
            let mut receiver = Driver::start(&mut link, End::Receiver, 8);
            let mut answers = Driver::second(&mut link, End::Sender, 8);
            start_events(&mut link);
            for number in 0..4 {
                let content = match random.once_in(4) {
                    true => header(99, 0, STREAM, 0),
                    false => packet(STREAM, 0, &bytes(3000)),
                };
                sender.add(&mut link, &[44, 3000], &content);
                answers.add(&mut link, &[20, 100], &[]);
                receiver.add(&mut link, &[44, 2000], &[]);
                offer_event(&mut link, number, 4);
            }
            for _ in 0..60 {
                if random.once_in(20) {
                    let _ = link.devices[0].peer_changed(false);
                }
                let before = link.memory.accesses.get();
                let mut memory = Changing::new(&mut link.memory, &mut random, Some(OWN));
                let step = link.direction.step(
                    &link.devices[0],
                    &link.devices[1],
                    &mut memory,
                    after_a_piece(true),
                );
                // Two walks of the receiver's buffer, one of the sender's, and the used rings.
                assert!(link.memory.accesses.get() - before <= 3 * 24 + 8);
                outcomes[match step {
                    Step::Idle => 0,
                    Step::Moved { .. } => 1,
                    Step::Claimed | Step::Refused { .. } => unreachable!(),
                    Step::Broken(End::Sender) => 2,
                    Step::Broken(End::Receiver) => 3,
                }] += 1;
            }
        }
    }
    assert!(outcomes.iter().all(|&it| it > 100), "{outcomes:?}");
}
