// SPDX-License-Identifier: MIT OR Apache-2.0
//! Each class of exit.

use super::bench::Bench;
use super::guest::{class, gicd, psci};
use super::systems::*;
use crate::fake::{self, Register, printed};
use spumone_config::packed::{Mapping, Policy, Trigger};
use spumone_config::{GuestAddr, PhysAddr};
use spumone_core::psci::{Phase, StopReason};
use spumone_core::schedule::VcpuState;
use spumone_core::trap::SysReg;

const MIDR: u64 = 0x410F_D034;
const ENTRY: u64 = GUEST_MEMORY + 0x100;

/// Two vCPUs on two cores, and another guest on core 1.
fn running() -> Bench {
    let guests = [
        GuestParts::new(&[(0, 20), (1, 20)]).with_spi(40, 50, Trigger::Edge),
        GuestParts::new(&[(1, 10)]),
    ];
    let mut bench = Bench::boot(&system(2, Policy::None, &guests));
    bench.until_all_run();
    bench
}

#[test]
fn a_vcpu_in_wfi_sleeps_and_resumes_at_the_next_instruction() {
    let mut bench = running();
    bench.opens_gic(0, 0, &[50]);
    let pc = bench.look(0, 0, |cpu| cpu.registers.pc);
    bench.does(0, 0, |cpu| cpu.wfi());
    bench.iterations(20);
    assert_eq!(
        bench.instances[0].state(bench.vcpu(0, 0)),
        Some(VcpuState::Sleep)
    );
    assert_eq!(bench.instances[0].running(), None);
    fake::with(|machine| machine.gic.set_line(40, true));
    assert_eq!(bench.acknowledges(0, 0), 50);
    assert_eq!(bench.entry(0, 0).pc, pc + 4);
}

#[test]
fn firmware_calls_return_in_x0() {
    let mut bench = running();
    let pc = bench.entry(0, 0).pc;
    let after = bench.does_and_returns(0, 0, |cpu| cpu.hvc([psci::VERSION, 0, 0, 0]));
    assert_eq!(after.x[0] >> 16, 1, "PSCI 1.x: {:#x}", after.x[0]);
    assert_eq!(after.pc, pc + 4, "HVC returns to the next instruction");
    let after = bench.does_and_returns(0, 0, |cpu| cpu.smc([psci::VERSION, 0, 0, 0]));
    assert_eq!(
        (after.x[0] >> 16, after.pc),
        (1, pc + 8),
        "SMC returns to the next instruction"
    );
    let after = bench.does_and_returns(0, 0, |cpu| cpu.hvc([0x8400_FFFF, 0, 0, 0]));
    assert_eq!(after.x[0], psci::NOT_SUPPORTED);
}

#[test]
fn cpu_on_starts_a_vcpu_on_its_own_core() {
    let mut bench = running();
    let after = bench.does_and_returns(0, 0, |cpu| cpu.hvc([psci::CPU_ON, 1, ENTRY, 5]));
    assert_eq!(after.x[0], psci::SUCCESS);
    bench.until("it starts", |bench| bench.entry(0, 1).count > 0);
    let started = bench.entry(0, 1);
    assert_eq!((started.pc, started.x[0], started.core), (ENTRY, 5, 1));
    for (target, entry, result) in [
        (1, ENTRY, psci::ALREADY_ON),
        (1, 0x1000, psci::INVALID_ADDRESS),
        (2, ENTRY, -2i64 as u64),
    ] {
        let after =
            bench.does_and_returns(0, 0, move |cpu| cpu.hvc([psci::CPU_ON, target, entry, 5]));
        assert_eq!(after.x[0], result, "CPU_ON of {target} at {entry:#x}");
    }
}

#[test]
fn a_vcpu_that_is_turned_off_and_on_again_has_reset_registers() {
    let mut bench = running();
    bench.does(0, 0, |cpu| cpu.hvc([psci::CPU_ON, 1, ENTRY, 5]));
    bench.does(0, 1, |cpu| {
        cpu.set(Register::TTBR0_EL1, 0x1234_5000);
        cpu.set(Register::CNTV_CTL_EL0, 1);
        cpu.registers.x[9] = 9;
        cpu.hvc([psci::CPU_OFF, 0, 0, 0])
    });
    bench.iterations(10);
    assert_eq!(
        bench.instances[1].state(bench.vcpu(0, 1)),
        Some(VcpuState::Off)
    );
    assert_eq!(bench.phase(0), Phase::Running);
    bench.does(0, 0, |cpu| cpu.hvc([psci::CPU_ON, 1, ENTRY + 8, 6]));
    bench.until("it starts", |bench| bench.entry(0, 1).pc == ENTRY + 8);
    let found = bench.look(0, 1, |cpu| {
        (
            cpu.get(Register::TTBR0_EL1),
            cpu.get(Register::CNTV_CTL_EL0),
            cpu.registers.x[9],
        )
    });
    assert_eq!(found, (0, 0, 0));
}

#[test]
fn the_last_vcpu_that_turns_itself_off_ends_the_guest() {
    let mut bench = running();
    bench.does(0, 0, |cpu| cpu.hvc([psci::CPU_OFF, 0, 0, 0]));
    bench.until("it is off", |bench| {
        bench.phase(0) == Phase::Stopped(StopReason::Off)
    });
}

#[test]
fn a_suspended_vcpu_resumes_at_its_entry_point() {
    let mut bench = running();
    bench.opens_gic(0, 0, &[27]);
    bench.does(0, 0, |cpu| {
        let now = cpu.now();
        cpu.set(Register::CNTV_CVAL_EL0, now + 30_000);
        cpu.set(Register::CNTV_CTL_EL0, 1);
        cpu.registers.x[20] = 20;
        cpu.hvc([psci::CPU_SUSPEND, psci::POWERDOWN, ENTRY, 3])
    });
    bench.iterations(10);
    assert_eq!(
        bench.instances[0].state(bench.vcpu(0, 0)),
        Some(VcpuState::Sleep)
    );
    bench.until("its timer wakes it", |bench| bench.entry(0, 0).pc == ENTRY);
    let resumed = bench.entry(0, 0);
    assert_eq!((resumed.x[0], resumed.x[20]), (3, 0));
    // Standby keeps the registers.
    let after = bench.does_and_returns(0, 0, |cpu| {
        cpu.open_interface();
        cpu.registers.x[20] = 20;
        cpu.hvc([psci::CPU_SUSPEND, 0, ENTRY, 3])
    });
    assert_eq!((after.x[0], after.x[20]), (psci::SUCCESS, 20));
}

#[test]
fn a_vcpu_that_resumes_from_powerdown_has_a_closed_interface() {
    let mut bench = running();
    bench.opens_gic(0, 0, &[27]);
    bench.does(0, 0, |cpu| {
        // An interrupt of the lowest priority is active.
        cpu.set(Register::ICH_AP1R0_EL2, 1 << 31);
        cpu.set(Register::CNTV_CVAL_EL0, cpu.now() + 30_000);
        cpu.set(Register::CNTV_CTL_EL0, 1);
        cpu.hvc([psci::CPU_SUSPEND, psci::POWERDOWN, ENTRY, 3])
    });
    bench.until("its timer wakes it", |bench| bench.entry(0, 0).pc == ENTRY);
    let interface = bench.look(0, 0, |cpu| {
        (
            cpu.get(Register::ICH_VMCR_EL2),
            cpu.get(Register::ICH_AP1R0_EL2),
        )
    });
    assert_eq!(interface, (0, 0));
}

/// A guest closes its CPU interface before a powerdown. Whenever its timer expires on the way into it, the timer wakes it.
#[test]
fn a_timer_wakes_a_suspended_vcpu_whose_interface_is_closed() {
    for ticks in 0..60 {
        let mut bench = running();
        bench.does(0, 0, move |cpu| {
            let now = cpu.now();
            cpu.set(Register::CNTV_CVAL_EL0, now + ticks);
            cpu.set(Register::CNTV_CTL_EL0, 1);
            cpu.hvc([psci::CPU_SUSPEND, psci::POWERDOWN, ENTRY, 3])
        });
        bench.until("its timer wakes it", |bench| bench.entry(0, 0).pc == ENTRY);
    }
}

/// Its timer has signalled the interrupt before, so the core does not get it again.
#[test]
fn a_timer_that_has_expired_before_wakes_a_suspended_vcpu_whose_interface_is_closed() {
    let mut bench = running();
    bench.opens_gic(0, 0, &[27]);
    bench.does(0, 0, |cpu| {
        cpu.set(Register::CNTV_CVAL_EL0, cpu.now());
        cpu.set(Register::CNTV_CTL_EL0, 1);
        cpu.interrupted()
    });
    bench.iterations(10);
    bench.does(0, 0, |cpu| {
        cpu.set(Register::ICH_VMCR_EL2, 0);
        cpu.hvc([psci::CPU_SUSPEND, psci::POWERDOWN, ENTRY, 3])
    });
    bench.until("its timer wakes it", |bench| bench.entry(0, 0).pc == ENTRY);
}

#[test]
fn id_registers_are_filtered() {
    /// `ID_AA64PFR0_EL1`; fields RAS and GIC.
    const PFR0: SysReg = SysReg::new(3, 0, 0, 4, 0);
    let mut bench = running();
    let pc = bench.entry(0, 0).pc;
    let after = bench.does_and_returns(0, 0, |cpu| cpu.mrs(PFR0));
    assert_eq!(
        after.x[1] >> 28 & 0xF,
        0,
        "RAS is hidden: {:#x}",
        after.x[1]
    );
    assert_eq!(after.x[1] >> 24 & 0xF, 1);
    assert_eq!(after.pc, pc + 4);
}

#[test]
fn registers_that_trap_are_emulated_or_undefined() {
    const ACTLR: SysReg = SysReg::new(3, 0, 1, 0, 1);
    const MDSCR: SysReg = SysReg::new(2, 0, 0, 2, 2);
    /// `PMCR_EL0`.
    const PERFORMANCE: SysReg = SysReg::new(3, 3, 9, 12, 0);
    const VECTORS: u64 = 0xFFFF_8000_0001_0000;
    let mut bench = running();
    let after = bench.does_and_returns(0, 0, |cpu| cpu.mrs(ACTLR));
    assert_eq!(after.x[1], 0);
    bench.does(0, 0, |cpu| cpu.msr(MDSCR, 1));
    assert_eq!(bench.look(0, 0, |cpu| cpu.get(Register::MDSCR_EL1)), 1);
    let before = bench.entry(0, 0);
    let after = bench.does_and_returns(0, 0, |cpu| {
        cpu.set(Register::VBAR_EL1, VECTORS);
        cpu.mrs(PERFORMANCE)
    });
    assert_eq!(after.pc, VECTORS + 0x200);
    let (elr, spsr, esr) = bench.look(0, 0, |cpu| {
        (
            cpu.get(Register::ELR_EL1),
            cpu.get(Register::SPSR_EL1),
            cpu.get(Register::ESR_EL1),
        )
    });
    assert_eq!((elr, spsr, esr), (before.pc, before.pstate, 1 << 25));
}

#[test]
fn hidden_instructions_are_undefined_for_the_guest() {
    const POINTER_AUTHENTICATION: u64 = 0x09;
    const LOAD_STORE_64_BYTES: u64 = 0x0a;
    const SYS128: u64 = 0x14;
    const SVE: u64 = 0x19;
    const TRANSACTION: u64 = 0x1b;
    const SME: u64 = 0x1d;
    let mut bench = running();
    let classes = [
        POINTER_AUTHENTICATION,
        LOAD_STORE_64_BYTES,
        SYS128,
        SVE,
        TRANSACTION,
        SME,
    ];
    let eretaa = class(0x1a) | 0b10;
    for syndrome in classes.map(class).into_iter().chain([eretaa]) {
        // From a program, and from the kernel.
        for (pstate, offset) in [(0, 0x400), (0b0101, 0x200)] {
            let after = bench.does_and_returns(0, 0, move |cpu| {
                cpu.set(Register::VBAR_EL1, 0x8_0000);
                cpu.registers.pstate = pstate;
                cpu.trap(syndrome)
            });
            let entered = (after.pc, after.pstate & 0xF);
            assert_eq!(entered, (0x8_0000 + offset, 0b0101), "{syndrome:#x}");
        }
    }
}

/// As on a core without pointer authentication, where it is a NOP.
#[test]
fn a_hint_of_pointer_authentication_is_skipped() {
    const POINTER_AUTHENTICATION: u64 = 0x09;
    const PACIASP: u32 = 0xd503_233f;
    const PACIA: u32 = 0xdac1_0020;
    const VECTORS: u64 = 0x8_0000;
    const CODE: u64 = GUEST_MEMORY + 0x2000;
    /// `PSTATE`: EL1 with its own stack pointer; `BTYPE` of an indirect call.
    const EL1: u64 = 0b0101;
    const CALLED: u64 = 0b10 << 10;
    for (instruction, pc) in [(PACIASP, CODE + 4), (PACIA, VECTORS + 0x200)] {
        let after = running().does_and_returns(0, 0, move |cpu| {
            cpu.set(Register::VBAR_EL1, VECTORS);
            cpu.write_memory(CODE, &instruction.to_le_bytes());
            cpu.registers.pc = CODE;
            cpu.registers.pstate = EL1 | CALLED;
            cpu.trap(class(POINTER_AUTHENTICATION))
        });
        assert_eq!(after.pc, pc, "{instruction:#x}");
        assert_eq!(after.pstate & CALLED, 0, "{instruction:#x}: BTYPE");
    }
}

#[test]
fn big_endian_accesses_to_devices_are_swapped() {
    const EL0: u64 = 0b0_0000;
    const EL1: u64 = 0b0_0101;
    /// `PSTATE`: a program in AArch32, big-endian.
    const AARCH32_E: u64 = 1 << 4 | 1 << 9;
    /// `SCTLR_EL1`: big-endian at EL0, at EL1.
    const E0E: u64 = 1 << 24;
    const EE: u64 = 1 << 25;
    const ENABLED: u64 = DISTRIBUTOR + gicd::ISENABLER + 4;
    const SPI: u32 = 1 << (50 - 32);
    for (pstate, control, is_big) in [
        (EL1, EE, true),
        (EL0, E0E, true),
        (AARCH32_E, 0, true),
        (EL1, E0E, false),
        (EL0, EE, false),
    ] {
        let mut bench = running();
        let value = if is_big { SPI.swap_bytes() } else { SPI };
        bench.does(0, 0, move |cpu| {
            cpu.set(Register::SCTLR_EL1, control);
            cpu.registers.pstate = pstate;
            cpu.store(ENABLED, value)
        });
        let after = bench.does_and_returns(0, 0, |cpu| cpu.load(ENABLED));
        let mode = format!("PSTATE {pstate:#x}, SCTLR_EL1 {control:#x}");
        assert_eq!(after.x[1], u64::from(value), "{mode}");
        let after = bench.does_and_returns(0, 0, |cpu| {
            cpu.set(Register::SCTLR_EL1, 0);
            cpu.registers.pstate = EL1;
            cpu.load(ENABLED)
        });
        assert_eq!(after.x[1], u64::from(SPI), "{mode}");
    }
}

#[test]
fn the_virtual_gic_is_read_and_written() {
    let mut bench = running();
    let after = bench.does_and_returns(0, 0, |cpu| cpu.load(DISTRIBUTOR + gicd::TYPER));
    // 64 SPIs and 32 others: ITLinesNumber.
    assert_eq!(after.x[1] & 0x1F, 2, "{:#x}", after.x[1]);
    bench.opens_gic(0, 0, &[50]);
    fake::with(|machine| {
        let (bank, bit) = machine.gic.spi(40);
        assert_eq!(bank.enabled & bit, bit, "the machine's SPI is on");
    });
    let after = bench.does_and_returns(0, 0, |cpu| cpu.load(DISTRIBUTOR + gicd::ISENABLER + 4));
    assert_eq!(after.x[1], 1 << (50 - 32));
}

#[test]
fn the_virtual_uart_prints() {
    let mut bench = running();
    for byte in b"hello\n" {
        bench.does(1, 0, |cpu| cpu.store(UART, u32::from(*byte)));
    }
    bench.until("it is printed", |_| printed().contains("hello"));
    let line = printed();
    assert!(line.contains("guest1"), "the line has no tag: {line}");
}

/// As on hardware, with `on-fault = "abort"`: at its kernel's vectors, from there and from a program. The first one is reported.
#[test]
fn an_access_outside_its_memory_is_an_abort_for_a_guest_that_takes_them() {
    const VECTORS: u64 = GUEST_MEMORY + 0x2000;
    const NOWHERE: u64 = 0x5000_0008;
    let guests = [GuestParts::new(&[(0, 20)]).with_aborts()];
    let mut bench = Bench::boot(&system(1, Policy::None, &guests));
    bench.until_all_run();
    for (pstate, offset, class) in [(0b0101, 0x200, 0x25), (0, 0x400, 0x24)] {
        let after = bench.does_and_returns(0, 0, move |cpu| {
            cpu.set(Register::VBAR_EL1, VECTORS);
            cpu.registers.pstate = pstate;
            cpu.registers.pc = GUEST_MEMORY;
            cpu.store(NOWHERE, 1)
        });
        assert_eq!(after.pc, VECTORS + offset);
        let found = bench.look(0, 0, |cpu| {
            [Register::ESR_EL1, Register::FAR_EL1, Register::ELR_EL1].map(|it| cpu.get(it))
        });
        // An external abort of a store, by an instruction of 32 bits.
        let expected = class << 26 | 1 << 25 | 1 << 6 | 0b01_0000;
        assert_eq!(found, [expected, NOWHERE, GUEST_MEMORY]);
    }
    bench.until("the report is out", |_| {
        printed().contains("ipa=0x50000008")
    });
    bench.iterations(200);
    assert_eq!(printed().matches(" aborted: vcpu 0 ").count(), 1);
    assert_eq!(bench.phase(0), Phase::Running);
    // Cache maintenance there does nothing.
    let after = bench.does_and_returns(0, 0, |cpu| {
        const CACHE_MAINTENANCE: u64 = 1 << 8;
        cpu.registers.pc = GUEST_MEMORY;
        let exit = cpu.store(NOWHERE, 1);
        let syndrome = cpu.get(Register::ESR_EL2);
        cpu.set(Register::ESR_EL2, syndrome & !(1 << 24) | CACHE_MAINTENANCE);
        exit
    });
    assert_eq!(after.pc, GUEST_MEMORY + 4);
    // A jump there is an abort, too.
    let after = bench.does_and_returns(0, 0, |cpu| {
        cpu.registers.pstate = 0b0101;
        cpu.fetch(NOWHERE)
    });
    assert_eq!(after.pc, VECTORS + 0x200);
    // Its vectors are where it has nothing: it cannot take the abort.
    bench.does(0, 0, |cpu| {
        cpu.set(Register::VBAR_EL1, 0x6000_0000);
        cpu.fetch(0x6000_0200)
    });
    bench.until("it is stopped", |bench| {
        bench.phase(0) == Phase::Stopped(StopReason::Fault)
    });
}

#[test]
fn an_access_outside_its_memory_stops_a_guest_and_no_other() {
    let mut bench = running();
    bench.does(0, 0, |cpu| cpu.store(0x5000_0000, 1));
    bench.until("it is stopped", |bench| {
        bench.phase(0) == Phase::Stopped(StopReason::Fault)
    });
    bench.until("the report is out", |_| {
        printed().contains("guest0 was stopped")
    });
    let report = printed();
    assert!(report.contains("0x50000000"), "{report}");
    let before = bench.entry(1, 0).count;
    bench.iterations(20);
    assert!(bench.entry(1, 0).count > before, "the other guest runs on");
    assert_eq!(bench.phase(1), Phase::Running);
}

/// A read by EL2 could change the state of a device. The fake machine panics at it, since there is no memory.
#[test]
fn the_report_on_a_fault_has_the_instruction_only_if_it_is_in_the_guests_memory() {
    const RESERVED: u64 = 0x3F;
    const DEVICE: u64 = 0x0B00_0000;
    let text = u32::from_le_bytes(IMAGE[..4].try_into().unwrap());
    for (pc, expected) in [(GUEST_MEMORY, Some(text)), (DEVICE, None)] {
        let mut system = system(1, Policy::None, &[GuestParts::new(&[(0, 20)])]);
        let device = Mapping {
            ipa: GuestAddr(DEVICE),
            pa: PhysAddr(DEVICE),
            size: 0x1000,
        };
        system.guests[0].devices.push(device).unwrap();
        let mut bench = Bench::boot(&system);
        bench.until_all_run();
        bench.does(0, 0, move |cpu| {
            assert!(fake::walk_stage2(pc).is_some());
            cpu.registers.pc = pc;
            cpu.trap(class(RESERVED))
        });
        bench.until("it is reported", |_| {
            printed().contains(&format!("pc={pc:#018x}"))
        });
        bench.iterations(20);
        let word = expected.map(|word| format!("instruction={word:#010x}"));
        let report = printed();
        assert_eq!(report.contains("instruction="), word.is_some(), "{report}");
        assert!(report.contains(word.as_deref().unwrap_or("")), "{report}");
    }
}

#[test]
fn an_unsupported_exception_stops_a_guest() {
    const INSTRUCTION_ABORT: u64 = 0x20;
    const DATA_ABORT: u64 = 0x24;
    const RESERVED: u64 = 0x3F;
    for syndrome in [
        class(INSTRUCTION_ABORT) | 0b00_0111,
        // Without a description of the access.
        class(DATA_ABORT) | 0b00_0111,
        class(RESERVED),
        0,
    ] {
        let mut bench = running();
        bench.does(0, 0, move |cpu| {
            cpu.set(Register::FAR_EL2, DISTRIBUTOR);
            cpu.set(Register::HPFAR_EL2, DISTRIBUTOR >> 8);
            cpu.trap(syndrome)
        });
        bench.until("it is stopped", |bench| {
            bench.phase(0) == Phase::Stopped(StopReason::Fault)
        });
    }
}

#[test]
fn an_serror_of_a_guest_stops_it() {
    let mut bench = running();
    bench.does(0, 0, |cpu| {
        cpu.trap(class(0x2F));
        crate::guest_registers::Exit::SystemError
    });
    bench.until("it is stopped", |bench| {
        bench.phase(0) == Phase::Stopped(StopReason::Fault)
    });
}

#[test]
fn a_trap_with_an_interrupt_pending_is_retried() {
    const MIDR_TRAPPED: SysReg = SysReg::new(3, 0, 0, 4, 0);
    let mut bench = running();
    bench.opens_gic(0, 0, &[50]);
    let pc = bench.look(0, 0, |cpu| cpu.registers.pc);
    let after = bench.does_and_returns(0, 0, |cpu| {
        fake::with(|machine| machine.gic.set_line(40, true));
        cpu.mrs(MIDR_TRAPPED)
    });
    assert_eq!(after.pc, pc, "the instruction was emulated");
    assert_eq!(bench.acknowledges(0, 0), 50);
    assert_eq!(
        fake::with(|machine| machine.cores[0].get(Register::MIDR_EL1)),
        MIDR
    );
}
