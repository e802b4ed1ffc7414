// SPDX-License-Identifier: MIT OR Apache-2.0
//! A guest that is woken early: its core switches to it before its timer expires.

use super::bench::Bench;
use super::guest::{gicd, psci};
use super::systems::*;
use super::timers::{TIMER, handles_its_timer, now, sleeps_for};
use crate::fake::{self, Register};
use spumone_config::packed::{Policy, Trigger, WakeEarly};
use spumone_core::schedule::VcpuState;

/// An SPI of the guest that is woken early, on the machine and for the guest.
const DEVICE: (u16, u16) = (40, 50);
/// How early, in microseconds, and in ticks of the fake machine's counter.
const EARLY_US: u32 = 300;
const EARLY: u64 = 18_750;

/// A guest that is woken early, and one of a lower band on the same core.
fn early_beside_another(policy: Policy) -> Bench {
    woken_early(policy, EARLY_US)
}

fn woken_early(policy: Policy, microseconds: u32) -> Bench {
    let (physical, own) = DEVICE;
    let guests = [
        GuestParts::new(&[(0, 20)])
            .with_spi(physical, own, Trigger::Edge)
            .woken_early(WakeEarly::Microseconds(microseconds)),
        GuestParts::new(&[(0, 10), (1, 10)]).on(3),
    ];
    let mut bench = Bench::boot(&system(2, policy, &guests));
    bench.until("the first guest runs", |bench| bench.entry(0, 0).count > 0);
    bench.opens_gic(0, 0, &[TIMER, own]);
    bench.does(0, 0, |cpu| cpu.wfi());
    bench.does(1, 0, |cpu| cpu.hvc([psci::CPU_ON, 1, GUEST_MEMORY, 0]));
    bench.until("both cores are busy", |bench| bench.entry(1, 1).count > 0);
    fake::with(|machine| machine.gic.set_line(physical, true));
    assert_eq!(bench.acknowledges(0, 0), own);
    fake::with(|machine| machine.gic.set_line(physical, false));
    bench.look(0, 0, move |cpu| cpu.end(own));
    bench
}

fn is_loaded_and_runs(bench: &mut Bench) -> bool {
    bench.runs_on(0, 0, 0) && bench.instances[0].loaded() == Some(bench.vcpu(0, 0))
}

#[test]
fn its_core_switches_to_it_early_and_enters_it_when_its_timer_expires() {
    for policy in [Policy::None, Policy::Steal] {
        let mut bench = early_beside_another(policy);
        for _ in 0..3 {
            let at = sleeps_for(&mut bench, 200_000);
            bench.until("the other guest runs", |bench| {
                bench.runs_on(0, 1, 0) || bench.runs_on(0, 1, 1)
            });
            let entries = bench.entry(0, 0).count;
            bench.until("it is loaded", is_loaded_and_runs);
            assert!(
                now() >= at - EARLY - 3_000 && now() < at - EARLY / 2,
                "{} of {at}",
                now()
            );
            let others = bench.entry(1, 0).count;
            bench.until("it is entered", |bench| bench.entry(0, 0).count > entries);
            assert!(now() >= at && now() < at + 3_000, "{} of {at}", now());
            assert!(policy == Policy::Steal || bench.entry(1, 0).count == others);
            handles_its_timer(&mut bench);
        }
    }
}

/// It then has its interrupt when it is loaded, and none comes for which it could wait.
#[test]
fn a_timer_that_expires_within_the_switch_is_not_awaited() {
    for microseconds in 1..30 {
        let mut bench = woken_early(Policy::None, microseconds);
        let at = sleeps_for(&mut bench, 100_000);
        bench.until("the other guest runs", |bench| bench.runs_on(0, 1, 0));
        assert_eq!(bench.acknowledges(0, 0), TIMER);
        assert!(now() >= at && now() < at + 4_000, "{microseconds} µs early");
    }
}

#[test]
fn on_an_idle_core_it_is_awake_before_its_timer_expires() {
    let mut bench = early_beside_another(Policy::None);
    bench.guests.borrow_mut().habit = Some(Box::new(|cpu| match cpu.guest {
        0 => cpu.interrupted(),
        _ => cpu.wfi(),
    }));
    for round in 0..3 {
        let at = sleeps_for(&mut bench, 200_000);
        let entries = bench.entry(0, 0).count;
        // In the first round the other guest executes its WFI meanwhile, and is loaded.
        bench.until("the core idles", |bench| {
            bench.instances[0].running().is_none()
        });
        let is_loaded = bench.instances[0].loaded() == Some(bench.vcpu(0, 0));
        assert_eq!(is_loaded, round > 0);
        bench.until("it runs", is_loaded_and_runs);
        assert!(now() >= at - EARLY - 3_000 && now() < at - EARLY / 2);
        bench.until("it is entered", |bench| bench.entry(0, 0).count > entries);
        assert!(now() >= at && now() < at + 3_000, "{} of {at}", now());
        handles_its_timer(&mut bench);
    }
}

#[test]
fn it_keeps_the_core_if_its_timer_expires_soon() {
    let mut bench = early_beside_another(Policy::None);
    let others = bench.entry(1, 0).count;
    let at = sleeps_for(&mut bench, EARLY - 2_000);
    let entries = bench.entry(0, 0).count;
    bench.until("it is entered", |bench| bench.entry(0, 0).count > entries);
    assert!(now() >= at && now() < at + 3_000);
    assert_eq!(bench.entry(1, 0).count, others);
    assert_eq!(bench.acknowledges(0, 0), TIMER);
}

/// A device's interrupt is in a list register, and masked by the guest's priority mask.
#[test]
fn it_keeps_the_core_also_if_it_has_an_interrupt_that_it_masks() {
    let (physical, own) = DEVICE;
    let mut bench = early_beside_another(Policy::None);
    let priority = DISTRIBUTOR + gicd::IPRIORITYR + u64::from(own & !3);
    bench.does(0, 0, move |cpu| cpu.store(priority, u32::MAX));
    bench.look(0, 0, |cpu| {
        cpu.set(Register::ICH_VMCR_EL2, 0x80 << 24 | 1 << 1);
    });
    fake::with(|machine| machine.gic.set_line(physical, true));
    bench.iterations(10);
    assert_eq!(bench.look(0, 0, |cpu| cpu.acknowledge()), None);
    sleeps_for(&mut bench, EARLY - 2_000);
    assert_eq!(
        bench.instances[0].state(bench.vcpu(0, 0)),
        Some(VcpuState::Running)
    );
    assert_eq!(bench.acknowledges(0, 0), TIMER);
}

#[test]
fn another_interrupt_ends_the_wait() {
    let (physical, own) = DEVICE;
    let mut bench = early_beside_another(Policy::None);
    let at = sleeps_for(&mut bench, EARLY - 2_000);
    bench.iterations(3);
    let entries = bench.entry(0, 0).count;
    fake::with(|machine| machine.gic.set_line(physical, true));
    bench.until("it is entered", |bench| bench.entry(0, 0).count > entries);
    assert!(now() < at);
    assert_eq!(bench.acknowledges(0, 0), own);
}

/// The guest does not end the interrupt of its timer, so the timer does not interrupt it again. The other guest must not wait for
/// that.
#[test]
fn a_timer_that_cannot_interrupt_is_not_awaited_for_ever() {
    let mut bench = early_beside_another(Policy::None);
    sleeps_for(&mut bench, EARLY - 2_000);
    assert_eq!(bench.acknowledges(0, 0), TIMER);
    let (others, start) = (bench.entry(1, 0).count, now());
    sleeps_for(&mut bench, EARLY - 2_000);
    bench.guests.borrow_mut().habit = Some(Box::new(|cpu| match cpu.guest {
        0 => cpu.wfi(),
        _ => cpu.interrupted(),
    }));
    bench.until("the other guest runs", |bench| {
        bench.entry(1, 0).count > others
    });
    // Two milliseconds, and some iterations.
    assert!(now() - start < 140_000, "{}", now() - start);
}

#[test]
fn without_wake_early_nothing_waits() {
    let guests = [GuestParts::new(&[(0, 20)]), GuestParts::new(&[(0, 10)])];
    let mut bench = Bench::boot(&system(1, Policy::None, &guests));
    bench.until("the first guest runs", |bench| bench.entry(0, 0).count > 0);
    bench.opens_gic(0, 0, &[TIMER]);
    sleeps_for(&mut bench, 20_000);
    bench.iterations(10);
    assert_eq!(
        bench.instances[0].state(bench.vcpu(0, 0)),
        Some(VcpuState::Sleep)
    );
}
