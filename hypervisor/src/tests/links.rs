// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory links between guests.

use super::bench::Bench;
use super::guest::psci;
use super::systems::*;
use crate::fake;
use spumone_config::packed::Policy;
use spumone_core::link::ID;
use spumone_core::psci::{Phase, StopReason};

/// Registers of a link.
const ACCESS: u64 = LINK_REGISTERS + 0x0c;
const LIFE: u64 = LINK_REGISTERS + 0x10;
const PEER: u64 = LINK_REGISTERS + 0x14;
const SIGNAL: u64 = LINK_REGISTERS + 0x18;
const ACK: u64 = LINK_REGISTERS + 0x1c;
const STATUS: u64 = LINK_REGISTERS + 0x20;
const ENDED: u64 = LINK_REGISTERS + 0x24;
const CAUSE: u64 = LINK_REGISTERS + 0x28;

/// Two guests with a link, on a core each, or both on core 0, where the first one is more urgent.
fn running(cores: u8) -> Bench {
    let guests = [
        GuestParts::new(&[(0, 20)]),
        GuestParts::new(&[(cores - 1, 10)]),
    ];
    let mut system = system(cores, Policy::None, &guests);
    add_link(&mut system, 0, 1);
    let mut bench = Bench::boot(&system);
    if cores > 1 {
        bench.until_all_run();
    } else {
        bench.until("the first guest runs", |bench| bench.entry(0, 0).count > 0);
    }
    bench
}

fn reads(bench: &mut Bench, guest: u8, register: u64) -> u64 {
    let after = bench.does_and_returns(guest, 0, move |cpu| cpu.load(register));
    after.x[1]
}

fn writes(bench: &mut Bench, guest: u8, register: u64) {
    bench.does_and_returns(guest, 0, move |cpu| cpu.store(register, 1));
}

#[test]
fn a_signal_is_an_interrupt_of_the_peer_until_it_takes_the_signal_back() {
    let mut bench = running(2);
    bench.opens_gic(1, 0, &[LINK_INTERRUPT]);
    assert_eq!(reads(&mut bench, 0, LINK_REGISTERS), u64::from(ID));
    // The peer began its life: at both ends.
    for guest in [0, 1] {
        writes(&mut bench, guest, ACK);
        assert_eq!(reads(&mut bench, guest, STATUS), 0);
    }
    for _ in 0..3 {
        writes(&mut bench, 0, SIGNAL);
        // A second signal before the first was taken back is the same one.
        writes(&mut bench, 0, SIGNAL);
        assert_eq!(bench.acknowledges(1, 0), LINK_INTERRUPT);
        assert_eq!(reads(&mut bench, 1, STATUS), 1);
        writes(&mut bench, 1, ACK);
        assert_eq!(reads(&mut bench, 1, STATUS), 0);
        bench.look(1, 0, |cpu| cpu.end(LINK_INTERRUPT));
        bench.iterations(20);
        assert_eq!(bench.look(1, 0, |cpu| cpu.acknowledge()), None);
        assert_eq!(
            reads(&mut bench, 0, STATUS),
            0,
            "the other end has no signal"
        );
    }
}

#[test]
fn an_interrupt_that_is_not_taken_back_comes_again() {
    let mut bench = running(2);
    bench.opens_gic(1, 0, &[LINK_INTERRUPT]);
    writes(&mut bench, 0, SIGNAL);
    for _ in 0..2 {
        assert_eq!(bench.acknowledges(1, 0), LINK_INTERRUPT);
        bench.look(1, 0, |cpu| cpu.end(LINK_INTERRUPT));
    }
}

#[test]
fn a_signal_wakes_a_guest_on_the_same_core() {
    let mut bench = running(1);
    bench.opens_gic(0, 0, &[LINK_INTERRUPT]);
    // The second guest starts only while the first one sleeps, and its start is signalled, too.
    bench.does(0, 0, |cpu| cpu.wfi());
    assert_eq!(bench.acknowledges(0, 0), LINK_INTERRUPT);
    writes(&mut bench, 0, ACK);
    bench.look(0, 0, |cpu| cpu.end(LINK_INTERRUPT));
    bench.does(0, 0, |cpu| cpu.wfi());
    bench.until("the second guest runs", |bench| bench.entry(1, 0).count > 0);
    let count = bench.entry(0, 0).count;
    bench.will(1, 0, |cpu| cpu.store(SIGNAL, 1));
    bench.until("the first guest is awake", |bench| {
        bench.entry(0, 0).count > count
    });
    assert_eq!(bench.acknowledges(0, 0), LINK_INTERRUPT);
}

#[test]
fn a_guest_sees_whether_its_peer_runs_and_in_which_life() {
    let mut bench = running(2);
    bench.opens_gic(0, 0, &[LINK_INTERRUPT]);
    assert_eq!(reads(&mut bench, 0, PEER), 1);
    assert_eq!(reads(&mut bench, 0, ENDED), 0);
    let ends = [0, 1].map(|guest| reads(&mut bench, guest, ACCESS));
    assert_eq!(ends, [0b01, 0b11]);
    writes(&mut bench, 0, ACK);
    // Signalled before the end of a life: not delivered in the next one.
    writes(&mut bench, 0, SIGNAL);
    bench.does(1, 0, |cpu| cpu.hvc([psci::SYSTEM_RESET, 0, 0, 0]));
    assert_eq!(bench.acknowledges(0, 0), LINK_INTERRUPT);
    bench.look(0, 0, |cpu| cpu.end(LINK_INTERRUPT));
    bench.until("a new life", |bench| bench.life(1) == 2);
    assert_eq!(reads(&mut bench, 0, PEER), 2);
    assert_eq!(reads(&mut bench, 0, LIFE), 1);
    assert_eq!(reads(&mut bench, 1, LIFE), 2);
    let [life, cause] = [ENDED, CAUSE].map(|it| reads(&mut bench, 0, it));
    assert_eq!([life, cause], [1, StopReason::Reset as u64 + 1]);
    bench.until("it runs", |bench| bench.phase(1) == Phase::Running);
    writes(&mut bench, 1, ACK);
    bench.does(1, 0, |cpu| cpu.hvc([psci::SYSTEM_OFF, 0, 0, 0]));
    bench.until("it is off", |bench| {
        bench.phase(1) == Phase::Stopped(StopReason::Off)
    });
    assert_eq!(reads(&mut bench, 0, PEER), 0);
    assert_eq!(reads(&mut bench, 0, STATUS), 1);
    // A signal to a guest that does not run has no effect.
    writes(&mut bench, 0, SIGNAL);
}

#[test]
fn no_signal_of_a_former_life_is_delivered() {
    let mut bench = running(2);
    writes(&mut bench, 1, ACK);
    writes(&mut bench, 0, SIGNAL);
    assert_eq!(reads(&mut bench, 1, STATUS), 1);
    bench.does(1, 0, |cpu| cpu.hvc([psci::SYSTEM_RESET, 0, 0, 0]));
    bench.until("a new life", |bench| {
        bench.life(1) == 2 && bench.entry(1, 0).pc == GUEST_MEMORY
    });
    assert_eq!(reads(&mut bench, 1, STATUS), 0);
}

#[test]
fn the_memory_is_cleared_at_start_and_kept_when_a_guest_restarts() {
    let mut bench = running(2);
    let byte = || fake::with(|machine| machine.memory.at(LINK_MEMORY, 1)[0]);
    assert_eq!(byte(), 0);
    fake::with(|machine| machine.memory.at(LINK_MEMORY, 1)[0] = 7);
    let read = bench.look(0, 0, |cpu| cpu.read_memory(LINK_WINDOW, 1));
    assert_eq!(read, [7]);
    bench.does(1, 0, |cpu| cpu.hvc([psci::SYSTEM_RESET, 0, 0, 0]));
    bench.until("a new life", |bench| bench.life(1) == 2);
    bench.until("it runs", |bench| bench.phase(1) == Phase::Running);
    assert_eq!(byte(), 7);
}

#[test]
fn accesses_of_other_sizes_and_to_other_offsets_have_no_effect() {
    let mut bench = running(2);
    writes(&mut bench, 0, ACK);
    for log_size in [0, 1, 3] {
        let after =
            bench.does_and_returns(0, 0, move |cpu| cpu.access(LINK_REGISTERS, false, log_size));
        assert_eq!(after.x[1], 0);
        bench.does_and_returns(0, 0, move |cpu| cpu.access(SIGNAL, true, log_size));
    }
    writes(&mut bench, 0, LINK_REGISTERS + 0x100);
    writes(&mut bench, 1, ACK);
    assert_eq!(reads(&mut bench, 1, STATUS), 0);
    // Behind the page there is nothing.
    bench.does(0, 0, |cpu| cpu.load(LINK_REGISTERS + 0x1000));
    bench.until("it is stopped", |bench| {
        bench.phase(0) == Phase::Stopped(StopReason::Fault)
    });
}

#[test]
fn a_guest_can_use_a_gpio_controller_for_its_signals() {
    const DIR: u64 = LINK_GPIO + 0x400;
    const IEV: u64 = LINK_GPIO + 0x40c;
    const IE: u64 = LINK_GPIO + 0x410;
    const MIS: u64 = LINK_GPIO + 0x418;
    const IC: u64 = LINK_GPIO + 0x41c;
    /// The data register through which one line is accessed.
    const fn line(line: u32) -> u64 {
        LINK_GPIO + (4 << line)
    }
    let mut bench = running(2);
    bench.opens_gic(1, 0, &[LINK_GPIO_INTERRUPT]);
    writes(&mut bench, 1, ACK);
    let store = |bench: &mut Bench, register, value| {
        bench.does_and_returns(1, 0, move |cpu| cpu.store(register, value));
    };
    // Line 0 rises, lines 1 and 2 are outputs.
    store(&mut bench, DIR, 0b110);
    store(&mut bench, IEV, 1);
    store(&mut bench, IE, 1);
    for _ in 0..2 {
        assert_eq!(reads(&mut bench, 1, line(0)), 0);
        writes(&mut bench, 0, SIGNAL);
        assert_eq!(bench.acknowledges(1, 0), LINK_GPIO_INTERRUPT);
        assert_eq!(reads(&mut bench, 1, MIS), 1);
        assert_eq!(reads(&mut bench, 1, line(0)), 1);
        store(&mut bench, IC, 1);
        bench.look(1, 0, |cpu| cpu.end(LINK_GPIO_INTERRUPT));
        bench.iterations(20);
        assert_eq!(bench.look(1, 0, |cpu| cpu.acknowledge()), None);
        // A rising edge of line 2 takes the signal back.
        store(&mut bench, line(2), 0b100);
        store(&mut bench, line(2), 0);
        assert_eq!(reads(&mut bench, 1, STATUS), 0);
    }
    // A rising edge of line 1 signals the peer.
    writes(&mut bench, 0, ACK);
    store(&mut bench, line(1), 0b010);
    assert_eq!(reads(&mut bench, 0, STATUS), 1);
    // The first guest has no such controller.
    bench.does(0, 0, |cpu| cpu.load(LINK_GPIO));
    bench.until("it is stopped", |bench| {
        bench.phase(0) == Phase::Stopped(StopReason::Fault)
    });
}
