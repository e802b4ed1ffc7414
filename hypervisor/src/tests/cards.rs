// SPDX-License-Identifier: MIT OR Apache-2.0
//! Links between guests with virtio devices: network cards, and sockets.

mod faults;
mod lives;
mod meanwhile;
mod sockets;

use super::bench::Bench;
use super::guest::psci;
use super::systems::*;
use crate::fake;
use crate::guest_registers::GuestRegisters;
use spumone_config::GuestId;
use spumone_config::packed::{Policy, Trigger};
use spumone_core::psci::Phase;
use spumone_core::trap::SysReg;
use std::cell::RefCell;
use std::rc::Rc;
use std::vec::Vec;

/// Registers of a card (Virtio 1.2, section 4.2.2).
const REGISTERS: u64 = LINK_REGISTERS;
const DRIVER_FEATURES: u64 = REGISTERS + 0x20;
const DRIVER_FEATURES_SEL: u64 = REGISTERS + 0x24;
const QUEUE_SEL: u64 = REGISTERS + 0x30;
const QUEUE_NUM: u64 = REGISTERS + 0x38;
const QUEUE_READY: u64 = REGISTERS + 0x44;
const QUEUE_NOTIFY: u64 = REGISTERS + 0x50;
const INTERRUPT_STATUS: u64 = REGISTERS + 0x60;
const INTERRUPT_ACK: u64 = REGISTERS + 0x64;
const STATUS: u64 = REGISTERS + 0x70;
const QUEUE_DESC: u64 = REGISTERS + 0x80;
const QUEUE_DRIVER: u64 = REGISTERS + 0x90;
const QUEUE_DEVICE: u64 = REGISTERS + 0xa0;
const LINK_STATUS: u64 = REGISTERS + 0x106;
/// `VIRTIO_F_VERSION_1`, of the upper half of the features.
const VERSION_1: u32 = 1 << 0;
/// Acknowledged, driver, features and driver ok.
const DRIVER_OK: u32 = 0b1111;
const NEEDS_RESET: u64 = 1 << 6;
const USED_BUFFER: u64 = 1;
const CONFIGURATION: u64 = 2;
/// Queues.
const RECEIVE: u32 = 0;
const TRANSMIT: u32 = 1;
const SIZE: u32 = 4;
/// A descriptor's buffer is written by the card.
const WRITE: u16 = 2;
/// Bytes before each frame.
const HEADER: usize = 12;
/// Each buffer has so many bytes.
const BUFFER: u64 = 0x200;

fn descriptors(queue: u32) -> u64 {
    GUEST_MEMORY + 0x4000 + 0x1000 * u64::from(queue)
}
fn available(queue: u32) -> u64 {
    descriptors(queue) + 0x400
}
fn used(queue: u32) -> u64 {
    descriptors(queue) + 0x800
}
fn buffer(queue: u32, number: u16) -> u64 {
    GUEST_MEMORY + 0x8000 + 0x2000 * u64::from(queue) + BUFFER * u64::from(number)
}

/// Two guests with a network link, on a core each, or both on core 0, where the first one is more urgent.
fn running(cores: u8) -> Bench {
    let guests = [
        GuestParts::new(&[(0, 20)]),
        GuestParts::new(&[(cores - 1, 10)]),
    ];
    let mut system = system(cores, Policy::None, &guests);
    add_network_link(&mut system, 0, 1);
    let mut bench = Bench::boot(&system);
    if cores > 1 {
        bench.until_all_run();
    }
    bench
}

/// An urgent guest that sleeps, and one with a card, both on `core`; the guest with the other card is on the other core.
fn beside_an_urgent_guest(core: u8) -> Bench {
    let guests = [
        GuestParts::new(&[(core, 20)]).with_spi(40, 50, Trigger::Edge),
        GuestParts::new(&[(core, 10)]),
        GuestParts::new(&[(1 - core, 10)]),
    ];
    let mut system = system(2, Policy::None, &guests);
    add_network_link(&mut system, 1, 2);
    let mut bench = Bench::boot(&system);
    bench.until("the first guest runs", |bench| bench.entry(0, 0).count > 0);
    bench.opens_gic(0, 0, &[50]);
    bench.does(0, 0, |cpu| cpu.wfi());
    bench
}

/// Guest 1 transmits a frame to guest 2, and is preempted at any time meanwhile. If guest 2 has the frame, it has the interrupt for it, too. `prepares`:
/// what guest 1 does before.
fn interrupts_the_receiver_of_a_preempted_sender(prepares: fn(&mut Bench)) {
    let mut moved = 0;
    for accesses in 0..40 {
        let mut bench = beside_an_urgent_guest(0);
        bench.opens_gic(2, 0, &[LINK_INTERRUPT]);
        comes_up(&mut bench, 1);
        comes_up(&mut bench, 2);
        write(&mut bench, 2, INTERRUPT_ACK, u32::MAX);
        offers_receive(&mut bench, 2, 0);
        prepares(&mut bench);
        let place = (buffer(TRANSMIT, 0), 64);
        puts(&mut bench, 1, TRANSMIT, 0, place);
        fake::with(|machine| machine.rises_after_accesses = Some((accesses, 40)));
        let count = bench.entry(0, 0).count;
        write(&mut bench, 1, QUEUE_NOTIFY, TRANSMIT);
        bench.iterations(20);
        // The urgent guest runs from now on, unless the frame had fewer accesses.
        let is_preempted = bench.entry(0, 0).count > count;
        if is_preempted && given_back(&mut bench, 2, RECEIVE).0 == 1 {
            moved += 1;
            let interrupt = bench.look(2, 0, |cpu| cpu.acknowledge());
            assert_eq!(interrupt, Some(LINK_INTERRUPT), "after {accesses} accesses");
        }
    }
    assert_ne!(moved, 0);
}

fn write(bench: &mut Bench, guest: u8, register: u64, value: u32) {
    bench.does(guest, 0, move |cpu| cpu.store(register, value));
}

fn read(bench: &mut Bench, guest: u8, register: u64) -> u64 {
    let after = bench.does_and_returns(guest, 0, move |cpu| cpu.load(register));
    after.x[1]
}

fn write_memory(bench: &mut Bench, guest: u8, at: u64, bytes: Vec<u8>) {
    bench.look(guest, 0, move |cpu| cpu.write_memory(at, &bytes));
}

/// What the card wrote: the number of buffers given back, and the last one's length.
fn given_back(bench: &mut Bench, guest: u8, queue: u32) -> (u16, u32) {
    let area = bench.look(guest, 0, move |cpu| cpu.read_memory(used(queue), 0x40));
    let count = u16::from_le_bytes([area[2], area[3]]);
    let last = 4 + 8 * usize::from(count.wrapping_sub(1) % SIZE as u16);
    let length = area[last + 4..][..4].try_into().unwrap();
    (count, u32::from_le_bytes(length))
}

/// The driver of a guest starts: receive buffers are offered.
fn comes_up(bench: &mut Bench, guest: u8) {
    write(bench, guest, STATUS, 0);
    write(bench, guest, DRIVER_FEATURES_SEL, 1);
    write(bench, guest, DRIVER_FEATURES, VERSION_1);
    for queue in [RECEIVE, TRANSMIT] {
        write_memory(bench, guest, available(queue), [0; 0x800].to_vec());
        write(bench, guest, QUEUE_SEL, queue);
        write(bench, guest, QUEUE_NUM, SIZE);
        for (register, area) in [
            (QUEUE_DESC, descriptors(queue)),
            (QUEUE_DRIVER, available(queue)),
            (QUEUE_DEVICE, used(queue)),
        ] {
            write(bench, guest, register, area as u32);
            write(bench, guest, register + 4, (area >> 32) as u32);
        }
        write(bench, guest, QUEUE_READY, 1);
    }
    write(bench, guest, STATUS, DRIVER_OK);
}

/// Offers buffer `number` of a queue, at this place and of so many bytes; before that, `number` buffers were.
fn offers(bench: &mut Bench, guest: u8, queue: u32, number: u16, place: (u64, u32)) {
    puts(bench, guest, queue, number, place);
    write(bench, guest, QUEUE_NOTIFY, queue);
}

/// As [`offers`], and the card is not notified.
fn puts(bench: &mut Bench, guest: u8, queue: u32, number: u16, (at, length): (u64, u32)) {
    let flags = if queue == RECEIVE { WRITE } else { 0 };
    let slot = number % SIZE as u16;
    let mut descriptor = at.to_le_bytes().to_vec();
    descriptor.extend(length.to_le_bytes());
    descriptor.extend(flags.to_le_bytes());
    descriptor.extend([0, 0]);
    write_memory(
        bench,
        guest,
        descriptors(queue) + 16 * u64::from(slot),
        descriptor,
    );
    let entry = available(queue) + 4 + 2 * u64::from(slot);
    write_memory(bench, guest, entry, slot.to_le_bytes().to_vec());
    let index = (number + 1).to_le_bytes().to_vec();
    write_memory(bench, guest, available(queue) + 2, index);
}

/// Bytes before each frame, and the frame.
fn with_header(frame: &[u8]) -> Vec<u8> {
    let mut bytes = [0; HEADER].to_vec();
    bytes.extend(frame);
    bytes
}

/// Offers a whole receive buffer.
fn offers_receive(bench: &mut Bench, guest: u8, number: u16) {
    let place = (buffer(RECEIVE, number), BUFFER as u32);
    offers(bench, guest, RECEIVE, number, place);
}

/// Transmits a frame: `number` were before.
fn transmits(bench: &mut Bench, guest: u8, number: u16, frame: &[u8]) {
    let at = buffer(TRANSMIT, number);
    let bytes = with_header(frame);
    let length = bytes.len() as u32;
    write_memory(bench, guest, at, bytes);
    offers(bench, guest, TRANSMIT, number, (at, length));
}

fn received(bench: &mut Bench, guest: u8, number: u16, bytes: usize) -> Vec<u8> {
    let at = buffer(RECEIVE, number) + HEADER as u64;
    bench.look(guest, 0, move |cpu| cpu.read_memory(at, bytes))
}

#[test]
fn a_frame_reaches_the_peer_with_an_interrupt_at_both_ends() {
    let mut bench = running(2);
    bench.opens_gic(1, 0, &[LINK_INTERRUPT]);
    comes_up(&mut bench, 0);
    comes_up(&mut bench, 1);
    write(&mut bench, 0, INTERRUPT_ACK, u32::MAX);
    write(&mut bench, 1, INTERRUPT_ACK, u32::MAX);
    offers_receive(&mut bench, 1, 0);
    transmits(&mut bench, 0, 0, b"a frame");
    assert_eq!(bench.acknowledges(1, 0), LINK_INTERRUPT);
    assert_eq!(read(&mut bench, 1, INTERRUPT_STATUS), USED_BUFFER);
    assert_eq!(read(&mut bench, 0, INTERRUPT_STATUS), USED_BUFFER);
    assert_eq!(given_back(&mut bench, 1, RECEIVE), (1, 12 + 7));
    assert_eq!(given_back(&mut bench, 0, TRANSMIT), (1, 0));
    assert_eq!(received(&mut bench, 1, 0, 7), b"a frame");
    // The line follows the register.
    write(&mut bench, 1, INTERRUPT_ACK, 1);
    bench.look(1, 0, |cpu| cpu.end(LINK_INTERRUPT));
    bench.iterations(20);
    assert_eq!(bench.look(1, 0, |cpu| cpu.acknowledge()), None);
}

#[test]
fn frames_wait_for_buffers_and_the_transmitter_is_woken_for_them() {
    let mut bench = running(2);
    bench.opens_gic(0, 0, &[LINK_INTERRUPT]);
    comes_up(&mut bench, 0);
    comes_up(&mut bench, 1);
    for number in 0..3 {
        transmits(&mut bench, 0, number, &[number as u8; 60]);
    }
    bench.iterations(20);
    assert_eq!(given_back(&mut bench, 0, TRANSMIT), (0, 0));
    write(&mut bench, 0, INTERRUPT_ACK, u32::MAX);
    for number in 0..3 {
        bench.does(0, 0, |cpu| cpu.wfi());
        offers_receive(&mut bench, 1, number);
        assert_eq!(bench.acknowledges(0, 0), LINK_INTERRUPT);
        write(&mut bench, 0, INTERRUPT_ACK, u32::MAX);
        bench.look(0, 0, |cpu| cpu.end(LINK_INTERRUPT));
        bench.iterations(40);
        assert_eq!(given_back(&mut bench, 1, RECEIVE).0, number + 1);
        assert_eq!(received(&mut bench, 1, number, 60), [number as u8; 60]);
        // The interrupt of the frame that was given back.
        write(&mut bench, 0, INTERRUPT_ACK, u32::MAX);
    }
}

/// A guest that floods the link holds no core for more than a frame at a time.
#[test]
fn an_interrupt_for_a_more_urgent_guest_comes_between_two_frames() {
    let mut bench = beside_an_urgent_guest(0);
    comes_up(&mut bench, 1);
    comes_up(&mut bench, 2);
    for number in 0..3 {
        offers_receive(&mut bench, 2, number);
        puts(
            &mut bench,
            1,
            TRANSMIT,
            number,
            (buffer(TRANSMIT, number), 64),
        );
    }
    let count = bench.entry(0, 0).count;
    write(&mut bench, 1, QUEUE_NOTIFY, TRANSMIT);
    fake::with(|machine| machine.gic.set_line(40, true));
    bench.until("the urgent guest runs", |bench| {
        bench.entry(0, 0).count > count
    });
    let moved = given_back(&mut bench, 2, RECEIVE).0;
    assert!(moved <= 1, "{moved} frames came first");
    bench.does(0, 0, |cpu| {
        cpu.acknowledge();
        cpu.end(50);
        cpu.wfi()
    });
    bench.iterations(40);
    assert_eq!(given_back(&mut bench, 2, RECEIVE).0, 3);
}

#[test]
fn a_driver_that_breaks_the_rules_stops_its_own_card_until_it_resets_it() {
    let mut bench = running(2);
    for start in [
        GUEST_MEMORY - 0x1000,
        GUEST_MEMORY + GUEST_MEMORY_SIZE - 0x20,
    ] {
        let outside = (start, 0x40);
        comes_up(&mut bench, 0);
        comes_up(&mut bench, 1);
        assert_eq!(read(&mut bench, 1, LINK_STATUS) & 1, 1, "the peer is up");
        offers_receive(&mut bench, 1, 0);
        offers(&mut bench, 0, TRANSMIT, 0, outside);
        bench.iterations(20);
        assert_ne!(read(&mut bench, 0, STATUS) & NEEDS_RESET, 0);
        assert_eq!(read(&mut bench, 1, STATUS) & NEEDS_RESET, 0);
        assert_eq!(read(&mut bench, 1, LINK_STATUS) & 1, 0, "the peer is down");
        let status = read(&mut bench, 1, INTERRUPT_STATUS);
        assert_ne!(status & CONFIGURATION, 0, "the peer sees the link go down");
        // And the same at the receiving end.
        comes_up(&mut bench, 0);
        assert_eq!(read(&mut bench, 0, STATUS), u64::from(DRIVER_OK));
        comes_up(&mut bench, 1);
        offers(&mut bench, 1, RECEIVE, 0, outside);
        transmits(&mut bench, 0, 0, &[1; 60]);
        bench.iterations(20);
        assert_ne!(read(&mut bench, 1, STATUS) & NEEDS_RESET, 0);
        assert_eq!(read(&mut bench, 0, STATUS), u64::from(DRIVER_OK));
    }
}

#[test]
fn a_card_is_reset_with_its_guest_and_frames_for_it_are_lost_meanwhile() {
    let mut bench = running(2);
    comes_up(&mut bench, 0);
    comes_up(&mut bench, 1);
    offers_receive(&mut bench, 1, 0);
    write(&mut bench, 0, INTERRUPT_ACK, u32::MAX);
    bench.does(1, 0, |cpu| cpu.hvc([psci::SYSTEM_RESET, 0, 0, 0]));
    bench.until("a new life", |bench| bench.life(1) == 2);
    bench.until("it runs", |bench| bench.phase(1) == Phase::Running);
    assert_eq!(read(&mut bench, 0, INTERRUPT_STATUS), CONFIGURATION);
    // Nothing is written to the buffers of the former life.
    transmits(&mut bench, 0, 0, b"a frame");
    bench.iterations(20);
    assert_eq!(received(&mut bench, 1, 0, 7), [0; 7]);
    assert_eq!(read(&mut bench, 1, STATUS), 0);
    comes_up(&mut bench, 1);
    offers_receive(&mut bench, 1, 0);
    transmits(&mut bench, 0, 1, b"another");
    bench.iterations(40);
    assert_eq!(received(&mut bench, 1, 0, 7), b"another");
}

/// Frames that wait for buffers are dropped when the receiving card goes down.
#[test]
fn frames_that_wait_are_dropped_when_the_receiver_resets() {
    let mut bench = running(2);
    comes_up(&mut bench, 0);
    comes_up(&mut bench, 1);
    transmits(&mut bench, 0, 0, &[1; 60]);
    bench.iterations(20);
    assert_eq!(given_back(&mut bench, 0, TRANSMIT).0, 0);
    write(&mut bench, 1, STATUS, 0);
    bench.iterations(100);
    assert_eq!(
        given_back(&mut bench, 0, TRANSMIT).0,
        1,
        "dropped as the peer is down"
    );
}

#[test]
fn frames_that_wait_are_dropped_when_the_receivers_life_ends() {
    let mut bench = running(2);
    comes_up(&mut bench, 0);
    comes_up(&mut bench, 1);
    transmits(&mut bench, 0, 0, &[1; 60]);
    bench.iterations(20);
    bench.does(1, 0, |cpu| cpu.hvc([psci::SYSTEM_OFF, 0, 0, 0]));
    bench.iterations(100);
    assert_eq!(
        given_back(&mut bench, 0, TRANSMIT).0,
        1,
        "dropped as the peer is down"
    );
}

/// A receiver that breaks the rules must not hold frames of the sender for ever.
#[test]
fn a_broken_receiver_does_not_hold_the_senders_frames() {
    let mut bench = running(2);
    comes_up(&mut bench, 0);
    comes_up(&mut bench, 1);
    offers(&mut bench, 1, RECEIVE, 0, (GUEST_MEMORY - 0x1000, 0x40));
    transmits(&mut bench, 0, 0, &[1; 60]);
    bench.iterations(100);
    assert_ne!(read(&mut bench, 1, STATUS) & NEEDS_RESET, 0);
    let after_break = given_back(&mut bench, 0, TRANSMIT).0;
    // Even the receiver's next start does not set it free.
    comes_up(&mut bench, 1);
    offers_receive(&mut bench, 1, 0);
    bench.iterations(100);
    let after_restart = given_back(&mut bench, 0, TRANSMIT).0;
    assert_eq!((after_break, after_restart), (1, 1));
}

/// A receiver that notifies without buffers must not interrupt the sender.
#[test]
fn a_receiver_without_buffers_does_not_interrupt_the_sender() {
    let mut bench = running(2);
    comes_up(&mut bench, 0);
    comes_up(&mut bench, 1);
    transmits(&mut bench, 0, 0, &[1; 60]);
    bench.iterations(20);
    let mut spurious = 0;
    for _ in 0..100 {
        write(&mut bench, 0, INTERRUPT_ACK, u32::MAX);
        write(&mut bench, 1, QUEUE_NOTIFY, RECEIVE);
        bench.iterations(5);
        spurious += read(&mut bench, 0, INTERRUPT_STATUS);
    }
    assert_eq!(given_back(&mut bench, 0, TRANSMIT).0, 0);
    assert_eq!(spurious, 0, "of 100");
}

#[test]
fn a_flood_on_one_link_starves_no_other_vcpu_of_the_guest() {
    let guests = [
        GuestParts::new(&[(0, 10), (1, 10)]),
        GuestParts::new(&[(2, 10)]),
    ];
    let mut system = system(3, Policy::None, &guests);
    add_network_link(&mut system, 0, 1);
    let mut bench = Bench::boot(&system);
    bench.until_all_run();
    bench.does(0, 0, |cpu| cpu.hvc([psci::CPU_ON, 1, GUEST_MEMORY, 0]));
    bench.until("on", |bench| bench.entry(0, 1).count > 0);
    comes_up(&mut bench, 0);
    write_memory(&mut bench, 0, descriptors(TRANSMIT), {
        let mut it = buffer(TRANSMIT, 0).to_le_bytes().to_vec();
        it.extend(20_u32.to_le_bytes());
        it.extend([0; 4]);
        it
    });
    // Each time that vCPU 0 runs, it makes the frames available again.
    bench.guests.borrow_mut().habit = Some(Box::new(move |cpu| {
        if (cpu.guest, cpu.vcpu) == (0, 0) {
            let used = cpu.read_memory(used(TRANSMIT) + 2, 2);
            let next = u16::from_le_bytes([used[0], used[1]]).wrapping_add(SIZE as u16);
            cpu.write_memory(available(TRANSMIT) + 2, &next.to_le_bytes());
        }
        cpu.interrupted()
    }));
    write(&mut bench, 0, QUEUE_NOTIFY, TRANSMIT);
    bench.iterations(10);
    let before = (bench.entry(0, 0).count, bench.entry(0, 1).count);
    bench.iterations(1000);
    let after = (bench.entry(0, 0).count, bench.entry(0, 1).count);
    assert!(after.0 > before.0 && after.1 > before.1);
}

/// Only the device sets `NEEDS_RESET`; a card never goes down without its peer being told.
#[test]
fn a_card_that_goes_down_by_any_status_tells_its_peer() {
    for status in [
        DRIVER_OK | 1 << 6,
        DRIVER_OK | 1 << 7,
        DRIVER_OK & !4,
        0x100,
        0,
    ] {
        let mut bench = running(2);
        comes_up(&mut bench, 0);
        comes_up(&mut bench, 1);
        write(&mut bench, 0, INTERRUPT_ACK, u32::MAX);
        write(&mut bench, 1, STATUS, status);
        bench.iterations(20);
        let is_up = read(&mut bench, 0, LINK_STATUS) & 1 == 1;
        let is_told = read(&mut bench, 0, INTERRUPT_STATUS) & CONFIGURATION != 0;
        assert_eq!(is_told, !is_up, "status {status:#x}");
    }
}

/// A less urgent peer that offers many buffers at once holds the more urgent transmitter back for one frame at most.
#[test]
fn buffers_offered_at_once_hold_the_urgent_sender_for_one_frame() {
    let mut bench = running(2);
    bench.opens_gic(0, 0, &[LINK_INTERRUPT]);
    comes_up(&mut bench, 0);
    comes_up(&mut bench, 1);
    for number in 0..4 {
        transmits(&mut bench, 0, number, &[number as u8; 60]);
    }
    bench.iterations(20);
    write(&mut bench, 0, INTERRUPT_ACK, u32::MAX);
    bench.does(0, 0, |cpu| cpu.wfi());
    for number in 0..4 {
        let place = (buffer(RECEIVE, number), BUFFER as u32);
        puts(&mut bench, 1, RECEIVE, number, place);
    }
    let count = bench.entry(0, 0).count;
    write(&mut bench, 1, QUEUE_NOTIFY, RECEIVE);
    bench.until("it is entered", |bench| bench.entry(0, 0).count > count);
    let moved = given_back(&mut bench, 1, RECEIVE).0;
    assert!(moved <= 1, "{moved} frames came before its interrupt");
}

/// The SGI that a vCPU sends to itself.
const SGI: u16 = 5;
/// `PSTATE`: EL1h, nothing masked.
const UNMASKED: u64 = 0b0101;

/// Two guests with a network card each, which is up. An SGI is pending for the vCPU of guest 0. `pstate`: that of this vCPU, which says
/// whether it masks interrupts.
fn with_an_interrupt(pstate: u64) -> Bench {
    let mut bench = running(2);
    bench.opens_gic(0, 0, &[SGI]);
    comes_up(&mut bench, 0);
    comes_up(&mut bench, 1);
    for number in 0..3 {
        offers_receive(&mut bench, 1, number);
    }
    write(&mut bench, 0, INTERRUPT_ACK, u32::MAX);
    bench.does(0, 0, move |cpu| {
        cpu.registers.pstate = pstate;
        cpu.msr(SysReg::ICC_SGI1R_EL1, u64::from(SGI) << 24 | 1)
    });
    bench
}

fn moved(bench: &mut Bench) -> u16 {
    given_back(bench, 1, RECEIVE).0
}

/// An interrupt is handled first, so the frames are left for the vCPU's next exit, which is a WFI.
#[test]
fn a_vcpu_moves_its_frames_before_it_sleeps() {
    let mut bench = with_an_interrupt(UNMASKED);
    transmits(&mut bench, 0, 0, &[7; 60]);
    assert_eq!(moved(&mut bench), 0, "not yet");
    bench.does(0, 0, |cpu| {
        assert_eq!(cpu.acknowledge(), Some(SGI));
        cpu.end(SGI);
        cpu.wfi()
    });
    bench.iterations(20);
    assert_eq!(moved(&mut bench), 1);
}

/// Of two exits with an interrupt to handle, one moves a frame: a vCPU that computes and exits only by its tick has no others.
#[test]
fn a_vcpu_that_has_an_interrupt_at_each_exit_moves_a_frame_at_every_second_one() {
    let mut bench = with_an_interrupt(UNMASKED);
    for number in 0..3 {
        let place = (buffer(TRANSMIT, number), 64);
        puts(&mut bench, 0, TRANSMIT, number, place);
    }
    let at_entries = Rc::new(RefCell::new(Vec::new()));
    let entries = Rc::clone(&at_entries);
    bench.guests.borrow_mut().habit = Some(Box::new(move |cpu| {
        if cpu.guest == 0 {
            entries
                .borrow_mut()
                .push(cpu.read_memory(used(TRANSMIT) + 2, 1)[0]);
        }
        cpu.interrupted()
    }));
    write(&mut bench, 0, QUEUE_NOTIFY, TRANSMIT);
    bench.until("it is entered again", |_| at_entries.borrow().len() >= 6);
    assert_eq!(at_entries.borrow()[..6], [0, 1, 1, 2, 2, 3]);
}

/// A vCPU that masks interrupts cannot take the pending one. So it moves a frame whenever it notifies its card.
#[test]
fn a_vcpu_that_masks_its_interrupts_moves_its_frames() {
    let mut bench = with_an_interrupt(GuestRegisters::RESET_PSTATE);
    for number in 0..3 {
        transmits(&mut bench, 0, number, &[7; 60]);
        assert_eq!(moved(&mut bench), number + 1);
    }
}
