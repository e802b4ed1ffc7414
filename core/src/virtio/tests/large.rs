// SPDX-License-Identifier: MIT OR Apache-2.0
//! Frames of up to 64 KiB between two drivers that have accepted them.

use super::driver::{Driver, Link, after_a_piece};
use super::packets::Changing;
use crate::virtio::link_for_tests::NETWORK_CARD;
use crate::virtio::{End, Kind, STRETCH, Step};
use proptest::prelude::*;
use std::collections::VecDeque;
use std::vec;
use std::vec::Vec;

const HEADER: usize = 12;
const MAX_FRAME: usize = 65_535 + 18;
/// TCP over IPv4, with a checksum to be computed, in segments of 1,448 bytes.
const LARGE_HEADER: [u8; HEADER] = [1, 1, 66, 0, 0xa8, 5, 34, 0, 16, 0, 0xee, 0xee];

const CARD: Kind = Kind::Network {
    mac: [2; 6],
    offloads: true,
};

fn frame(header: [u8; HEADER], bytes: usize, first: u8) -> Vec<u8> {
    let mut frame = header.to_vec();
    frame.extend((0..bytes).map(|at| (at as u8).wrapping_mul(7).wrapping_add(first)));
    frame
}

fn connected(size: u16) -> (Link, Driver, Driver) {
    let mut link = Link::between([CARD, CARD]);
    let sender = Driver::start(&mut link, End::Sender, size);
    let receiver = Driver::start(&mut link, End::Receiver, size);
    (link, sender, receiver)
}

/// What the receiver has got: the header, and the frame's bytes of all its buffers.
fn receive(link: &Link, receiver: &mut Driver) -> Option<Vec<u8>> {
    let mut frame = receiver.take(link)?;
    let buffers = u16::from_le_bytes([frame[10], frame[11]]);
    assert!(buffers > 0);
    for _ in 1..buffers {
        frame.extend(receiver.take(link).expect("all buffers at once"));
    }
    Some(frame)
}

/// As it arrives: with the number of buffers.
fn arrived(mut frame: Vec<u8>, buffers: u16) -> Vec<u8> {
    frame[10..12].copy_from_slice(&buffers.to_le_bytes());
    frame
}

#[test]
fn a_large_frame_arrives_in_as_many_buffers_as_it_needs() {
    for (bytes, room, buffers) in [
        (0, 1526, 1),
        (1514, 1526, 1),
        (1515, 1526, 2),
        (MAX_FRAME, 4096, 17),
        (20_000, 12, 1667 + 1),
    ] {
        let size = if buffers > 32 { 256 } else { 32 };
        let (mut link, mut sender, mut receiver) = connected(size);
        if buffers > 32 {
            // More than all buffers have room for: the frame is dropped, and the next one arrives.
            while receiver.add(&mut link, &[room], &[]) {}
            sender.add(&mut link, &[20_012], &frame(LARGE_HEADER, bytes, 3));
            link.short_steps();
            assert_eq!(sender.take(&link), Some(vec![]));
            assert_eq!(receiver.take(&link), None);
            let small = frame([0; HEADER], 20, 9);
            sender.add(&mut link, &[32], &small);
            link.short_steps();
            assert_eq!(receive(&link, &mut receiver), Some(arrived(small, 3)));
            continue;
        }
        while receiver.add(&mut link, &[room], &[]) {}
        let sent = frame(LARGE_HEADER, bytes, 3);
        let half = bytes as u32 / 2;
        assert!(sender.add(&mut link, &[12, half, bytes as u32 - half], &sent));
        let (mut steps, mut interrupts) = (0, 0);
        while let Step::Moved {
            interrupt_sender,
            interrupt_receiver,
        } = link.short_step()
        {
            steps += 1;
            interrupts += usize::from(interrupt_receiver);
            let has_ended = sender.take(&link).is_some();
            assert_eq!(has_ended, interrupt_sender);
            assert!(!has_ended || interrupts == 1, "the receiver has it first");
        }
        // At most three pieces of work for each stretch and each buffer, and some for the header and the end.
        let (stretches, buffers_filled) = (bytes / STRETCH as usize, usize::from(buffers));
        assert!(steps <= 3 * (stretches + buffers_filled) + 20, "{steps}");
        assert_eq!(interrupts, 1);
        assert_eq!(receive(&link, &mut receiver), Some(arrived(sent, buffers)));
    }
}

/// So the way between two looks for interrupts is short, however the guests cut their buffers.
#[test]
fn a_step_asks_after_each_stretch_whether_to_pause() {
    for parts in [&[64_012][..], &[12, 32_000, 32_000], &[2780; 23], &[43; 24]] {
        for room in [1526, 4096, 70_000] {
            let (mut link, mut sender, mut receiver) = connected(64);
            while receiver.add(&mut link, &[room], &[]) {}
            let all: u32 = parts.iter().sum();
            let sent = frame(LARGE_HEADER, all as usize - HEADER, 3);
            sender.add(&mut link, parts, &sent);
            let mut asked = 0;
            let step = link.step_until(|| {
                asked += 1;
                false
            });
            assert!(matches!(step, Step::Moved { .. }));
            let buffers = all.div_ceil(room);
            assert_eq!(
                receive(&link, &mut receiver),
                Some(arrived(sent, buffers as u16)),
                "one step has moved all of it"
            );
            // A stretch ends where a part ends.
            let least = (parts.len() as u32 - 1).max(all / STRETCH);
            assert!(asked >= least, "{asked} of {least}");
        }
    }
}

#[test]
fn only_what_both_have_agreed_on_passes() {
    let (mut link, mut sender, mut receiver) = connected(8);
    for segmentation in [2, 3, 5, 0x81, 0xff] {
        receiver.add(&mut link, &[2000], &[]);
        let header = [0, segmentation, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        sender.add(&mut link, &[72], &frame(header, 60, 1));
        link.short_steps();
        assert_eq!(sender.take(&link), Some(vec![]));
        assert_eq!(receiver.take(&link), None, "{segmentation}");
    }
    // Whether the checksum is right is for the receiver to see.
    let header = [0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    sender.add(&mut link, &[72], &frame(header, 60, 1));
    let _ = link.step_until(|| false);
    assert_eq!(receiver.take(&link).unwrap()[0], 1);
}

#[test]
fn a_frame_that_is_too_large_or_too_short_is_dropped() {
    for bytes in [MAX_FRAME + 1, 100_000] {
        let (mut link, mut sender, mut receiver) = connected(64);
        while receiver.add(&mut link, &[2400], &[]) {}
        sender.add(
            &mut link,
            &[12, bytes as u32],
            &frame(LARGE_HEADER, bytes, 0),
        );
        link.short_steps();
        assert_eq!(sender.take(&link), Some(vec![]));
        assert_eq!(receiver.take(&link), None);
    }
    let (mut link, mut sender, mut receiver) = connected(8);
    receiver.add(&mut link, &[2000], &[]);
    sender.add(&mut link, &[11], &[0; 11]);
    link.short_steps();
    assert_eq!(sender.take(&link), Some(vec![]));
    assert_eq!(receiver.take(&link), None);
}

#[test]
fn a_receiver_whose_buffer_has_no_room_for_a_header_breaks_the_rules() {
    let (mut link, mut sender, mut receiver) = connected(8);
    receiver.add(&mut link, &[11], &[]);
    sender.add(&mut link, &[72], &frame(LARGE_HEADER, 60, 1));
    assert_eq!(link.step(), Step::Broken(End::Receiver));
}

#[test]
fn a_receiver_that_has_accepted_less_gets_only_what_it_knows() {
    let mut link = Link::between([CARD, NETWORK_CARD]);
    let mut sender = Driver::start(&mut link, End::Sender, 8);
    let mut receiver = Driver::start(&mut link, End::Receiver, 8);
    receiver.add(&mut link, &[1530], &[]);
    for header in [[1, 0], [0, 1]] {
        let header = [header[0], header[1], 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        sender.add(&mut link, &[72], &frame(header, 60, 1));
        let mut refused = 0;
        for _ in 0..10 {
            refused += usize::from(matches!(link.short_step(), Step::Refused { .. }));
        }
        assert_eq!((refused, sender.take(&link)), (1, Some(vec![])));
    }
    let plain = frame([0; HEADER], 60, 1);
    sender.add(&mut link, &[72], &plain);
    assert!(matches!(link.step(), Step::Moved { .. }));
    assert_eq!(receiver.take(&link), Some(arrived(plain, 1)));
}

#[test]
fn a_frame_waits_within_for_more_buffers() {
    let (mut link, mut sender, mut receiver) = connected(16);
    let sent = frame(LARGE_HEADER, 10_000, 5);
    sender.add(&mut link, &[10_012], &sent);
    for number in 0..7 {
        link.short_steps();
        assert_eq!(receiver.take(&link), None, "not before all of it is there");
        assert!(!link.may_go_on(), "in vain");
        receiver.add(&mut link, &[1500], &[]);
        assert!(link.may_go_on(), "{number}");
    }
    link.short_steps();
    assert_eq!(receive(&link, &mut receiver), Some(arrived(sent, 7)));
}

/// The rest of a frame whose beginning another life has, or the beginning of one whose rest will never come.
#[test]
fn a_reset_within_a_frame_leaves_nothing_of_it() {
    for end in [End::Sender, End::Receiver] {
        let (mut link, mut sender, mut receiver) = connected(16);
        while receiver.add(&mut link, &[2000], &[]) {}
        sender.add(&mut link, &[12, 9000], &frame(LARGE_HEADER, 9000, 5));
        // The first buffer is full, and the next one has been begun.
        for _ in 0..16 {
            assert!(matches!(link.short_step(), Step::Moved { .. }));
        }
        match end {
            End::Sender => sender = Driver::start(&mut link, end, 16),
            End::Receiver => {
                receiver = Driver::start(&mut link, end, 16);
                while receiver.add(&mut link, &[2000], &[]) {}
                // The rest.
                link.short_steps();
                assert_eq!(sender.take(&link), Some(vec![]));
                assert_eq!(receiver.take(&link), None);
            }
        }
        let sent = frame(LARGE_HEADER, 3000, 6);
        sender.add(&mut link, &[3012], &sent);
        link.short_steps();
        assert_eq!(receive(&link, &mut receiver), Some(arrived(sent, 2)));
        assert_eq!(receiver.take(&link), None);
    }
}

proptest! {
    #[test]
    fn large_frames_arrive_whole_and_in_order(
        frames in prop::collection::vec((0..9000_usize, 0..12_u32, 0..9000_u32), 1..20),
        pauses in prop::collection::vec(any::<bool>(), 1..20),
        // The 16 buffers of two parts that 32 descriptors allow have room for any of the frames.
        rooms in prop::collection::vec((12..3000_u32, 560..2000_u32), 1..20),
    ) {
        let (mut link, mut sender, mut receiver) = connected(32);
        let (mut number, mut under_way, mut received) = (0_u8, VecDeque::new(), 0);
        let mut rooms = rooms.iter().cycle();
        let mut pauses = pauses.iter().copied().cycle();
        for &(bytes, first, second) in &frames {
            number += 1;
            let sent = frame(LARGE_HEADER, bytes, number);
            let all = sent.len() as u32;
            let second = second.min(all - first);
            let parts = [first, second, all - first - second];
            while !sender.add(&mut link, &parts, &sent) {
                prop_assert!(false, "the sender's buffers come back");
            }
            under_way.push_back(sent);
            loop {
                loop {
                    let mut is_after = after_a_piece(true);
                    let step = link.step_until(|| is_after() && pauses.next() == Some(true));
                    let Step::Moved { .. } = step else {
                        break;
                    };
                }
                if let Some(frame) = receive(&link, &mut receiver) {
                    let buffers = u16::from_le_bytes([frame[10], frame[11]]);
                    let sent = under_way.pop_front().unwrap();
                    prop_assert_eq!(frame, arrived(sent, buffers));
                    received += 1;
                }
                if sender.take(&link).is_some() {
                    break;
                }
                let (one, other) = rooms.next().unwrap();
                prop_assert!(receiver.add(&mut link, &[*one, *other], &[]));
                let _ = link.may_go_on();
            }
        }
        while let Some(frame) = receive(&link, &mut receiver) {
            let sent = under_way.pop_front().unwrap();
            prop_assert_eq!(&frame[HEADER..], &sent[HEADER..]);
            received += 1;
        }
        prop_assert_eq!(received, frames.len());
    }
}

/// Drivers that break the rules break their own cards, and no step goes on without end.
#[test]
fn drivers_that_change_everything_within_a_frame_break_only_themselves() {
    let mut outcomes = [0; 4];
    for seed in 0..60 {
        let mut random = super::fuzz::Random::new(seed);
        let mut link = Link::between([CARD, [CARD, NETWORK_CARD][usize::from(seed >= 40)]]);
        for _ in 0..50 {
            let mut sender = Driver::start(&mut link, End::Sender, 8);
            let mut receiver = Driver::start(&mut link, End::Receiver, 8);
            let (header, bytes) = match seed {
                0..40 => (LARGE_HEADER, 6000),
                _ => ([0; HEADER], 1500),
            };
            for _ in 0..4 {
                sender.add(&mut link, &[12, bytes], &frame(header, bytes as usize, 1));
                receiver.add(&mut link, &[2000], &[]);
            }
            for _ in 0..20 {
                let before = link.memory.accesses.get();
                let mut memory = Changing::new(&mut link.memory, &mut random, None);
                let step = link.direction.step(
                    &link.devices[0],
                    &link.devices[1],
                    &mut memory,
                    after_a_piece(true),
                );
                assert!(link.memory.accesses.get() - before <= 2 * 24 + 8);
                outcomes[match step {
                    Step::Idle => 0,
                    Step::Moved { .. } => 1,
                    Step::Refused { .. } => 1,
                    Step::Claimed => unreachable!(),
                    Step::Broken(End::Sender) => 2,
                    Step::Broken(End::Receiver) => 3,
                }] += 1;
            }
        }
    }
    assert!(outcomes.iter().all(|&it| it > 100), "{outcomes:?}");
}
