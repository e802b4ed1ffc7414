// SPDX-License-Identifier: MIT OR Apache-2.0
//! Drivers that break the rules: what is said of them, and what their peers see.

use super::*;
use crate::fake::printed;

const OUTSIDE: (u64, u32) = (GUEST_MEMORY - 0x1000, 0x40);

fn reports() -> usize {
    let all = printed();
    let lines = all.lines();
    let are = |line: &&str| line.contains("its driver of link 0 breaks the rules of virtio");
    lines.filter(are).count()
}

/// Guest 0 breaks the rules, in a card that it has reset before.
fn breaks(bench: &mut Bench) {
    comes_up(bench, 0);
    offers(bench, 0, TRANSMIT, 0, OUTSIDE);
    bench.iterations(40);
    assert_ne!(read(bench, 0, STATUS) & NEEDS_RESET, 0);
}

#[test]
fn a_driver_that_breaks_the_rules_is_reported_once_in_each_life() {
    let mut bench = running(2);
    comes_up(&mut bench, 1);
    offers_receive(&mut bench, 1, 0);
    assert_eq!(reports(), 0);
    breaks(&mut bench);
    bench.iterations(200);
    assert_eq!(reports(), 1, "{}", printed());
    assert!(printed().contains(&std::format!(
        "guest {}: its driver",
        bench.machine.guest(GuestId(0)).config.name
    )));
    breaks(&mut bench);
    bench.iterations(200);
    assert_eq!(reports(), 1, "it would flood the console");
    bench.does(0, 0, |cpu| cpu.hvc([psci::SYSTEM_RESET, 0, 0, 0]));
    bench.until("a new life", |bench| bench.life(0) == 2);
    bench.until("it runs", |bench| bench.phase(0) == Phase::Running);
    breaks(&mut bench);
    bench.iterations(200);
    assert_eq!(reports(), 2);
}

/// The frame has reached its receiver before the sender's rule is seen to be broken: the receiver is told of it.
#[test]
fn a_receiver_is_told_of_a_frame_though_the_sender_breaks_the_rules() {
    let mut bench = running(2);
    bench.opens_gic(1, 0, &[LINK_INTERRUPT]);
    comes_up(&mut bench, 0);
    comes_up(&mut bench, 1);
    write(&mut bench, 1, INTERRUPT_ACK, u32::MAX);
    offers_receive(&mut bench, 1, 0);
    write(&mut bench, 0, QUEUE_SEL, TRANSMIT);
    write(&mut bench, 0, QUEUE_DEVICE, 0x1000);
    transmits(&mut bench, 0, 0, b"a frame");
    assert_eq!(bench.acknowledges(1, 0), LINK_INTERRUPT);
    let status = read(&mut bench, 1, INTERRUPT_STATUS);
    assert_eq!(status, USED_BUFFER | CONFIGURATION);
    assert_eq!(given_back(&mut bench, 1, RECEIVE), (1, 12 + 7));
    assert_ne!(read(&mut bench, 0, STATUS) & NEEDS_RESET, 0);
}

/// The same if the sender is preempted at any time: the receiver runs meanwhile, and a vCPU of its guest passes the interrupt on.
#[test]
fn a_receiver_is_told_of_a_frame_though_the_sender_breaks_the_rules_and_is_preempted() {
    interrupts_the_receiver_of_a_preempted_sender(|bench| {
        write(bench, 1, QUEUE_SEL, TRANSMIT);
        // The index of its used ring is outside of its memory, and the first element is not.
        write(bench, 1, QUEUE_DEVICE, GUEST_MEMORY as u32 - 4);
    });
}

/// A buffer may begin with the first byte of memory and end with the last one; not a byte before or behind them.
#[test]
fn buffers_may_lie_at_both_ends_of_memory() {
    let end = GUEST_MEMORY + GUEST_MEMORY_SIZE;
    for (start, is_good) in [
        (GUEST_MEMORY, true),
        (GUEST_MEMORY - 1, false),
        (end - 72, true),
        (end - 71, false),
    ] {
        for at_sender in [true, false] {
            let mut bench = running(2);
            comes_up(&mut bench, 0);
            comes_up(&mut bench, 1);
            if at_sender {
                // Its header is not looked at.
                offers_receive(&mut bench, 1, 0);
                offers(&mut bench, 0, TRANSMIT, 0, (start, 72));
            } else {
                offers(&mut bench, 1, RECEIVE, 0, (start, 72));
                transmits(&mut bench, 0, 0, &[5; 60]);
            }
            bench.iterations(40);
            let end = u8::from(!at_sender);
            let is_down = read(&mut bench, end, STATUS) & NEEDS_RESET != 0;
            let is_header_outside = at_sender && start < GUEST_MEMORY;
            assert_eq!(is_down, !is_good && !is_header_outside, "{start:#x}");
        }
    }
}
