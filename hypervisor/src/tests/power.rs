// SPDX-License-Identifier: MIT OR Apache-2.0
//! Cores that go off when they are not needed, and come back.

use super::bench::Bench;
use super::guest::{GuestCpu, psci};
use super::migration::until_both_run;
use super::systems::*;
use crate::epitaph::fatal;
use crate::fake::{self, CorePower, Ended, Firmware, printed};
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
    let migrates = GuestParts {
        sets_power: true,
        ..migrates
    };
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

const CALL: u64 = 0x8600_0040;

/// All cores come on, and go off again.
#[test]
fn a_guest_that_may_sets_the_mode() {
    let mut bench = asleep(PowerMode::Balanced);
    fake::with(|machine| machine.gic.set_line(42, true));
    assert_eq!(bench.acknowledges(0, 1), 52);
    let call = |bench: &mut Bench, command| {
        let call = move |cpu: &mut GuestCpu<'_>| cpu.hvc([CALL, command, 22, 33]);
        bench.does_and_returns(0, 1, call).x
    };
    assert_eq!(call(&mut bench, 3)[..4], [1, 3, 22, 33]);
    assert_eq!(call(&mut bench, 4)[0], -2_i64 as u64);
    assert_eq!(call(&mut bench, 0)[0], 1);
    let all_on = |bench: &Bench| !is_off(bench, 1) && !is_off(bench, 2);
    bench.until("all cores are on", |bench| all_on(bench));
    bench.iterations(1_000);
    assert!(all_on(&bench));
    assert_eq!(call(&mut bench, 2)[0], 0);
    bench.does(0, 0, |cpu| cpu.wfi());
    bench.until("a core goes off", |bench| !all_on(bench));
}

#[test]
fn for_another_guest_there_is_no_such_call() {
    let mut bench = Bench::boot(&described(PowerMode::Balanced));
    bench.until("it runs", |bench| bench.entry(1, 0).count > 0);
    for command in [0, 1, 2, 3, 4] {
        let call = move |cpu: &mut GuestCpu<'_>| cpu.hvc([CALL, command, 22, 33]);
        let x = bench.does_and_returns(1, 0, call).x;
        assert_eq!(x[..4], [-1_i64 as u64, command, 22, 33]);
    }
}

fn types(keys: &[u8]) {
    fake::with(|machine| machine.type_keys(keys));
}

#[test]
fn keys_change_the_mode() {
    let mut bench = asleep(PowerMode::Saving);
    types(b"\x1dpx");
    bench.until("a refusal", |_| printed().contains("no such power mode"));
    types(b"\x1dpp");
    bench.until("the mode", |_| {
        printed().contains("power mode: performance")
    });
    bench.until("all cores are on", |bench| {
        !is_off(bench, 1) && !is_off(bench, 2)
    });
    types(b"\x1dpb");
    bench.until("the mode", |_| printed().contains("power mode: balanced"));
    bench.until("only core 0 is on", |bench| {
        is_off(bench, 1) && is_off(bench, 2)
    });
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

/// Firmware that does not turn cores on is asked again, and the core that asks goes on.
#[test]
fn a_core_that_the_firmware_does_not_turn_on_comes_on_later() {
    let mut bench = asleep(PowerMode::Balanced);
    let turns_on = |it| fake::with(|machine| machine.cores[1].firmware.turns_on = it);
    turns_on(false);
    let vcpu = bench.vcpu(0, 1);
    let _ = fake::until_it_ends(2, || bench.machine.kick(PcpuId(1), vcpu));
    bench.until("the refusal is noted", |bench| {
        bench.machine.power.supply.off(PcpuId(1)) == Off::Lost
    });
    fake::with(|machine| machine.gic.set_line(43, true));
    assert_eq!(bench.acknowledges(0, 2), 53);
    assert_eq!(power(1), CorePower::Off);
    turns_on(true);
    bench.until("the core is on", |_| power(1) == CorePower::On);
}

/// A core is kicked again before it is on: the firmware says that it is on, so the console's core is ordered to turn it on, and finds that it is.
#[test]
fn a_core_that_is_about_to_come_on_is_not_lost() {
    let mut bench = asleep(PowerMode::Balanced);
    for vcpu in [1, 2] {
        let vcpu = bench.vcpu(0, vcpu);
        let _ = fake::until_it_ends(2, || bench.machine.kick(PcpuId(1), vcpu));
    }
    let supply = &bench.machine.power.supply;
    assert_eq!(power(1), CorePower::Starts);
    assert!(supply.has_starts());
    // It is not on yet.
    for _ in 0..100 {
        bench.iterate(0);
    }
    assert!(supply.has_starts());
    bench.iterate(1);
    for _ in 0..100 {
        bench.iterate(0);
    }
    assert!(!supply.has_starts());
}

/// The SGI by which a core that dies stops the others does not reach a core that the firmware turns on at that moment. The core stops all the same.
#[test]
fn a_core_that_comes_on_after_another_one_has_died_stops() {
    let mut bench = asleep(PowerMode::Balanced);
    let vcpu = bench.vcpu(0, 1);
    let _ = fake::until_it_ends(2, || bench.machine.kick(PcpuId(1), vcpu));
    assert_eq!(power(1), CorePower::Starts);
    let _ = fake::until_it_ends(0, || fatal!("a test"));
    fake::with(|machine| machine.cores[1].private.latched = 0);
    bench.iterate(1);
    assert_eq!(bench.ended, Some(Ended::Halted));
}
