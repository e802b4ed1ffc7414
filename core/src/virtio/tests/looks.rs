// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a step does between two looks for interrupts, against drivers that make it long or that a pause could help.

use super::driver::{AVAILABLE, BUFFERS, DESCRIPTORS, Driver, Link, after_a_piece};
use super::packets::{DEVICES, OWN, PEER, STREAM, bytes, header, packet, word};
use crate::virtio::link_for_tests::NETWORK_CARD;
use crate::virtio::{End, Kind, Step};
use std::rc::Rc;
use std::vec;
use std::vec::Vec;

const CARD: Kind = Kind::Network {
    mac: [2; 6],
    offloads: true,
};
/// Most accesses between two looks, in the steps of these tests.
const MOST_ACCESSES: usize = 3;

/// A step that pauses after its first piece of work, or not at all, and its most accesses without a look.
fn counted(link: &mut Link, pauses: bool) -> (Step, usize) {
    let accesses = Rc::clone(&link.memory.accesses);
    let (mut before, mut most) = (accesses.get(), 0);
    let mut pause = after_a_piece(pauses);
    let step = link.step_until(|| {
        most = most.max(accesses.get() - before);
        before = accesses.get();
        pause()
    });
    (step, most.max(accesses.get() - before))
}

/// Steps until none has anything to do. Returns the most accesses without a look.
fn until_idle(link: &mut Link, pauses: bool) -> usize {
    let mut most = 0;
    for _ in 0..1000 {
        let (step, accesses) = counted(link, pauses);
        most = most.max(accesses);
        match step {
            Step::Idle => return most,
            Step::Moved { .. } | Step::Refused { .. } => {}
            step => panic!("{step:?}"),
        }
    }
    panic!("the steps do not end");
}

/// So many bytes in 24 parts, of which all but one have at most one byte.
fn cuts(bytes: u32) -> Vec<Vec<u32>> {
    let many = |small| {
        let mut parts = vec![small; 23];
        parts.push(bytes - 23 * small);
        parts
    };
    let mut last = many(1);
    last.rotate_left(12);
    vec![vec![bytes], many(1), many(0), last]
}

fn write_descriptor(link: &mut Link, end: End, number: u16, bytes: u32, flags: u16, next: u16) {
    let place = DESCRIPTORS + 16 * u64::from(number);
    let rest = u64::from(bytes) | u64::from(flags) << 32 | u64::from(next) << 48;
    link.memory.write(end, place, &BUFFERS.to_le_bytes());
    link.memory.write(end, place + 8, &rest.to_le_bytes());
}

fn offer(link: &mut Link, end: End, number: u16, first: u16) {
    let entry = AVAILABLE + 4 + 2 * u64::from(number);
    link.memory.write(end, entry, &first.to_le_bytes());
    let index = (number + 1).to_le_bytes();
    link.memory.write(end, AVAILABLE + 2, &index);
}

/// The first buffer has room for the header; the other 255 are one and the same, of 24 parts without a byte.
#[test]
fn buffers_without_room_do_not_keep_the_core_from_looking() {
    let mut link = Link::between([CARD, CARD]);
    let mut sender = Driver::start(&mut link, End::Sender, 16);
    let _receiver = Driver::start(&mut link, End::Receiver, 256);
    for number in 0..24 {
        let flags = if number < 23 { 3 } else { 2 };
        write_descriptor(&mut link, End::Receiver, number, 0, flags, number + 1);
    }
    write_descriptor(&mut link, End::Receiver, 24, 12, 2, 0);
    offer(&mut link, End::Receiver, 0, 24);
    for number in 1..256 {
        offer(&mut link, End::Receiver, number, 0);
    }
    sender.add(&mut link, &[1012], &[0; 1012]);
    let mut steps = 0;
    while sender.take(&link).is_none() {
        let (step, most) = counted(&mut link, true);
        assert!(matches!(step, Step::Moved { .. }), "{step:?}");
        assert!(most <= MOST_ACCESSES, "{most} accesses");
        steps += 1;
        assert!(steps < 10_000, "the frame is never dropped");
    }
}

/// 65,535 is a number that a driver can write, and no descriptor has it: with a pause as without one.
#[test]
fn a_pause_does_not_end_a_chain_that_goes_on() {
    for pauses in [false, true] {
        let mut link = Link::between([CARD, CARD]);
        let _sender = Driver::start(&mut link, End::Sender, 16);
        let mut receiver = Driver::start(&mut link, End::Receiver, 16);
        receiver.add(&mut link, &[2000], &[]);
        write_descriptor(&mut link, End::Sender, 0, 100, 1, u16::MAX);
        offer(&mut link, End::Sender, 0, 0);
        let mut steps = vec![];
        for _ in 0..10 {
            steps.push(link.step_until(after_a_piece(pauses)));
        }
        assert!(steps.contains(&Step::Broken(End::Sender)), "{steps:?}");
        assert_eq!(receiver.take(&link), None);
    }
}

/// A usual frame or packet takes few looks: before each piece of work, and a few more.
#[test]
fn a_usual_frame_takes_few_looks() {
    let content = [0; 112];
    for (kinds, least) in [([CARD; 2], 12), (DEVICES, 44)] {
        for from in [&[112][..], &[least, 112 - least]] {
            let mut link = Link::between(kinds);
            let mut sender = Driver::start(&mut link, End::Sender, 16);
            let mut receiver = Driver::start(&mut link, End::Receiver, 16);
            let sent = match least {
                44 => packet(STREAM, 0, &content[44..]),
                _ => content.to_vec(),
            };
            receiver.add(&mut link, &[2000], &[]);
            sender.add(&mut link, from, &sent);
            let mut looks = 0;
            let _ = link.step_until(|| {
                looks += 1;
                false
            });
            assert_eq!(receiver.take(&link).map(|it| it.len()), Some(112));
            assert!(looks <= 16, "{looks}");
        }
    }
}

#[test]
fn a_header_of_many_parts_does_not_keep_the_core_from_looking() {
    let mut worst = 0;
    for pauses in [false, true] {
        for from in cuts(1044) {
            for to in cuts(1100) {
                let mut link = Link::between(DEVICES);
                let mut sender = Driver::start(&mut link, End::Sender, 64);
                let mut receiver = Driver::start(&mut link, End::Receiver, 64);
                for _ in 0..2 {
                    receiver.add(&mut link, &to, &[]);
                    sender.add(&mut link, &from, &packet(STREAM, 0, &bytes(1000)));
                }
                worst = worst.max(until_idle(&mut link, pauses));
                for _ in 0..2 {
                    let received = receiver.take(&link).unwrap();
                    assert_eq!(word(&received, 0), OWN);
                    assert_eq!(received[8..], packet(STREAM, 0, &bytes(1000))[8..]);
                    assert_eq!(sender.take(&link), Some(vec![]));
                }
            }
        }
    }
    assert!(worst <= MOST_ACCESSES, "{worst} accesses");
}

/// A packet that is larger than the receiver's buffers has a header in each.
#[test]
fn the_headers_of_a_large_packet_do_not_keep_the_core_from_looking() {
    let mut worst = 0;
    for pauses in [false, true] {
        for from in cuts(4044) {
            for to in cuts(500) {
                let mut link = Link::between(DEVICES);
                let mut sender = Driver::start(&mut link, End::Sender, 256);
                let mut receiver = Driver::start(&mut link, End::Receiver, 256);
                for _ in 0..9 {
                    receiver.add(&mut link, &to, &[]);
                }
                sender.add(&mut link, &from, &packet(STREAM, 0, &bytes(4000)));
                worst = worst.max(until_idle(&mut link, pauses));
                let packets = core::iter::from_fn(|| receiver.take(&link));
                let received: Vec<_> = packets.flat_map(|it| it[44..].to_vec()).collect();
                assert_eq!(received, bytes(4000));
                assert_eq!(sender.take(&link), Some(vec![]));
            }
        }
    }
    assert!(worst <= MOST_ACCESSES, "{worst} accesses");
}

#[test]
fn a_packet_that_is_dropped_does_not_keep_the_core_from_looking() {
    let mut worst = 0;
    for pauses in [false, true] {
        let malformed = header(1 << 32 | u64::from(PEER), 0, STREAM, 0);
        for (sent, bytes) in [(&malformed[..], 44), (&malformed[..43], 43)] {
            for from in cuts(bytes) {
                let mut link = Link::between(DEVICES);
                let mut sender = Driver::start(&mut link, End::Sender, 64);
                let _receiver = Driver::start(&mut link, End::Receiver, 64);
                for _ in 0..2 {
                    sender.add(&mut link, &from, sent);
                }
                worst = worst.max(until_idle(&mut link, pauses));
                for _ in 0..2 {
                    assert_eq!(sender.take(&link), Some(vec![]));
                }
            }
        }
    }
    assert!(worst <= MOST_ACCESSES, "{worst} accesses");
}

/// Interrupts that come again and again do not keep back an answer.
#[test]
fn an_answer_does_not_keep_the_core_from_looking() {
    let mut worst = 0;
    for from in cuts(44) {
        for to in cuts(100) {
            for interrupted in [0, 1, 7, 200] {
                let mut link = Link::between(DEVICES);
                let mut sender = Driver::start(&mut link, End::Sender, 64);
                let mut answers = Driver::second(&mut link, End::Sender, 64);
                answers.add(&mut link, &to, &[]);
                sender.add(&mut link, &from, &header(2, 0, STREAM, 0));
                for _ in 0..interrupted {
                    worst = worst.max(counted(&mut link, true).1);
                }
                if interrupted == 200 {
                    assert_eq!((answers.used(&link), sender.used(&link)), (1, 1));
                }
                worst = worst.max(until_idle(&mut link, false));
                let answer = answers.take(&link).unwrap();
                assert_eq!((answer.len(), word(&answer, 0)), (44, 2));
                assert_eq!(sender.take(&link), Some(vec![]));
                assert_eq!((answers.used(&link), sender.used(&link)), (1, 1));
            }
        }
    }
    assert!(worst <= MOST_ACCESSES, "{worst} accesses");
}

/// With the header that passes, or of which nothing passes; in one buffer and in several.
#[test]
fn a_frame_of_many_parts_does_not_keep_the_core_from_looking() {
    let mut worst = 0;
    for (kind, room) in [(NETWORK_CARD, 1100), (CARD, 1100), (CARD, 300)] {
        for pauses in [false, true] {
            for from in cuts(1012) {
                for to in cuts(room) {
                    let mut link = Link::between([kind; 2]);
                    let mut sender = Driver::start(&mut link, End::Sender, 64);
                    let mut receiver = Driver::start(&mut link, End::Receiver, 256);
                    for _ in 0..8 {
                        receiver.add(&mut link, &to, &[]);
                    }
                    let mut sent = vec![0; 12];
                    sent.extend(bytes(1000));
                    for _ in 0..2 {
                        sender.add(&mut link, &from, &sent);
                        worst = worst.max(until_idle(&mut link, pauses));
                        let buffers = core::iter::from_fn(|| receiver.take(&link));
                        let received: Vec<_> = buffers.flatten().collect();
                        assert_eq!(u32::from(received[10]), 1012_u32.div_ceil(room));
                        assert_eq!(received[12..], sent[12..]);
                        assert_eq!(sender.take(&link), Some(vec![]));
                    }
                }
            }
        }
    }
    assert!(worst <= MOST_ACCESSES, "{worst} accesses");
}

/// Frames that are shorter than a header, and frames that the receiver has not accepted or has no room for.
#[test]
fn a_frame_that_is_dropped_does_not_keep_the_core_from_looking() {
    let mut worst = 0;
    let plain = Kind::Network {
        mac: [2; 6],
        offloads: false,
    };
    for (kinds, header, length, room) in [
        ([plain; 2], 0, 11, 2000),
        ([CARD; 2], 0, 11, 2000),
        ([CARD; 2], 9, 40, 2000),
        ([CARD, plain], 1, 40, 2000),
        ([plain; 2], 0, 40, 11),
    ] {
        for pauses in [false, true] {
            for from in if length > 23 {
                cuts(length)
            } else {
                vec![vec![1; 11]]
            } {
                for to in if room > 23 {
                    cuts(room)
                } else {
                    vec![vec![1; 11]]
                } {
                    let mut link = Link::between(kinds);
                    let mut sender = Driver::start(&mut link, End::Sender, 64);
                    let mut receiver = Driver::start(&mut link, End::Receiver, 64);
                    receiver.add(&mut link, &to, &[]);
                    let mut sent = vec![0; length as usize];
                    sent[1] = header;
                    for _ in 0..2 {
                        sender.add(&mut link, &from, &sent);
                    }
                    worst = worst.max(until_idle(&mut link, pauses));
                    assert_eq!(receiver.take(&link), None);
                    for _ in 0..2 {
                        assert_eq!(sender.take(&link), Some(vec![]));
                    }
                }
            }
        }
    }
    assert!(worst <= MOST_ACCESSES, "{worst} accesses");
}
