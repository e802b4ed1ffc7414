// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which vCPU runs, and that each finds its registers as it left them.

use super::bench::Bench;
use super::guest::GuestCpu;
use super::systems::*;
use crate::fake::{self, Register};
use crate::guest_registers::Exit;
use spumone_config::packed::{Policy, Trigger};

/// The registers of a vCPU, by the names that the hypervisor uses.
const OWN: &[Register] = &[
    Register::SCTLR_EL1,
    Register::CPACR_EL1,
    Register::TTBR0_EL1,
    Register::TTBR1_EL1,
    Register::TCR_EL1,
    Register::MAIR_EL1,
    Register::AMAIR_EL1,
    Register::VBAR_EL1,
    Register::CONTEXTIDR_EL1,
    Register::TPIDR_EL0,
    Register::TPIDRRO_EL0,
    Register::TPIDR_EL1,
    Register::ESR_EL1,
    Register::FAR_EL1,
    Register::AFSR0_EL1,
    Register::AFSR1_EL1,
    Register::PAR_EL1,
    Register::ELR_EL1,
    Register::SPSR_EL1,
    Register::SP_EL0,
    Register::SP_EL1,
    Register::CNTKCTL_EL1,
    Register::MDSCR_EL1,
    Register::CSSELR_EL1,
    Register::S3_4_C12_C1_1,
    Register::S3_4_C5_C2_3,
    Register::S3_3_C4_C4_0,
    Register::S3_3_C4_C4_1,
    Register::CNTV_CVAL_EL0,
    Register::CNTP_CVAL_EL0,
    Register::ICH_AP0R0_EL2,
    Register::ICH_AP1R0_EL2,
    Register::ICH_VMCR_EL2,
];

/// Fills all registers of a vCPU with a pattern.
fn fill(cpu: &mut GuestCpu<'_>, pattern: u64) {
    for (&register, n) in OWN.iter().zip(1..) {
        cpu.set(register, pattern + n);
    }
    for (n, x) in (1..).zip(&mut cpu.registers.x) {
        *x = pattern * 3 + n;
    }
    fake::with(|machine| {
        for (n, v) in (1..).zip(&mut machine.cores[cpu.core].vectors) {
            *v = u128::from(pattern) << 64 | n;
        }
    });
}

/// The values of all registers of a vCPU.
fn found(cpu: &GuestCpu<'_>) -> (Vec<u64>, [u128; 32], [u64; 31]) {
    let own = OWN.iter().map(|&register| cpu.get(register)).collect();
    let vectors = fake::with(|machine| machine.cores[cpu.core].vectors);
    (own, vectors, cpu.registers.x)
}

fn one_core(priorities: [u8; 2]) -> Bench {
    let guests = priorities.map(|priority| GuestParts::new(&[(0, priority)]));
    Bench::boot(&system(1, Policy::None, &guests))
}

#[test]
fn vcpus_of_one_band_take_turns_and_keep_their_registers() {
    let mut bench = one_core([10, 10]);
    bench.until_all_run();
    let mut expected = Vec::new();
    for guest in 0..2 {
        expected.push(bench.look(guest, 0, move |cpu| {
            fill(cpu, 0x1000 * (u64::from(guest) + 1));
            found(cpu)
        }));
    }
    for _ in 0..4 {
        for guest in [0, 1] {
            bench.until("it has the core", |bench| bench.runs_on(0, guest, 0));
            let seen = bench.look(guest, 0, |cpu| found(cpu));
            assert_eq!(seen, expected[usize::from(guest)]);
        }
    }
}

#[test]
fn a_time_slice_lasts_a_quantum() {
    let mut bench = one_core([10, 10]);
    bench.until_all_run();
    let mut lengths = Vec::new();
    for guest in [0, 1, 0, 1] {
        bench.until("it has the core", |bench| bench.runs_on(0, guest, 0));
        let start = fake::with(|machine| machine.clock);
        bench.until("its time slice is over", |bench| {
            !bench.runs_on(0, guest, 0)
        });
        lengths.push(fake::with(|machine| machine.clock) - start);
    }
    // One millisecond; the first time slice may have begun before the measurement.
    for length in &lengths[1..] {
        assert!((60_000..66_000).contains(length), "{lengths:?}");
    }
}

#[test]
fn a_higher_band_has_the_core_until_it_sleeps() {
    let mut bench = one_core([10, 20]);
    bench.until("the guest of the higher band runs", |bench| {
        bench.entry(1, 0).count > 0
    });
    bench.iterations(500);
    assert_eq!(bench.entry(0, 0).count, 0, "longer than any quantum");
    bench.does(1, 0, |cpu| cpu.wfi());
    bench.until("the other one runs", |bench| bench.entry(0, 0).count > 0);
}

#[test]
fn an_interrupt_for_a_higher_band_preempts_at_once() {
    let guests = [
        GuestParts::new(&[(0, 10)]),
        GuestParts::new(&[(0, 20)]).with_spi(40, 50, Trigger::Edge),
    ];
    let mut bench = Bench::boot(&system(1, Policy::None, &guests));
    bench.until("the guest of the higher band runs", |bench| {
        bench.entry(1, 0).count > 0
    });
    bench.opens_gic(1, 0, &[50]);
    bench.does(1, 0, |cpu| cpu.wfi());
    let expected = bench.look(0, 0, |cpu| {
        fill(cpu, 0x5000);
        found(cpu)
    });
    fake::with(|machine| machine.gic.set_line(40, true));
    bench.iterations(6);
    assert!(bench.runs_on(0, 1, 0));
    assert_eq!(bench.acknowledges(1, 0), 50);
    bench.does(1, 0, |cpu| {
        fill(cpu, 0x6000);
        cpu.wfi()
    });
    assert_eq!(bench.look(0, 0, |cpu| found(cpu)), expected);
}

#[test]
fn wfe_yields_to_a_vcpu_of_the_same_band() {
    let mut bench = one_core([10, 10]);
    bench.until_all_run();
    bench.until("it has the core", |bench| bench.runs_on(0, 0, 0));
    let pc = bench.look(0, 0, |cpu| cpu.registers.pc);
    bench.does(0, 0, |cpu| cpu.wfe());
    bench.iterations(4);
    assert!(bench.runs_on(0, 1, 0));
    assert_eq!(bench.look(0, 0, |cpu| cpu.registers.pc), pc + 4);
}

#[test]
fn two_vcpus_of_a_guest_share_a_core_but_no_translations() {
    use super::guest::psci;
    // The fake machine panics when a vCPU is entered with cached translations of the other.
    let guests = [GuestParts::new(&[(0, 10), (0, 10)])];
    let mut bench = Bench::boot(&system(1, Policy::None, &guests));
    bench.until_all_run();
    bench.does(0, 0, |cpu| cpu.hvc([psci::CPU_ON, 1, GUEST_MEMORY, 0]));
    for vcpu in [1, 0, 1, 0] {
        bench.until("it has the core", |bench| bench.runs_on(0, 0, vcpu));
        let aff0 = bench.look(0, vcpu, |cpu| cpu.get(Register::VMPIDR_EL2));
        assert_eq!(aff0, 1 << 31 | u64::from(vcpu));
    }
}

#[test]
fn each_guest_reaches_its_own_memory_only() {
    let mut bench = one_core([10, 10]);
    bench.until_all_run();
    for guest in 0..2u8 {
        let at = bench.look(guest, 0, |_| {
            [0, GUEST_MEMORY_SIZE - 1, GUEST_MEMORY_SIZE]
                .map(|offset| fake::walk_stage2(GUEST_MEMORY + offset))
        });
        let own = memory_of(guest.into());
        assert_eq!(at, [Some(own), Some(own + GUEST_MEMORY_SIZE - 1), None]);
    }
}

#[test]
fn a_guest_that_never_exits_by_itself_is_interrupted_by_the_alarm() {
    let mut bench = one_core([10, 10]);
    bench.until_all_run();
    // It exits only when an interrupt is signalled.
    bench.guests.borrow_mut().habit = Some(Box::new(|cpu| {
        let core = cpu.core;
        while fake::with(|machine| machine.signalled(core)).is_none() {
            fake::with(|machine| machine.clock += 100);
        }
        Exit::Interrupt
    }));
    for guest in [0, 1, 0, 1] {
        bench.until("it has the core", |bench| bench.runs_on(0, guest, 0));
    }
}
