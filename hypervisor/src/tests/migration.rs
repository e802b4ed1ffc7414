// SPDX-License-Identifier: MIT OR Apache-2.0
//! vCPUs that migrate.

use super::bench::Bench;
use super::guest::{gicd, psci};
use super::systems::*;
use crate::fake::{self, Register};
use spumone_config::packed::{Policy, Trigger};
use spumone_core::migration::ParkedState;
use std::vec::Vec;

/// A guest with two vCPUs that migrate between two cores, and a real-time guest on core 0.
fn running(policy: Policy) -> Bench {
    running_with_spis(policy, 1)
}

/// The same; the first guest has so many SPIs, from 42 on, which are 52 and up for it.
fn running_with_spis(policy: Policy, count: u16) -> Bench {
    let migrates = GuestParts::new(&[(0, 10), (1, 10)]).on(0b11);
    let migrates = (0..count).fold(migrates, |guest, spi| {
        guest.with_spi(42 + spi, 52 + spi, Trigger::Edge)
    });
    let real_time = GuestParts::new(&[(0, 20)]).with_spi(40, 50, Trigger::Edge);
    let guests = [migrates, real_time];
    let mut bench = Bench::boot(&system(2, policy, &guests));
    until_both_run(&mut bench);
    bench
}

/// The real-time guest, which is the second one, runs and sleeps; then the first one runs.
pub(super) fn until_both_run(bench: &mut Bench) {
    bench.until("the real-time guest runs", |bench| {
        bench.entry(1, 0).count > 0
    });
    bench.opens_gic(1, 0, &[50]);
    bench.does(1, 0, |cpu| cpu.wfi());
    bench.until("the other guest runs", |bench| bench.entry(0, 0).count > 0);
}

/// An interrupt has the real-time guest preempt its core, and keep it.
fn real_time_guest_preempts(bench: &mut Bench) {
    fake::with(|machine| machine.gic.set_line(40, true));
    assert_eq!(bench.acknowledges(1, 0), 50);
}

#[test]
fn without_a_policy_a_vcpu_stays_where_it_is_preempted() {
    let mut bench = running(Policy::None);
    real_time_guest_preempts(&mut bench);
    let count = bench.entry(0, 0).count;
    bench.iterations(2_000);
    assert_eq!(bench.entry(0, 0).count, count);
}

#[test]
fn an_idle_core_fetches_a_preempted_vcpu() {
    for policy in [
        Policy::Steal,
        Policy::OnDemand,
        Policy::Balance,
        Policy::Trap,
    ] {
        let mut bench = running(policy);
        bench.look(0, 0, |cpu| {
            cpu.set(Register::TTBR0_EL1, 0x7000);
            fake::with(|machine| machine.cores[cpu.core].vectors[7] = 7);
            cpu.registers.x[7] = 77;
        });
        real_time_guest_preempts(&mut bench);
        bench.until("it runs on the other core", |bench| {
            bench.runs_on(1, 0, 0) && bench.entry(0, 0).core == 1
        });
        let found = bench.look(0, 0, |cpu| {
            let vector = fake::with(|machine| machine.cores[cpu.core].vectors[7]);
            (
                cpu.core,
                cpu.get(Register::TTBR0_EL1),
                vector,
                cpu.registers.x[7],
            )
        });
        assert_eq!(found, (1, 0x7000, 7, 77), "{policy:?}");
    }
}

#[test]
fn a_preempted_vcpu_is_wanted_if_it_was_in_its_kernel() {
    const EL0: u64 = 0b0000;
    const EL1: u64 = 0b0101;
    for (mode, expected) in [(EL0, ParkedState::Runnable), (EL1, ParkedState::Wanted)] {
        let mut bench = running(Policy::Steal);
        bench.look(0, 0, move |cpu| cpu.registers.pstate = mode);
        fake::with(|machine| machine.gic.set_line(40, true));
        let slot = bench.machine.shared.slot(bench.vcpu(0, 0));
        // Only its own core: the other one would take the vCPU.
        let parked = (0..500).find_map(|_| {
            bench.iterate(0);
            slot.parked()
        });
        assert_eq!(parked.map(|it| it.state), Some(expected));
    }
}

#[test]
fn spis_follow_their_vcpu() {
    let mut bench = running(Policy::Steal);
    bench.opens_gic(0, 0, &[52]);
    real_time_guest_preempts(&mut bench);
    bench.until("it runs on the other core", |bench| bench.runs_on(1, 0, 0));
    assert_eq!(fake::with(|machine| machine.gic.routes[42]), 1);
    fake::with(|machine| machine.gic.set_line(42, true));
    assert_eq!(bench.acknowledges(0, 0), 52);
    bench.look(0, 0, |cpu| cpu.end(52));
    assert!(!fake::with(|machine| machine.is_active(1, 42)));
}

/// They follow in parts, and only those that the guest has routed to that vCPU.
#[test]
fn many_spis_follow_their_vcpu() {
    let mut bench = running_with_spis(Policy::Steal, 20);
    let others = [52, 60, 71];
    for interrupt in others {
        let router = DISTRIBUTOR + gicd::IROUTER + 8 * interrupt;
        bench.does(0, 0, move |cpu| cpu.store(router, 1));
    }
    let routes = || fake::with(|machine| machine.gic.routes[42..62].to_vec());
    let routed = |to: u64| {
        let to = |interrupt| if others.contains(&interrupt) { 1 } else { to };
        (52..72).map(to).collect::<Vec<_>>()
    };
    assert_eq!(routes(), routed(0));
    real_time_guest_preempts(&mut bench);
    bench.until("it runs on the other core", |bench| bench.runs_on(1, 0, 0));
    bench.iterations(20);
    assert_eq!(routes(), routed(1));
}

/// Not with `balance`, which leaves a preempted vCPU alone while no core idles.
#[test]
fn three_vcpus_share_two_cores() {
    for policy in [
        Policy::Steal,
        Policy::OnDemand,
        Policy::Trap,
        Policy::Random,
    ] {
        let mut bench = running(policy);
        bench.does(0, 0, |cpu| cpu.hvc([psci::CPU_ON, 1, GUEST_MEMORY, 0]));
        bench.until("the second vCPU runs", |bench| bench.entry(0, 1).count > 0);
        real_time_guest_preempts(&mut bench);
        for vcpu in [0, 1, 0, 1] {
            let count = bench.entry(0, vcpu).count;
            bench.until(&format!("{policy:?}: vCPU {vcpu} runs"), |bench| {
                bench.entry(0, vcpu).count > count + 5
            });
            assert!(
                bench.runs_on(0, 1, 0),
                "{policy:?}: the real-time guest has lost its core"
            );
        }
    }
}

/// It is turned off on a core other than the one where it runs later.
#[test]
fn a_vcpu_that_is_turned_on_again_has_no_translations_of_before_on_any_core() {
    let guests = [
        GuestParts::new(&[(2, 10), (0, 10)]).on(0b111),
        GuestParts::new(&[(0, 20)]).with_spi(40, 50, Trigger::Edge),
        GuestParts::new(&[(1, 20)]).with_spi(41, 50, Trigger::Edge),
    ];
    let mut bench = Bench::boot(&system(3, Policy::Steal, &guests));
    bench.until_all_run();
    for guest in [1, 2] {
        bench.opens_gic(guest, 0, &[50]);
        bench.does(guest, 0, |cpu| cpu.wfi());
    }
    bench.does(0, 0, |cpu| cpu.hvc([psci::CPU_ON, 1, GUEST_MEMORY, 0]));
    bench.until("it runs on core 0", |bench| bench.runs_on(0, 0, 1));
    bench.look(0, 1, |cpu| assert_eq!(cpu.core, 0));
    real_time_guest_preempts(&mut bench);
    bench.until("it runs on core 1", |bench| bench.runs_on(1, 0, 1));
    bench.does(0, 1, |cpu| cpu.hvc([psci::CPU_OFF, 0, 0, 0]));
    bench.does(1, 0, |cpu| {
        cpu.end(50);
        cpu.wfi()
    });
    bench.does(0, 0, |cpu| cpu.hvc([psci::CPU_ON, 1, GUEST_MEMORY, 0]));
    bench.until("it runs on core 1 again", |bench| bench.runs_on(1, 0, 1));
    fake::with(|machine| machine.gic.set_line(41, true));
    bench.until("it runs on core 0 again", |bench| bench.runs_on(0, 0, 1));
    // The fake machine panics at cached translations of before.
    bench.look(0, 1, |cpu| assert_eq!(cpu.core, 0));
}

#[test]
fn a_guest_is_reset_while_its_vcpus_migrate() {
    let mut bench = running(Policy::Random);
    bench.does(0, 0, |cpu| cpu.hvc([psci::CPU_ON, 1, GUEST_MEMORY, 0]));
    for _ in 0..20 {
        bench.iterations(137);
        let life = bench.life(0);
        bench.does(0, 0, |cpu| cpu.hvc([psci::SYSTEM_RESET, 0, 0, 0]));
        bench.until("a new life", |bench| bench.life(0) > life);
        bench.does(0, 0, |cpu| cpu.hvc([psci::CPU_ON, 1, GUEST_MEMORY, 0]));
    }
}

#[test]
fn a_guest_restarts_on_a_core_that_is_not_the_home_of_its_first_vcpu() {
    let mut bench = running(Policy::OnDemand);
    real_time_guest_preempts(&mut bench);
    bench.until("it runs on the other core", |bench| bench.runs_on(1, 0, 0));
    let life = bench.life(0);
    bench.does(0, 0, |cpu| cpu.hvc([psci::SYSTEM_RESET, 0, 0, 0]));
    // Its home core is idle before the guest is loaded.
    bench.does(1, 0, |cpu| {
        cpu.end(50);
        cpu.wfi()
    });
    // A command of the operator makes that core decide.
    fake::with(|machine| machine.type_keys(&[0x1D, b's']));
    bench.until("a new life", |bench| bench.life(0) > life);
    bench.until("it returns", |bench| bench.runs_on(0, 0, 0));
}

#[test]
fn a_kernel_is_kept_off_the_core_of_a_real_time_guest() {
    let mut bench = running(Policy::Trap);
    // On its home core it is caught at its first instruction.
    bench.until("it is sent to the other core", |bench| {
        bench.runs_on(1, 0, 0)
    });
    bench.does(0, 0, |cpu| cpu.wfe());
    bench.iterations(500);
    assert!(bench.runs_on(1, 0, 0));
}

/// Its registers are those of its last life until it runs: they must not count.
#[test]
fn a_vcpu_that_is_turned_on_is_in_its_kernel_whatever_it_did_before() {
    let mut bench = running(Policy::Steal);
    let starts_the_other = |bench: &mut Bench| {
        bench.does(0, 0, |cpu| cpu.hvc([psci::CPU_ON, 1, GUEST_MEMORY, 0]));
    };
    starts_the_other(&mut bench);
    bench.does(0, 1, |cpu| {
        // EL0.
        cpu.registers.pstate = 0;
        cpu.wfi()
    });
    let life = bench.life(0);
    bench.does(0, 0, |cpu| cpu.hvc([psci::SYSTEM_RESET, 0, 0, 0]));
    bench.until("a new life", |bench| bench.life(0) > life);
    real_time_guest_preempts(&mut bench);
    bench.until("it goes on on the other core", |bench| {
        bench.runs_on(1, 0, 0)
    });
    starts_the_other(&mut bench);
    let id = bench.vcpu(0, 1);
    let state = |bench: &Bench| {
        let parked = bench.machine.shared.slot(id).parked();
        parked.map(|it| it.state)
    };
    bench.until("it is parked and may run", |bench| {
        state(bench).is_some_and(ParkedState::is_runnable)
    });
    assert_eq!(state(&bench), Some(ParkedState::Wanted));
}
