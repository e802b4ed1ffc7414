// SPDX-License-Identifier: MIT OR Apache-2.0
//! Code that is made at run time: a stub for each encoding, and lists of all accessible encodings.

use super::buffers::STUB_SIZE;
use super::encoding::{CPACR_EL1, DAIF, Direction, Encoding, SCTLR_EL1, SPSEL, VBAR_EL1};

const NOP: u32 = 0xD503_201F;
const RET: u32 = 0xD65F_03C0;
/// `mov x0, x1`.
const MOV_X0_X1: u32 = 0xAA01_03E0;
/// `and x0, x0, #~1`: without `SCTLR_EL1.M`, since a pattern is no address of a translation table.
const AND_X0_NOT_1: u32 = 0x927F_F800;
/// `and x0, x0, #~(1 << 25)`: without `SCTLR_EL1.EE`, so that this code's loads and stores work.
const AND_X0_NOT_EE: u32 = 0x9266_F800;
/// `orr x0, x0, #0x3c0`: interrupts and debug exceptions stay masked.
const ORR_X0_DAIF: u32 = 0xB27A_0C00;
/// `orr x0, x0, #1`: the stack pointer stays that of EL1.
const ORR_X0_1: u32 = 0xB240_0000;
/// `mov x0, x3`.
const MOV_X0_X3: u32 = 0xAA03_03E0;
/// `str x0, [x1], #8`.
const STR_X0_X1_8: u32 = 0xF800_8420;
/// `ldr x0, [x1], #8`.
const LDR_X0_X1_8: u32 = 0xF840_8420;
/// `cmp xzr, xzr`: gives the flags, which are also read, a known value.
const CMP_XZR_XZR: u32 = 0xEB1F_03FF;
/// The general register that is zero; in `MSR (immediate)` and hints it has no meaning.
const XZR: u32 = 31;

/// Changes to the pattern in `x0` that let the code that uses it continue.
fn adapt(encoding: Encoding) -> [u32; 2] {
    match encoding {
        SCTLR_EL1 => [AND_X0_NOT_1, AND_X0_NOT_EE],
        DAIF => [ORR_X0_DAIF, NOP],
        SPSEL => [ORR_X0_1, NOP],
        _ => [NOP, NOP],
    }
}

/// Fills `code` with a stub for each encoding. A stub gets the value to write in `x0`, and in `x1` an address
/// for system instructions; it returns the value that it reads in `x0`.
pub fn make(code: &mut [u32], direction: Direction) {
    for (encoding, stub) in Encoding::all().zip(code.chunks_exact_mut(STUB_SIZE / 4)) {
        let [first, second] = match (direction, encoding.op0()) {
            (Direction::Write, 1) => [MOV_X0_X1, NOP],
            (Direction::Write, _) => adapt(encoding),
            (Direction::Read, _) => [NOP, NOP],
        };
        let rt = if encoding.op0() == 0 { XZR } else { 0 };
        let instruction = if encoding.is_left_out(direction) {
            NOP
        } else {
            encoding.instruction(direction, rt)
        };
        stub.copy_from_slice(&[first, second, instruction, RET]);
    }
}

/// A growing list of instructions.
struct List<'a> {
    code: &'a mut [u32],
    length: usize,
}

impl<'a> List<'a> {
    fn new(code: &'a mut [u32]) -> Self {
        Self { code, length: 0 }
    }

    fn push(&mut self, instruction: u32) {
        self.code[self.length] = instruction;
        self.length += 1;
    }
}

/// Code that stores the values of `encodings` from `x1` on.
pub fn make_read_list(code: &mut [u32], encodings: impl Iterator<Item = Encoding>) {
    let mut list = List::new(code);
    list.push(CMP_XZR_XZR);
    for encoding in encodings {
        list.push(encoding.instruction(Direction::Read, 0));
        list.push(STR_X0_X1_8);
    }
    list.push(RET);
}

/// Code that writes the value in `x3`, adapted, to `encodings`. First to those that do not control access to others or
/// the target of exceptions.
pub fn make_fill_list(code: &mut [u32], encodings: impl Iterator<Item = Encoding>) {
    let mut list = List::new(code);
    let mut push = |encoding: Encoding| {
        list.push(MOV_X0_X3);
        adapt(encoding)
            .into_iter()
            .filter(|&instruction| instruction != NOP)
            .for_each(|instruction| list.push(instruction));
        list.push(encoding.instruction(Direction::Write, 0));
    };
    encodings
        .filter(|encoding| ![CPACR_EL1, VBAR_EL1].contains(encoding))
        .chain([CPACR_EL1, VBAR_EL1])
        .for_each(&mut push);
    list.push(RET);
}

/// Code that restores `encodings` from the values at `x1`, one for each. `SCTLR_EL1` must be
/// restored before, and is not among them.
pub fn make_restore_list(code: &mut [u32], encodings: impl Iterator<Item = Encoding>) {
    let mut list = List::new(code);
    for encoding in encodings {
        list.push(LDR_X0_X1_8);
        list.push(encoding.instruction(Direction::Write, 0));
    }
    list.push(RET);
}
