// SPDX-License-Identifier: MIT OR Apache-2.0
//! Frames between two drivers that follow the rules.

use super::driver::{Driver, Link, after_a_piece};
use crate::virtio::{End, Step};
use proptest::prelude::*;
use std::collections::VecDeque;
use std::vec;
use std::vec::Vec;

const HEADER: usize = 12;
const MAX_FRAME: usize = 1518;

/// A frame with the header that the driver puts before it.
fn with_header(frame: &[u8], header: u8) -> Vec<u8> {
    let mut bytes = vec![header; HEADER];
    bytes.extend_from_slice(frame);
    bytes
}

/// Cuts so many bytes into parts at these places, in per mille; a part may be empty.
fn cut(bytes: usize, cuts: &[u32]) -> Vec<u32> {
    let mut places: Vec<_> = cuts.iter().map(|&it| bytes as u32 * it / 1000).collect();
    places.sort_unstable();
    places.push(bytes as u32);
    let mut before = 0;
    places
        .into_iter()
        .map(|place| place - core::mem::replace(&mut before, place))
        .collect()
}

/// Sends one frame from parts of these sizes to a buffer of parts of these sizes.
fn send(frame: &[u8], header: u8, from: &[u32], to: &[u32]) -> (Step, Option<Vec<u8>>) {
    let mut link = Link::new();
    let mut sender = Driver::start(&mut link, End::Sender, 16);
    let mut receiver = Driver::start(&mut link, End::Receiver, 16);
    assert!(receiver.add(&mut link, to, &[]));
    assert!(sender.add(&mut link, from, &with_header(frame, header)));
    let step = link.step();
    assert_eq!(sender.take(&link), Some(Vec::new()), "it is given back");
    assert_eq!(link.step(), Step::Idle);
    (step, receiver.take(&link))
}

#[test]
fn a_frame_arrives_with_a_header_of_the_device() {
    let frame: Vec<u8> = (0..100).collect();
    let (step, received) = send(&frame, 0xaa, &[12, 100], &[12, 1518]);
    let both = Step::Moved {
        interrupt_sender: true,
        interrupt_receiver: true,
    };
    assert_eq!(step, both);
    let mut expected = with_header(&frame, 0);
    expected[10] = 1;
    assert_eq!(received, Some(expected));
}

#[test]
fn a_frame_that_is_too_large_or_too_short_is_dropped() {
    for (bytes, room, arrives) in [
        (MAX_FRAME, 12 + 1518, true),
        (MAX_FRAME + 1, 4096, false),
        (100, 111, false),
        (0, 1530, true),
    ] {
        let frame = vec![7; bytes];
        let (_, received) = send(&frame, 0, &[bytes as u32 + 12], &[room]);
        assert_eq!(received.is_some(), arrives, "{bytes} bytes into {room}");
    }
    // Less than a header.
    let mut link = Link::new();
    let mut sender = Driver::start(&mut link, End::Sender, 4);
    let mut receiver = Driver::start(&mut link, End::Receiver, 4);
    receiver.add(&mut link, &[1530], &[]);
    sender.add(&mut link, &[11], &[0; 11]);
    assert!(matches!(link.step(), Step::Moved { .. }));
    assert_eq!(
        (sender.take(&link), receiver.take(&link)),
        (Some(vec![]), None)
    );
}

#[test]
fn a_driver_that_wants_no_interrupts_gets_none() {
    let mut link = Link::new();
    let mut sender = Driver::start(&mut link, End::Sender, 4);
    let mut receiver = Driver::start(&mut link, End::Receiver, 4);
    sender.want_interrupts(&mut link, false);
    receiver.want_interrupts(&mut link, false);
    receiver.add(&mut link, &[1530], &[]);
    sender.add(&mut link, &[72], &[0; 72]);
    let none = Step::Moved {
        interrupt_sender: false,
        interrupt_receiver: false,
    };
    assert_eq!(link.step(), none);
}

#[test]
fn frames_for_a_card_that_is_down_are_dropped() {
    let mut link = Link::new();
    let mut sender = Driver::start(&mut link, End::Sender, 4);
    for _ in 0..10 {
        assert!(sender.add(&mut link, &[72], &[0; 72]));
        assert!(matches!(link.step(), Step::Moved { .. }));
        assert_eq!(sender.take(&link), Some(vec![]));
    }
}

#[test]
fn a_receiver_without_buffers_holds_the_sender_back() {
    let mut link = Link::new();
    let mut sender = Driver::start(&mut link, End::Sender, 4);
    let mut receiver = Driver::start(&mut link, End::Receiver, 4);
    assert!(!link.may_go_on());
    for round in 0..3 {
        sender.add(&mut link, &[72], &[round; 72]);
        assert_eq!(link.step(), Step::Idle);
        assert_eq!(sender.take(&link), None);
        assert!(receiver.must_notify(&link));
        receiver.add(&mut link, &[1530], &[]);
        assert!(link.may_go_on());
        assert!(!link.may_go_on(), "once");
        assert!(matches!(link.step(), Step::Moved { .. }));
        assert_eq!(receiver.take(&link).unwrap()[12..], [round; 60]);
        assert_eq!(sender.take(&link), Some(vec![]));
    }
}

/// What happens on a link.
#[derive(Clone, Debug)]
enum Event {
    /// The sender transmits a frame of so many bytes, cut at these places.
    Send(usize, Vec<u32>),
    /// The receiver offers a buffer, cut at these places.
    Offer(Vec<u32>),
    /// A core moves the frame, or a part of it.
    Step { pauses: bool },
}

fn any_event() -> impl Strategy<Value = Event> {
    let cuts = || prop::collection::vec(0..1000_u32, 0..4);
    prop_oneof![
        3 => (0..=MAX_FRAME, cuts()).prop_map(|(bytes, cuts)| Event::Send(bytes, cuts)),
        // The header is in one part, as of every driver.
        3 => cuts().prop_map(Event::Offer),
        4 => any::<bool>().prop_map(|pauses| Event::Step { pauses }),
    ]
}

proptest! {
    #[test]
    fn frames_arrive_whole_once_and_in_order(
        sizes in (1..6_u32, 1..6_u32),
        events in prop::collection::vec(any_event(), 1..300),
    ) {
        let mut link = Link::new();
        let mut sender = Driver::start(&mut link, End::Sender, 1 << sizes.0);
        let mut receiver = Driver::start(&mut link, End::Receiver, 1 << sizes.1);
        let mut under_way = VecDeque::new();
        let (mut number, mut offered, mut to_come_back) = (0_u8, 0_usize, 0_usize);
        for event in events {
            match event {
                Event::Send(bytes, cuts) => {
                    number = number.wrapping_add(1);
                    let frame: Vec<u8> = (0..bytes).map(|at| number.wrapping_add(at as u8)).collect();
                    let content = with_header(&frame, number);
                    if sender.add(&mut link, &cut(content.len(), &cuts), &content) {
                        under_way.push_back(frame);
                    }
                }
                Event::Offer(cuts) => {
                    let mut parts = cut(MAX_FRAME, &cuts);
                    parts.insert(0, 12);
                    offered += usize::from(receiver.add(&mut link, &parts, &[]));
                    let _ = link.may_go_on();
                }
                Event::Step { pauses } => {
                    let can_move = !under_way.is_empty() && offered > 0 || to_come_back > 0;
                    match link.step_until(after_a_piece(pauses)) {
                        Step::Moved { .. } => {
                            prop_assert!(can_move || pauses);
                            if let Some(received) = receiver.take(&link) {
                                offered -= 1;
                                let expected = under_way.pop_front().unwrap();
                                prop_assert_eq!(&received[HEADER..], &expected[..]);
                                to_come_back += 1;
                            }
                            if sender.take(&link).is_some() {
                                to_come_back -= 1;
                            } else {
                                prop_assert!(pauses);
                            }
                        }
                        step => {
                            prop_assert_eq!(step, Step::Idle);
                            prop_assert!(!can_move);
                        }
                    }
                }
            }
        }
        prop_assert_eq!(receiver.take(&link), None);
    }
}

/// A card that is up and has no receive queue is no card for the frames: those that wait are dropped.
#[test]
fn frames_are_dropped_when_the_receivers_queue_goes() {
    use crate::virtio::registers::{QUEUE_READY, QUEUE_SEL};
    let mut link = Link::new();
    let mut sender = Driver::start(&mut link, End::Sender, 8);
    let _receiver = Driver::start(&mut link, End::Receiver, 8);
    sender.add(&mut link, &[72], &[1; 72]);
    assert_eq!(link.step(), Step::Idle);
    let _ = link.devices[1].write(QUEUE_SEL, 0);
    let effect = link.devices[1].write(QUEUE_READY, 0);
    assert_eq!(effect, crate::virtio::Effect::Receive);
    assert!(link.may_go_on());
    assert!(matches!(link.step(), Step::Moved { .. }));
    assert_eq!(sender.take(&link), Some(vec![]));
    assert_eq!(link.step(), Step::Idle);
}
