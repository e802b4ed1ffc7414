// SPDX-License-Identifier: MIT OR Apache-2.0
//! Registers that trap, and exceptions that EL2 has a guest take.

use super::bench::{Bench, Entry};
use super::guest::class;
use super::systems::*;
use crate::fake::Register;
use spumone_config::packed::Policy;
use spumone_core::trap::{MDSCR_WRITABLE, SysReg};

const VECTORS: u64 = 0x8_0000;
/// Modes of `PSTATE`: a program, the kernel with either stack, a program in AArch32.
const EL0: u64 = 0b0_0000;
const EL1_SP0: u64 = 0b0_0100;
const EL1: u64 = 0b0_0101;
const AARCH32: u64 = 0b1_0000;
const PAN: u64 = 1 << 22;
/// `SCTLR_EL1.SPAN`: an exception leaves PAN alone.
const SPAN: u64 = 1 << 23;

fn running() -> Bench {
    let mut bench = Bench::boot(&system(1, Policy::None, &[GuestParts::new(&[(0, 20)])]));
    bench.until_all_run();
    bench
}

/// The entry after an instruction that is undefined for the guest.
fn after_undefined(pstate: u64, control: u64) -> Entry {
    const SVE: u64 = 0x19;
    running().does_and_returns(0, 0, move |cpu| {
        cpu.set(Register::VBAR_EL1, VECTORS);
        cpu.set(Register::SCTLR_EL1, control);
        cpu.registers.pstate = pstate;
        cpu.trap(class(SVE))
    })
}

#[test]
fn an_undefined_instruction_enters_the_vector_of_where_it_was() {
    for (mode, offset) in [
        (EL1_SP0, 0x000),
        (EL1, 0x200),
        (EL0, 0x400),
        (AARCH32, 0x600),
    ] {
        let entry = after_undefined(mode, 0);
        assert_eq!(
            (entry.pc, entry.pstate & 0x1F),
            (VECTORS + offset, EL1),
            "from mode {mode:#b}"
        );
    }
}

#[test]
fn an_undefined_instruction_sets_pan_unless_the_kernel_keeps_it() {
    for (pstate, control, pan) in [
        (EL0, 0, PAN),
        (EL1, 0, PAN),
        (EL0, SPAN, 0),
        (EL1 | PAN, SPAN, PAN),
    ] {
        let entry = after_undefined(pstate, control);
        assert_eq!(
            entry.pstate & PAN,
            pan,
            "from {pstate:#x}, with SCTLR_EL1 {control:#x}"
        );
    }
}

#[test]
fn a_write_of_mdscr_sets_only_the_bits_that_a_guest_may_set() {
    const MDSCR: SysReg = SysReg::new(2, 0, 0, 2, 2);
    let mut bench = running();
    bench.does(0, 0, |cpu| cpu.msr(MDSCR, u64::MAX));
    let seen = bench.look(0, 0, |cpu| cpu.get(Register::MDSCR_EL1));
    assert_eq!(seen, MDSCR_WRITABLE);
}

#[test]
fn a_write_of_icc_dir_returns_to_the_next_instruction() {
    let mut bench = running();
    let pc = bench.look(0, 0, |cpu| cpu.registers.pc);
    let after = bench.does_and_returns(0, 0, |cpu| cpu.msr(SysReg::ICC_DIR_EL1, 27));
    assert_eq!(after.pc, pc + 4);
}
