// SPDX-License-Identifier: MIT OR Apache-2.0
//! Interrupts: of devices and timers, and between cores.

use super::bench::Bench;
use super::guest::psci;
use super::systems::*;
use crate::console::CONSOLE;
use crate::fake::{self, Register};
use crate::machine::Machine;
use core::sync::atomic::Ordering::Relaxed;
use spumone_config::packed::{Policy, Trigger};
use spumone_config::{GuestId, PcpuId};
use spumone_core::console::Drained;
use spumone_core::schedule::{Band, VcpuState};
use spumone_core::trap::SysReg;
use spumone_core::vgic::{SgiRegister, VcpuIndex};

const VIRTUAL_TIMER: u16 = 27;
const PHYSICAL_TIMER: u16 = 30;

/// A guest on two cores, and another one of a lower band on each.
fn running() -> Bench {
    let guests = [
        GuestParts::new(&[(0, 20), (1, 20)])
            .with_spi(40, 50, Trigger::Edge)
            .with_spi(41, 51, Trigger::Level),
        GuestParts::new(&[(0, 10), (1, 10)]).with_spi(42, 50, Trigger::Level),
    ];
    let mut bench = Bench::boot(&system(2, Policy::None, &guests));
    bench.until("the first guest runs", |bench| bench.entry(0, 0).count > 0);
    bench.does(0, 0, |cpu| cpu.hvc([psci::CPU_ON, 1, GUEST_MEMORY, 0]));
    bench.until("its second vCPU runs", |bench| bench.entry(0, 1).count > 0);
    bench
}

fn is_active(core: usize, interrupt: u16) -> bool {
    fake::with(|machine| machine.is_active(core, interrupt))
}

fn set_line(interrupt: u16, high: bool) {
    fake::with(|machine| machine.gic.set_line(interrupt, high));
}

#[test]
fn an_edge_of_a_device_reaches_its_guest_once() {
    let mut bench = running();
    bench.opens_gic(0, 0, &[50]);
    set_line(40, true);
    assert_eq!(bench.acknowledges(0, 0), 50);
    assert!(is_active(0, 40), "it stays active until the guest ends it");
    bench.look(0, 0, |cpu| cpu.end(50));
    assert!(!is_active(0, 40));
    assert_eq!(bench.look(0, 0, |cpu| cpu.acknowledge()), None);
}

#[test]
fn a_level_sensitive_interrupt_is_signalled_until_its_line_is_low() {
    let mut bench = running();
    bench.opens_gic(0, 0, &[51]);
    set_line(41, true);
    for _ in 0..3 {
        assert_eq!(bench.acknowledges(0, 0), 51);
        bench.look(0, 0, |cpu| cpu.end(51));
    }
    assert_eq!(bench.acknowledges(0, 0), 51);
    set_line(41, false);
    bench.look(0, 0, |cpu| cpu.end(51));
    bench.iterations(5);
    assert_eq!(bench.look(0, 0, |cpu| cpu.acknowledge()), None);
    assert!(!is_active(0, 41));
}

#[test]
fn an_spi_that_a_guest_has_routed_to_its_second_vcpu_goes_there() {
    let mut bench = running();
    bench.opens_gic(0, 1, &[50]);
    assert_eq!(fake::with(|machine| machine.gic.routes[40]), 1);
    set_line(40, true);
    assert_eq!(bench.acknowledges(0, 1), 50);
    bench.look(0, 1, |cpu| cpu.end(50));
    assert!(!is_active(1, 40));
}

#[test]
fn the_timers_of_a_vcpu_interrupt_it() {
    for (timer, control, compare) in [
        (
            VIRTUAL_TIMER,
            Register::CNTV_CTL_EL0,
            Register::CNTV_CVAL_EL0,
        ),
        (
            PHYSICAL_TIMER,
            Register::CNTP_CTL_EL0,
            Register::CNTP_CVAL_EL0,
        ),
    ] {
        let mut bench = running();
        bench.opens_gic(0, 0, &[timer]);
        for _ in 0..3 {
            bench.look(0, 0, move |cpu| {
                cpu.set(compare, cpu.now() + 5_000);
                cpu.set(control, 1);
            });
            assert_eq!(bench.look(0, 0, |cpu| cpu.acknowledge()), None, "too early");
            assert_eq!(bench.acknowledges(0, 0), timer);
            assert!(is_active(0, timer), "it is signalled again");
            bench.look(0, 0, move |cpu| {
                cpu.set(control, 0);
                cpu.end(timer);
            });
            assert!(!is_active(0, timer));
        }
    }
}

/// Whether a vCPU is entered again at once after its timer has interrupted it, if `meanwhile` happens while it is in its guest.
fn enters_again(meanwhile: impl FnOnce(&Machine) + 'static) -> bool {
    let guests = [GuestParts::new(&[(0, 20)])];
    let mut bench = Bench::boot(&system(1, Policy::None, &guests));
    bench.until("the guest runs", |bench| bench.entry(0, 0).count > 0);
    bench.opens_gic(0, 0, &[VIRTUAL_TIMER]);
    bench.look(0, 0, |cpu| {
        cpu.set(Register::CNTV_CVAL_EL0, 0);
        cpu.set(Register::CNTV_CTL_EL0, 1);
    });
    assert_eq!(bench.acknowledges(0, 0), VIRTUAL_TIMER);
    let machine = bench.machine;
    bench.look(0, 0, move |cpu| {
        cpu.end(VIRTUAL_TIMER);
        meanwhile(machine);
    });
    let enters_again = bench.enters_again[0];
    assert_eq!(bench.acknowledges(0, 0), VIRTUAL_TIMER);
    enters_again
}

/// The same after an SGI, for which another core has kicked its core.
fn enters_again_after_sgi(meanwhile: impl FnOnce(&Machine) + 'static) -> bool {
    const SGI: u16 = 3;
    let guests = [GuestParts::new(&[(0, 20)])];
    let mut bench = Bench::boot(&system(1, Policy::None, &guests));
    bench.until("the guest runs", |bench| bench.entry(0, 0).count > 0);
    bench.opens_gic(0, 0, &[SGI]);
    let (machine, vcpu) = (bench.machine, bench.vcpu(0, 0));
    let send = move || {
        let gic = &machine.guest(GuestId(0)).gic;
        let _ = gic.send_sgi(VcpuIndex(0), SgiRegister::Sgi1r, u64::from(SGI) << 24 | 1);
        machine.kick(PcpuId(0), vcpu);
    };
    bench.look(0, 0, move |_| send());
    assert_eq!(bench.acknowledges(0, 0), SGI);
    bench.look(0, 0, move |cpu| {
        cpu.end(SGI);
        send();
        meanwhile(machine);
    });
    let enters_again = bench.enters_again[0];
    assert_eq!(bench.acknowledges(0, 0), SGI);
    enters_again
}

#[test]
fn a_vcpu_whose_timer_or_sgi_comes_again_is_entered_again_at_once() {
    assert!(enters_again(|_| {}));
    assert!(enters_again_after_sgi(|_| {}));
}

#[test]
fn a_vcpu_is_not_entered_again_at_once_if_the_core_has_something_to_do() {
    let output = |_: &Machine| {
        CONSOLE.serve(|_| Drained::BudgetSpent);
    };
    assert!(!enters_again(output));
    assert!(!enters_again_after_sgi(output));
    let device = |machine: &Machine| machine.guest(GuestId(0)).due.store(1, Relaxed);
    assert!(!enters_again(device));
    assert!(!enters_again_after_sgi(device));
    // It is not the SGI by which a core kicks for the vCPU.
    let interrupt = |machine: &Machine| machine.hint(PcpuId(0), Band::HIGHEST);
    assert!(!enters_again(interrupt));
    assert!(!enters_again_after_sgi(interrupt));
}

#[test]
fn a_vcpu_whose_timer_is_masked_sleeps() {
    const ON_AND_MASKED: u64 = 0b11;
    let mut bench = running();
    bench.opens_gic(0, 0, &[VIRTUAL_TIMER]);
    bench.does(0, 0, |cpu| {
        cpu.set(Register::CNTV_CVAL_EL0, 0);
        cpu.set(Register::CNTV_CTL_EL0, ON_AND_MASKED);
        cpu.wfi()
    });
    bench.iterations(20);
    assert_eq!(
        bench.instances[0].state(bench.vcpu(0, 0)),
        Some(VcpuState::Sleep)
    );
}

/// A list register is in use, so EL2 fills the list registers again on the way to sleep. A timer that expires just then
/// is active on the core, so its interrupt is not signalled any more; and no other vCPU runs, so none is saved.
#[test]
fn a_timer_that_expires_on_the_way_to_sleep_wakes_its_vcpu() {
    for ticks in 0..60 {
        let mut bench = Bench::boot(&system(1, Policy::None, &[GuestParts::new(&[(0, 20)])]));
        bench.until_all_run();
        bench.opens_gic(0, 0, &[VIRTUAL_TIMER]);
        bench.look(0, 0, |cpu| {
            cpu.set(Register::CNTV_CVAL_EL0, 0);
            cpu.set(Register::CNTV_CTL_EL0, 1);
        });
        bench.until("the timer is in a list register", |_| {
            fake::with(|machine| machine.cores[0].virtual_signalled().is_some())
        });
        bench.does(0, 0, move |cpu| {
            cpu.set(Register::CNTV_CVAL_EL0, cpu.now() + ticks);
            cpu.wfi()
        });
        let count = bench.entry(0, 0).count;
        bench.iterations(60);
        assert!(
            bench.entry(0, 0).count > count,
            "it expires after {ticks} ticks, and does not wake the vCPU"
        );
    }
}

#[test]
fn a_timer_that_has_expired_and_is_not_enabled_in_the_gic_wakes_nothing() {
    let mut bench = running();
    bench.guests.borrow_mut().habit = Some(Box::new(|cpu| match cpu.guest {
        0 => cpu.wfi(),
        _ => cpu.interrupted(),
    }));
    bench.look(0, 0, |cpu| {
        cpu.set(Register::CNTV_CVAL_EL0, 0);
        cpu.set(Register::CNTV_CTL_EL0, 1);
    });
    bench.until("the other guest runs", |bench| bench.runs_on(0, 1, 0));
    let count = bench.entry(0, 0).count;
    bench.iterations(100);
    assert_eq!(bench.entry(0, 0).count, count);
}

#[test]
fn a_timer_that_was_saved_after_it_had_signalled_is_deactivated() {
    let guests = [GuestParts::new(&[(0, 20), (1, 20)])];
    let mut bench = Bench::boot(&system(2, Policy::None, &guests));
    bench.until_all_run();
    bench.iterations(10);
    assert_eq!(bench.instances[1].loaded(), None);
    // The GIC has not seen yet that the line is low.
    fake::with(|machine| machine.cores[1].private.latched |= 1 << VIRTUAL_TIMER);
    bench.iterations(5);
    fake::with(|machine| assert_eq!(machine.cores[1].private.latched, 0));
    assert!(!is_active(1, VIRTUAL_TIMER));
}

#[test]
fn the_alarm_wakes_a_vcpu_that_is_not_loaded() {
    let mut bench = running();
    bench.opens_gic(0, 0, &[VIRTUAL_TIMER]);
    bench.does(0, 0, |cpu| {
        cpu.set(Register::CNTV_CVAL_EL0, cpu.now() + 200_000);
        cpu.set(Register::CNTV_CTL_EL0, 1);
        cpu.wfi()
    });
    bench.until("the other guest runs", |bench| {
        bench.runs_on(0, 1, 0) && bench.entry(1, 0).count > 0
    });
    let (timer, alarm) = fake::with(|machine| {
        let core = &machine.cores[0];
        (
            core.get(Register::CNTV_CTL_EL0),
            core.get(Register::CNTHP_CVAL_EL2),
        )
    });
    assert_eq!(timer & 1, 0, "the timer is not the other guest's");
    assert!(alarm < u64::MAX);
    assert_eq!(bench.acknowledges(0, 0), VIRTUAL_TIMER);
    assert!(fake::with(|machine| machine.clock) >= alarm);
}

#[test]
fn an_sgi_reaches_a_vcpu_on_another_core_by_a_kick() {
    let mut bench = running();
    bench.opens_gic(0, 0, &[3]);
    bench.opens_gic(0, 1, &[3]);
    bench.does(0, 1, |cpu| cpu.wfi());
    bench.until("it sleeps", |bench| {
        bench.instances[1].state(bench.vcpu(0, 1)) == Some(VcpuState::Sleep)
    });
    bench.does(0, 0, |cpu| cpu.msr(SysReg::ICC_SGI1R_EL1, 3 << 24 | 1 << 1));
    assert_eq!(bench.acknowledges(0, 1), 3);
    bench.look(0, 1, |cpu| cpu.end(3));
    // And one that runs.
    bench.does(0, 0, |cpu| cpu.msr(SysReg::ICC_SGI1R_EL1, 3 << 24 | 1 << 1));
    assert_eq!(bench.acknowledges(0, 1), 3);
    // To itself.
    bench.does(0, 0, |cpu| cpu.msr(SysReg::ICC_SGI1R_EL1, 3 << 24 | 1));
    assert_eq!(bench.acknowledges(0, 0), 3);
}

#[test]
fn more_pending_interrupts_than_list_registers_are_all_delivered() {
    let mut bench = running();
    let all: Vec<u16> = (0..12).collect();
    bench.opens_gic(0, 0, &all);
    for sgi in 0..12 {
        bench.does(0, 0, move |cpu| {
            cpu.msr(SysReg::ICC_SGI1R_EL1, sgi << 24 | 1)
        });
    }
    let mut came = Vec::new();
    for _ in 0..12 {
        let interrupt = bench.acknowledges(0, 0);
        bench.look(0, 0, move |cpu| cpu.end(interrupt));
        came.push(interrupt);
    }
    came.sort_unstable();
    assert_eq!(came, all);
}

#[test]
fn an_interrupt_for_a_lower_band_waits_in_the_gic() {
    let mut bench = running();
    bench.opens_gic(0, 0, &[VIRTUAL_TIMER]);
    bench.does(0, 0, |cpu| {
        cpu.set(Register::CNTV_CVAL_EL0, cpu.now() + 200_000);
        cpu.set(Register::CNTV_CTL_EL0, 1);
        cpu.wfi()
    });
    bench.opens_gic(1, 0, &[50]);
    assert_eq!(bench.acknowledges(0, 0), VIRTUAL_TIMER);
    set_line(42, true);
    bench.iterations(50);
    assert!(bench.runs_on(0, 0, 0));
    let mask = fake::with(|machine| machine.cores[0].get(Register::ICC_PMR_EL1));
    let priority = fake::with(|machine| machine.gic.spi(42).0.priority[10]);
    assert!(
        mask <= u64::from(priority),
        "mask {mask:#x} does not hold back priority {priority:#x}"
    );
    assert!(!is_active(0, 42));
    bench.does(0, 0, |cpu| {
        cpu.set(Register::CNTV_CTL_EL0, 0);
        cpu.end(VIRTUAL_TIMER);
        cpu.wfi()
    });
    assert_eq!(bench.acknowledges(1, 0), 50);
}

/// Else the vCPU of the higher band would wait for what is done for those of the lower one.
#[test]
fn a_kick_for_a_lower_band_waits_although_one_for_the_higher_band_is_taken() {
    let mut bench = running();
    let (machine, lower, higher) = (bench.machine, bench.vcpu(1, 0), bench.vcpu(0, 0));
    bench.look(0, 0, move |_| {
        machine.kick(PcpuId(0), lower);
        machine.kick(PcpuId(0), higher);
    });
    bench.iterations(10);
    assert!(bench.runs_on(0, 0, 0) && machine.cores[0].is_kicked());
    bench.does(0, 0, |cpu| cpu.wfi());
    bench.until("it is taken", |_| !machine.cores[0].is_kicked());
}

#[test]
fn an_interrupt_of_a_stopped_guest_is_disabled() {
    let mut bench = running();
    bench.opens_gic(0, 0, &[51]);
    bench.does(0, 0, |cpu| cpu.hvc([psci::SYSTEM_OFF, 0, 0, 0]));
    bench.iterations(50);
    set_line(41, true);
    bench.iterations(20);
    fake::with(|machine| {
        let (bank, bit) = machine.gic.spi(41);
        assert_eq!((bank.enabled & bit, bank.active & bit), (0, 0));
    });
}
