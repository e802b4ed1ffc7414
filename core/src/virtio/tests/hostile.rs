// SPDX-License-Identifier: MIT OR Apache-2.0
//! Drivers that break the rules.

use super::driver::{BASE, Driver, Link, SIZE};
use crate::virtio::{End, Step};
use proptest::prelude::*;
use std::vec::Vec;

/// More accesses than the largest frame needs, in the largest number of parts.
const MOST_ACCESSES: usize = 100;

fn connected() -> (Link, Driver, Driver) {
    let mut link = Link::new();
    let sender = Driver::start(&mut link, End::Sender, 8);
    let receiver = Driver::start(&mut link, End::Receiver, 8);
    (link, sender, receiver)
}

/// One frame is under way. Overwrites `bytes` at `at` in the memory of `end`, and moves the frame.
fn disturbed(end: End, at: u64, bytes: &[u8]) -> Step {
    let (mut link, mut sender, mut receiver) = connected();
    receiver.add(&mut link, &[12, 1518], &[]);
    sender.add(&mut link, &[12, 200], &[1; 212]);
    link.memory.write(end, at, bytes);
    let step = link.step();
    if step != Step::Broken(end) {
        assert!(matches!(step, Step::Moved { .. } | Step::Idle), "{step:?}");
    }
    step
}

#[test]
fn a_driver_that_breaks_the_rules_is_named() {
    let descriptor = |number: u64, offset: u64| BASE + 16 * number + offset;
    for end in [End::Sender, End::Receiver] {
        let write = if end == End::Receiver { 2 } else { 0 };
        for (what, at, bytes) in [
            ("a circle", descriptor(0, 12), &[1 | write, 0, 0, 0][..]),
            ("a next descriptor that is none", descriptor(0, 14), &[8, 0]),
            ("the wrong direction", descriptor(1, 12), &[2 - write, 0]),
            ("an indirect descriptor", descriptor(0, 12), &[4 | write, 0]),
            ("a first descriptor that is none", BASE + 0x2004, &[8, 0]),
            ("more buffers than descriptors", BASE + 0x2002, &[9, 0]),
            ("an address outside", descriptor(1, 0), &[0; 8]),
            ("an address that wraps", descriptor(1, 0), &[0xff; 8]),
            ("a length that wraps", descriptor(1, 8), &[0xff; 4]),
        ] {
            let step = disturbed(end, at, bytes);
            // A length is only an offer: what lies behind the frame is not touched.
            let may_pass = what == "a length that wraps" && end == End::Receiver;
            let is_dropped = what == "a length that wraps" && end == End::Sender;
            match (may_pass, is_dropped) {
                (true, _) => assert!(matches!(step, Step::Moved { .. }), "{what}"),
                (_, true) => assert_ne!(step, Step::Idle, "{what}"),
                _ => assert_eq!(step, Step::Broken(end), "{what} of {end:?}"),
            }
        }
    }
}

#[test]
fn rings_outside_the_memory_are_refused() {
    use crate::virtio::registers::*;
    for register in [QUEUE_DESC_HIGH, QUEUE_DRIVER_HIGH, QUEUE_DEVICE_HIGH] {
        for end in [End::Sender, End::Receiver] {
            let (mut link, mut sender, mut receiver) = connected();
            receiver.add(&mut link, &[12, 1518], &[]);
            sender.add(&mut link, &[12, 60], &[1; 72]);
            let index = usize::from(end == End::Receiver);
            let queue = [&sender, &receiver][index].queue();
            let _ = link.devices[index].write(QUEUE_SEL, queue);
            let _ = link.devices[index].write(register, 0xffff_ffff);
            assert_eq!(link.step(), Step::Broken(end), "{register:#x}");
        }
    }
}

#[test]
fn a_broken_card_is_down_until_it_is_reset() {
    let (mut link, mut sender, _) = connected();
    sender.add(&mut link, &[72], &[1; 72]);
    link.devices[0].needs_reset();
    assert!(!link.devices[0].is_up());
    assert_eq!(link.step(), Step::Idle);
    let _sender = Driver::start(&mut link, End::Sender, 8);
    assert!(link.devices[0].is_up());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// Any bytes in both guests' rings and tables, changed between steps, and any writes of registers: a step ends, within
    /// its bound, and touches nothing but the guests' memory (which [`Memory`](super::driver::Memory) refuses).
    #[test]
    fn whatever_the_drivers_write_a_step_ends(
        changes in prop::collection::vec(
            (prop::bool::ANY, 0..0x4000_u64, any::<u64>(), 0..0x100_u64, any::<u32>()), 1..60),
    ) {
        let (mut link, mut sender, mut receiver) = connected();
        for _ in 0..3 {
            receiver.add(&mut link, &[12, 1518], &[]);
            sender.add(&mut link, &[12, 60], &[1; 72]);
        }
        for (of_receiver, at, value, register, word) in changes {
            let end = if of_receiver { End::Receiver } else { End::Sender };
            // In most cases an address inside.
            let value = match value % 4 {
                0 => value,
                1 => value & 0x000f_0007_0003_ffff,
                _ => BASE + value % SIZE,
            };
            link.memory.write(end, BASE + (at & !7), &value.to_le_bytes());
            let device = &link.devices[usize::from(of_receiver)];
            if register < 0x40 {
                let _ = device.write(4 * register, word);
            }
            let before = link.memory.accesses.get();
            let _ = link.step();
            prop_assert!(link.memory.accesses.get() - before <= MOST_ACCESSES);
            prop_assert!(!link.direction.is_claimed());
        }
        let all: Vec<usize> = link.memory.of.iter().map(Vec::len).collect();
        prop_assert_eq!(all, [SIZE as usize; 2]);
    }
}
