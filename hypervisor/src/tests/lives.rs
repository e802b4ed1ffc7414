// SPDX-License-Identifier: MIT OR Apache-2.0
//! Guests that fault, stop and restart.

use super::bench::Bench;
use super::guest::{GuestCpu, psci};
use super::systems::*;
use crate::fake::{self, Ended, Register, printed};
use crate::guest_registers::Exit;
use spumone_config::packed::{OnStop, Policy, RestartLimit, Trigger};
use spumone_config::{GuestId, PcpuId};
use spumone_core::load::Claim;
use spumone_core::psci::{Phase, StopReason};

const OPERATOR: u8 = 0x1D;

/// A guest on two cores, and another one on core 1.
fn running() -> Bench {
    let guests = [
        GuestParts::new(&[(0, 20), (1, 20)]).with_spi(40, 50, Trigger::Level),
        GuestParts::new(&[(1, 10)]),
    ];
    let mut bench = Bench::boot(&system(2, Policy::None, &guests));
    bench.until_all_run();
    bench.does(0, 0, |cpu| cpu.hvc([psci::CPU_ON, 1, GUEST_MEMORY, 0]));
    bench.until("both vCPUs run", |bench| bench.entry(0, 1).count > 0);
    bench
}

/// The first guest resets itself.
fn resets_itself(bench: &mut Bench) {
    let life = bench.life(0);
    bench.does(0, 0, |cpu| cpu.hvc([psci::SYSTEM_RESET, 0, 0, 0]));
    bench.until("a new life", |bench| bench.life(0) > life);
}

#[test]
fn a_guest_that_resets_itself_starts_in_its_initial_state() {
    let mut bench = running();
    bench.opens_gic(0, 0, &[50]);
    fake::with(|machine| {
        machine.gic.set_line(40, true);
        machine.memory.at(memory_of(0), 0x1000).fill(0xAA);
    });
    assert_eq!(bench.acknowledges(0, 0), 50);
    let life = bench.life(0);
    bench.does(0, 0, |cpu| {
        cpu.set(Register::TTBR0_EL1, 0x7000);
        fake::with(|machine| machine.cores[cpu.core].vectors[7] = 7);
        cpu.hvc([psci::SYSTEM_RESET, 0, 0, 0])
    });
    bench.until("a new life", |bench| {
        bench.life(0) > life && bench.entry(0, 0).pc == GUEST_MEMORY
    });
    let (memory, ttbr, vector, interface, x0) = bench.look(0, 0, |cpu| {
        (
            cpu.read_memory(GUEST_MEMORY, 0x1000),
            cpu.get(Register::TTBR0_EL1),
            fake::with(|machine| machine.cores[cpu.core].vectors[7]),
            cpu.get(Register::ICH_VMCR_EL2),
            cpu.registers.x[0],
        )
    });
    assert_eq!((&memory[..8], memory[0x100]), (&IMAGE[..8], 0));
    assert_eq!((ttbr, vector, interface, x0), (0, 0, 0, 0x77));
    // Its device was quiesced, and its SPI is neither active nor enabled.
    fake::with(|machine| {
        assert!(machine.quiesced.contains(&(QUIESCE, 0)));
        let (bank, bit) = machine.gic.spi(40);
        assert_eq!((bank.active & bit, bank.enabled & bit), (0, 0));
    });
    // The second vCPU is off again, and can be turned on.
    let count = bench.entry(0, 1).count;
    bench.iterations(50);
    assert_eq!(bench.entry(0, 1).count, count);
    let after = bench.does_and_returns(0, 0, |cpu| cpu.hvc([psci::CPU_ON, 1, GUEST_MEMORY, 0]));
    assert_eq!(after.x[0], psci::SUCCESS);
}

/// The guest of the higher band preempts the stop of a guest with eight vCPUs, and the report of its fault.
#[test]
fn a_stop_does_not_delay_a_higher_band() {
    let endings: [fn(&mut GuestCpu<'_>) -> Exit; 2] = [
        |cpu| cpu.hvc([psci::SYSTEM_RESET, 0, 0, 0]),
        |cpu| cpu.load(0x7000_0000),
    ];
    for ending in endings {
        let guests = [
            GuestParts::new(&[(0, 10); 8]),
            GuestParts::new(&[(0, 20)]).with_spi(40, 50, Trigger::Edge),
        ];
        let mut bench = Bench::boot(&system(1, Policy::None, &guests));
        bench.until("the guest of the higher band runs", |bench| {
            bench.entry(1, 0).count > 0
        });
        bench.opens_gic(1, 0, &[50]);
        bench.does(1, 0, |cpu| cpu.wfi());
        for vcpu in 1..8 {
            bench.does(0, 0, move |cpu| {
                cpu.hvc([psci::CPU_ON, vcpu, GUEST_MEMORY, 0])
            });
        }
        let life = bench.life(0);
        bench.does(0, 0, ending);
        for _ in 0..3 {
            bench.iterate(0);
            assert!(matches!(bench.phase(0), Phase::Stopping(_)));
        }
        fake::with(|machine| machine.gic.set_line(40, true));
        bench.iterations(6);
        assert!(bench.runs_on(0, 1, 0), "{}", bench.state());
        assert!(matches!(bench.phase(0), Phase::Stopping(_)));
        // While the higher band runs, the stop waits.
        bench.iterations(200);
        assert!(matches!(bench.phase(0), Phase::Stopping(_)));
        assert_eq!(bench.acknowledges(1, 0), 50);
        bench.does(1, 0, |cpu| cpu.wfi());
        bench.until("the guest has ended", |bench| {
            bench.life(0) > life || bench.phase(0) == Phase::Stopped(StopReason::Fault)
        });
    }
}

#[test]
fn an_edge_after_the_end_of_a_life_does_not_reach_the_next_one() {
    let guests = [
        GuestParts::new(&[(0, 20)]).with_spi(40, 50, Trigger::Edge),
        GuestParts::new(&[(0, 10)]),
    ];
    let mut bench = Bench::boot(&system(1, Policy::None, &guests));
    bench.until("it runs", |bench| bench.entry(0, 0).count > 0);
    bench.opens_gic(0, 0, &[50]);
    bench.does(0, 0, |cpu| cpu.load(0x7000_0000));
    bench.until("it is stopped", |bench| {
        bench.phase(0) == Phase::Stopped(StopReason::Fault)
    });
    fake::with(|machine| machine.gic.set_line(40, true));
    let life = bench.life(0);
    fake::with(|machine| machine.type_keys(&[OPERATOR, b'1', OPERATOR, b'r']));
    bench.until("a new life", |bench| bench.life(0) > life);
    bench.opens_gic(0, 0, &[50]);
    bench.iterations(20);
    assert_eq!(bench.look(0, 0, |cpu| cpu.acknowledge()), None);
}

#[test]
fn the_virtual_uart_of_a_new_life_is_reset() {
    const IMSC: u64 = UART + 0x38;
    const RECEIVE: u32 = 1 << 4;
    let mut bench = running();
    bench.does(0, 0, |cpu| cpu.store(IMSC, RECEIVE));
    let before = bench.does_and_returns(0, 0, |cpu| cpu.load(IMSC));
    resets_itself(&mut bench);
    let after = bench.does_and_returns(0, 0, |cpu| cpu.load(IMSC));
    assert_eq!((before.x[1], after.x[1]), (RECEIVE.into(), 0));
}

#[test]
fn the_spis_of_a_new_life_go_to_the_core_of_its_first_vcpu() {
    let mut bench = running();
    let route = || fake::with(|machine| machine.gic.routes[40]);
    bench.opens_gic(0, 1, &[50]);
    assert_eq!(route(), 1);
    resets_itself(&mut bench);
    assert_eq!(route(), 0);
}

/// Core 1 has begun to stop the guest, and core 0 has not read its mail yet.
#[test]
fn a_vcpu_that_ends_a_guest_that_is_being_stopped_does_not_run_on() {
    let mut bench = running();
    let machine = bench.machine;
    bench.does(0, 0, move |cpu| {
        let guest = machine.guest(GuestId(0));
        assert!(
            guest
                .lifecycle
                .begin_stop(guest.lifecycle.now().1, StopReason::Fault)
                .is_some()
        );
        cpu.hvc([psci::SYSTEM_OFF, 0, 0, 0])
    });
    let count = bench.entry(0, 0).count;
    bench.iterations(20);
    assert_eq!(bench.phase(0), Phase::Stopping(StopReason::Fault));
    assert_eq!(bench.entry(0, 0).count, count);
}

#[test]
fn a_fault_on_one_core_stops_the_guest_on_all() {
    let mut bench = running();
    bench.does(0, 1, |cpu| cpu.load(0x7000_0000));
    bench.until("it is stopped", |bench| {
        bench.phase(0) == Phase::Stopped(StopReason::Fault)
    });
    let counts = [0, 1].map(|vcpu| bench.entry(0, vcpu).count);
    bench.iterations(50);
    assert_eq!([0, 1].map(|vcpu| bench.entry(0, vcpu).count), counts);
    assert_eq!(bench.phase(1), Phase::Running);
}

#[test]
fn an_interrupt_of_a_stopping_guest_is_deactivated() {
    let guests = [
        GuestParts::new(&[(0, 20), (1, 20), (2, 20)]).with_spi(40, 50, Trigger::Level),
        GuestParts::new(&[(2, 10)]),
    ];
    let mut bench = Bench::boot(&system(3, Policy::None, &guests));
    bench.until("it runs", |bench| bench.entry(0, 0).count > 0);
    bench.opens_gic(0, 0, &[50]);
    bench.does(0, 0, |cpu| cpu.hvc([psci::CPU_ON, 1, GUEST_MEMORY, 0]));
    bench.until("its second vCPU runs", |bench| bench.entry(0, 1).count > 0);
    // Core 1 stops the guest; core 0 has acknowledged, core 2 has not.
    bench.will(0, 1, |cpu| cpu.hvc([psci::SYSTEM_OFF, 0, 0, 0]));
    (0..20).for_each(|_| bench.iterate(1));
    assert_eq!(bench.phase(0), Phase::Stopping(StopReason::Off));
    fake::with(|machine| machine.gic.set_line(40, true));
    (0..20).for_each(|_| bench.iterate(0));
    fake::with(|machine| {
        let (bank, bit) = machine.gic.spi(40);
        assert_eq!((bank.enabled & bit, bank.active & bit), (0, 0));
    });
    bench.iterations(20);
    assert_eq!(bench.phase(0), Phase::Stopped(StopReason::Off));
}

#[test]
fn the_operator_restarts_a_guest_that_has_failed() {
    let mut bench = running();
    bench.does(0, 1, |cpu| cpu.load(0x7000_0000));
    bench.until("it is stopped", |bench| {
        bench.phase(0) == Phase::Stopped(StopReason::Fault)
    });
    let count = bench.entry(0, 0).count;
    fake::with(|machine| machine.type_keys(&[OPERATOR, b'1', OPERATOR, b'r']));
    bench.until("it runs again", |bench| {
        bench.phase(0) == Phase::Running && bench.entry(0, 0).count > count
    });
    assert_eq!(
        bench.look(0, 0, |cpu| cpu.read_memory(GUEST_MEMORY, 8)),
        IMAGE[..8]
    );
}

#[test]
fn the_machine_turns_off_with_the_last_guest() {
    let mut bench = running();
    bench.does(0, 0, |cpu| cpu.hvc([psci::SYSTEM_OFF, 0, 0, 0]));
    bench.until("it is off", |bench| {
        bench.phase(0) == Phase::Stopped(StopReason::Off)
    });
    assert_eq!(bench.ended, None);
    bench.does(1, 0, |cpu| cpu.hvc([psci::SYSTEM_OFF, 0, 0, 0]));
    bench.iterations(20);
    assert_eq!(bench.ended, Some(Ended::Halted));
    assert!(fake::with(|machine| machine.is_off));
    assert!(printed().contains("all guests have ended"), "{}", printed());
}

#[test]
fn a_guest_restarts_again_and_again() {
    let mut bench = running();
    for _ in 0..10 {
        resets_itself(&mut bench);
        bench.does(0, 0, |cpu| cpu.hvc([psci::CPU_ON, 1, GUEST_MEMORY, 0]));
        let count = bench.entry(0, 1).count;
        bench.until("both vCPUs run", |bench| bench.entry(0, 1).count > count);
    }
}

/// The guest on core 0 is about to be loaded again; core 1, where a guest with an interrupt and this priority sleeps, has been called.
fn begins_to_load(priority: u8) -> Bench {
    let guests = [
        GuestParts::new(&[(0, 20)]),
        GuestParts::new(&[(1, priority)]).with_spi(40, 50, Trigger::Edge),
    ];
    let mut bench = Bench::boot(&system(2, Policy::None, &guests));
    bench.until_all_run();
    bench.opens_gic(1, 0, &[50]);
    bench.does(1, 0, |cpu| cpu.wfi());
    bench.will(0, 0, |cpu| cpu.hvc([psci::SYSTEM_RESET, 0, 0, 0]));
    let guest = bench.machine.guest(GuestId(0));
    for _ in 0..100 {
        if guest.loading.has_begun(guest.lifecycle.now().1) {
            return bench;
        }
        bench.iterate(0);
    }
    panic!("the guest is not loaded");
}

/// Whether a guest's loading is done. A chunk may be lost if it is not.
fn is_loaded(bench: &Bench, guest: u8) -> bool {
    let guest = bench.machine.guest(GuestId(guest));
    let phases = guest.phases;
    guest.loading.claim(PcpuId(0), phases) == Claim::Done
}

#[test]
fn a_core_that_idles_loads_a_guest_while_the_guests_own_core_is_busy() {
    let mut bench = begins_to_load(10);
    let is_called = fake::with(|machine| machine.signalled(1).is_some());
    assert!(is_called, "it would sleep on");
    for _ in 0..20 {
        bench.iterate(1);
    }
    assert!(is_loaded(&bench, 0));
    bench.until("it runs", |bench| bench.phase(0) == Phase::Running);
}

#[test]
fn a_core_with_a_more_urgent_guest_does_not_help_to_load_another_one() {
    let mut bench = begins_to_load(30);
    for _ in 0..20 {
        bench.iterate(1);
    }
    assert!(!is_loaded(&bench, 0));
}

#[test]
fn a_core_that_helps_to_load_a_guest_takes_interrupts_after_each_chunk() {
    let mut bench = begins_to_load(10);
    let count = bench.entry(1, 0).count;
    fake::with(|machine| machine.rises_after_pages = Some((3, 40)));
    for _ in 0..20 {
        if bench.entry(1, 0).count > count {
            break;
        }
        bench.iterate(1);
    }
    assert!(bench.entry(1, 0).count > count, "its guest runs");
    assert!(!is_loaded(&bench, 0), "its guest waits for the loading");
}

/// Two guests on a core each. Guest 0 has this `on-stop`.
fn that_faults(on_stop: OnStop) -> Bench {
    let guests = [
        GuestParts::new(&[(0, 20)]).on_stop(on_stop),
        GuestParts::new(&[(1, 10)]),
    ];
    let mut bench = Bench::boot(&system(2, Policy::None, &guests));
    bench.until_all_run();
    bench
}

#[test]
fn a_guest_restarts_after_faults_as_often_as_it_may() {
    let mut bench = that_faults(OnStop::Restart(RestartLimit {
        most: 2,
        within_us: 1_000_000,
    }));
    for life in 1..=3 {
        bench.until("it runs", |bench| {
            (bench.life(0), bench.phase(0)) == (life, Phase::Running)
        });
        bench.does(0, 0, |cpu| cpu.store(0x5000_0000, 1));
    }
    bench.until("it stays stopped", |bench| {
        bench.phase(0) == Phase::Stopped(StopReason::Fault)
    });
    bench.until("it is said", |_| {
        printed().contains("more often than its restarts allow")
    });
    assert_eq!(printed().matches("guest0 restarts").count(), 2);
    assert_eq!(bench.life(1), 1);
}

#[test]
fn the_machine_goes_off_with_a_guest_that_says_so() {
    let mut bench = that_faults(OnStop::MachineOff);
    bench.does(0, 0, |cpu| cpu.hvc([psci::SYSTEM_RESET, 0, 0, 0]));
    bench.until("it has restarted", |bench| {
        (bench.life(0), bench.phase(0)) == (2, Phase::Running)
    });
    bench.does(0, 0, |cpu| cpu.store(0x5000_0000, 1));
    bench.until("the machine is off", |bench| bench.ended.is_some());
    assert!(printed().contains("has ended, the machine goes off"));
}
