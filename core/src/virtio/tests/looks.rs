// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a step does between two looks for interrupts, against drivers that make it long or that a pause could help.

use super::driver::{AVAILABLE, BUFFERS, DESCRIPTORS, Driver, Link};
use crate::virtio::{End, Kind, Step};
use std::rc::Rc;
use std::vec;

const CARD: Kind = Kind::Network {
    mac: [2; 6],
    offloads: true,
};
/// Most accesses between two looks: a walk through each guest's longest buffer with two reads for each descriptor, and the rings.
const MOST_ACCESSES: usize = 2 * 2 * 24 + 12;

/// A step that pauses as soon as it may, and its most accesses without a look.
fn counted(link: &mut Link) -> (Step, usize) {
    let accesses = Rc::clone(&link.memory.accesses);
    let (mut before, mut most) = (accesses.get(), 0);
    let step = link.step_until(|| {
        most = most.max(accesses.get() - before);
        before = accesses.get();
        true
    });
    (step, most.max(accesses.get() - before))
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
        let (step, most) = counted(&mut link);
        assert!(matches!(step, Step::Moved { .. }), "{step:?}");
        assert!(most <= MOST_ACCESSES, "{most} accesses");
        steps += 1;
        assert!(steps < 600, "the frame is never dropped");
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
        for _ in 0..4 {
            steps.push(link.step_until(|| pauses));
        }
        assert!(steps.contains(&Step::Broken(End::Sender)), "{steps:?}");
        assert_eq!(receiver.take(&link), None);
    }
}
