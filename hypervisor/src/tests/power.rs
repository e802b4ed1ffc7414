// SPDX-License-Identifier: MIT OR Apache-2.0
//! Cores that go off when they are not needed, and come back.

use super::bench::Bench;
use super::guest::psci;
use super::migration::until_both_run;
use super::systems::*;
use crate::fake::{self, CorePower, Firmware};
use spumone_config::PcpuId;
use spumone_config::packed::{Policy, Power, PowerMode, System, Trigger};
use spumone_core::console::Off;
use spumone_core::migration::Level;
use spumone_core::vgic::VcpuIndex;

/// A guest with three vCPUs that migrate between three cores, and a real-time guest on core 0, which stays on.
fn described(mode: PowerMode) -> System {
    let migrates = GuestParts::new(&[(0, 10), (1, 10), (2, 10)])
        .on(0b111)
        .with_spi(42, 52, Trigger::Edge)
        .with_spi(43, 53, Trigger::Edge);
    let real_time = GuestParts::new(&[(0, 20)]).with_spi(40, 50, Trigger::Edge);
    let mut system = system(3, Policy::Steal, &[migrates, real_time]);
    system.roles.console_core = PcpuId(0);
    system.power = Some(Power {
        mode,
        least: 1,
        most: 3,
        stay: 0b001,
        off_us: 0,
        on_us: 0,
    });
    system
}

fn running(mode: PowerMode) -> Bench {
    let mut bench = Bench::boot(&described(mode));
    until_both_run(&mut bench);
    bench
}

/// Whether the firmware has a core on.
fn power(core: usize) -> CorePower {
    fake::with(|machine| machine.cores[core].power)
}

fn is_off(bench: &Bench, core: u8) -> bool {
    bench.machine.shared.presence(PcpuId(core)).level() == Level::OFF
}

/// All vCPUs of the guest sleep, and only core 0 is on. vCPU 1 has interrupt 52, vCPU 2 has interrupt 53.
fn asleep(mode: PowerMode) -> Bench {
    falls_asleep(running(mode))
}

fn falls_asleep(mut bench: Bench) -> Bench {
    for vcpu in [1, 2] {
        bench.does(0, 0, move |cpu| {
            cpu.hvc([psci::CPU_ON, vcpu, GUEST_MEMORY, 0])
        });
    }
    bench.until("all vCPUs run", |bench| {
        bench.entry(0, 1).count > 0 && bench.entry(0, 2).count > 0
    });
    bench.opens_gic(0, 1, &[52]);
    bench.opens_gic(0, 2, &[53]);
    for vcpu in 0..3 {
        bench.does(0, vcpu, |cpu| cpu.wfi());
    }
    bench.until("only core 0 is on", |bench| {
        is_off(bench, 1) && is_off(bench, 2)
    });
    bench.iterations(200);
    bench
}

#[test]
fn cores_without_work_go_off_and_stay_so() {
    for mode in [PowerMode::Balanced, PowerMode::Saving] {
        let mut bench = asleep(mode);
        bench.iterations(1_000);
        assert!(is_off(&bench, 1) && is_off(&bench, 2) && !is_off(&bench, 0));
        assert_eq!(
            [0, 1, 2].map(power),
            [CorePower::On, CorePower::Off, CorePower::Off]
        );
        for vcpu in 0..3 {
            let id = bench.vcpu(0, vcpu);
            let doorbell = bench
                .machine
                .vcpu(id)
                .unwrap()
                .guest
                .gic
                .doorbell(VcpuIndex(vcpu));
            assert_eq!(doorbell.location(), PcpuId(0));
        }
    }
}

#[test]
fn an_interrupt_finds_a_vcpu_whose_core_went_off() {
    let mut bench = asleep(PowerMode::Balanced);
    fake::with(|machine| machine.gic.set_line(43, true));
    assert_eq!(bench.acknowledges(0, 2), 53);
}

#[test]
fn vcpus_that_wait_bring_cores_back_and_to_save_only_the_governor_does() {
    for (mode, times) in [(PowerMode::Balanced, 1), (PowerMode::Saving, 20)] {
        let mut bench = asleep(mode);
        fake::with(|machine| machine.gic.set_line(42, true));
        assert_eq!(bench.acknowledges(0, 1), 52);
        fake::with(|machine| machine.gic.set_line(43, true));
        assert_eq!(bench.acknowledges(0, 2), 53);
        // Both are busy from now on.
        for _ in 0..times {
            if !is_off(&bench, 1) {
                break;
            }
            bench.iterations(2_000);
        }
        assert!(!is_off(&bench, 1), "{mode:?}");
    }
}

#[test]
fn a_reset_reaches_cores_that_are_off() {
    let mut bench = asleep(PowerMode::Balanced);
    let life = bench.life(0);
    fake::with(|machine| machine.gic.set_line(42, true));
    assert_eq!(bench.acknowledges(0, 1), 52);
    bench.does(0, 1, |cpu| cpu.hvc([psci::SYSTEM_RESET, 0, 0, 0]));
    bench.until("a new life", |bench| {
        bench.life(0) > life && bench.entry(0, 0).pc == GUEST_MEMORY
    });
}

/// Firmware that does not turn cores off is asked once for each. The core then waits for interrupts, and comes back for one.
#[test]
fn a_core_that_the_firmware_does_not_turn_off_waits() {
    let mut parts = parts(&described(PowerMode::Balanced));
    let mut firmware = Firmware::new([-1; 3]);
    firmware.turns_off = false;
    parts.firmware = vec![(firmware, 0); 3];
    let mut bench = Bench::boot_parts(parts);
    until_both_run(&mut bench);
    let mut bench = falls_asleep(bench);
    let sleeps = |core: usize| fake::with(|machine| machine.cores[core].sleeps);
    let before = [sleeps(1), sleeps(2)];
    bench.iterations(1_000);
    assert!(is_off(&bench, 1) && is_off(&bench, 2));
    // The sleep of the fake machine ends again and again, and the core does nothing then.
    assert!(sleeps(1) > before[0] && sleeps(2) > before[1]);
    for core in [1, 2] {
        assert_eq!(bench.machine.power.supply.off(PcpuId(core)), Off::Waits);
    }
    fake::with(|machine| machine.gic.set_line(43, true));
    assert_eq!(bench.acknowledges(0, 2), 53);
}

/// The vCPUs of the guest become busy and sleep again and again: cores are turned off and on, and each finds its vCPU and its timer as they were. The fake
/// machine gives other values to all registers of a core that was off.
#[test]
fn cores_are_turned_off_and_on_again_and_again() {
    let mut bench = asleep(PowerMode::Balanced);
    for _ in 0..3 {
        for (vcpu, line, number) in [(1, 42, 52), (2, 43, 53)] {
            fake::with(|machine| machine.gic.set_line(line, true));
            assert_eq!(bench.acknowledges(0, vcpu), number);
            bench.look(0, vcpu, move |cpu| cpu.end(number));
            fake::with(|machine| machine.gic.set_line(line, false));
        }
        bench.until("a core is turned on", |_| {
            power(1) == CorePower::On || power(2) == CorePower::On
        });
        // Cores that were missed go off later.
        for _ in 0..100 {
            for vcpu in 0..3 {
                if bench.has_done(0, vcpu) {
                    bench.will(0, vcpu, |cpu| cpu.wfi());
                }
            }
            bench.iterations(1_000);
        }
        assert_eq!([1, 2].map(power), [CorePower::Off; 2]);
    }
}
