// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which instructions of A64 change the flow of control, and which look for interrupts.

/// What comes after an instruction. Addresses are absolute, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// The next instruction.
    Next,
    /// `B`.
    Branch(u64),
    /// `B.cond`, `CBZ`, `CBNZ`, `TBZ`, `TBNZ`: this address, or the next instruction.
    Conditional(u64),
    /// `BL`.
    Call(u64),
    /// `BLR`: a function at the address in a register.
    CallRegister,
    /// `BR`: the address in a register.
    BranchRegister,
    /// `RET`.
    Return,
    /// `ERET`: a guest runs.
    EnterGuest,
    /// `WFI`.
    Sleep,
    /// A read of `ISR_EL1` or `ICC_IAR1_EL1`: the core looks for interrupts.
    Look,
    /// `BRK`, `HLT` or `UDF`: nothing follows.
    Trap,
}

/// Bytes of an instruction.
pub const SIZE: u64 = 4;

const MRS_ISR_EL1: u32 = 0xd538_c100;
const MRS_ICC_IAR1_EL1: u32 = 0xd538_cc00;
const WFI: u32 = 0xd503_207f;
const ERET: u32 = 0xd69f_03e0;
/// All bits but the register in the lowest five.
const NOT_RT: u32 = !0x1f;
/// All bits but the register in bits 5 to 9.
const NOT_RN: u32 = !0x3e0;

/// What comes after the instruction `word` at `address` (Arm ARM DDI 0487, C4.1).
pub fn flow(word: u32, address: u64) -> Flow {
    let to = |first: u32, bits: u32| target(address, word, first, bits);
    match word {
        WFI => return Flow::Sleep,
        ERET => return Flow::EnterGuest,
        _ => {}
    }
    match word & NOT_RT {
        MRS_ISR_EL1 | MRS_ICC_IAR1_EL1 => return Flow::Look,
        _ => {}
    }
    match word & NOT_RN {
        0xd61f_0000 => return Flow::BranchRegister,
        0xd63f_0000 => return Flow::CallRegister,
        0xd65f_0000 => return Flow::Return,
        _ => {}
    }
    match word >> 24 {
        0x14..=0x17 => Flow::Branch(to(0, 26)),
        0x94..=0x97 => Flow::Call(to(0, 26)),
        // Also BC.cond. B.al, which branches always, is not made by compilers; two successors are a safe reading of it.
        0x54 => Flow::Conditional(to(5, 19)),
        0x34 | 0x35 | 0xb4 | 0xb5 => Flow::Conditional(to(5, 19)),
        0x36 | 0x37 | 0xb6 | 0xb7 => Flow::Conditional(to(5, 14)),
        // UDF; BRK and HLT.
        _ if word >> 16 == 0 => Flow::Trap,
        0xd4 if matches!((word >> 21) & 7, 1 | 2) && word & 0x1f == 0 => Flow::Trap,
        _ => Flow::Next,
    }
}

/// Whether the instruction is a load that begins an exclusive access: LDXR, LDAXR and those of bytes, halfwords and pairs.
pub fn is_load_exclusive(word: u32) -> bool {
    word & 0x3fc0_0000 == 0x0840_0000
}

/// Whether the instruction is a store that ends an exclusive access: STXR, STLXR and those of bytes, halfwords and pairs.
pub fn is_store_exclusive(word: u32) -> bool {
    // Bit 23 is set in those of CAS and of ordinary acquire and release; bit 21 without bit 31 in CASP.
    word & 0x3fc0_0000 == 0x0800_0000
}

/// The address that the signed field of `bits` bits from bit `first` names, in instructions from here.
fn target(address: u64, word: u32, first: u32, bits: u32) -> u64 {
    let field = (word >> first) << (32 - bits);
    let words = i64::from(field as i32 >> (32 - bits));
    address.wrapping_add_signed(words * SIZE as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exclusive_accesses_are_recognised() {
        for (word, load, store) in [
            (0x885f_fc08, true, false),  // ldaxr w8, [x0]
            (0xc85f_7d09, true, false),  // ldxr x9, [x8]
            (0x0809_fc0a, false, true),  // stlxrb w9, w10, [x0]
            (0xc80a_7d09, false, true),  // stxr w10, x9, [x8]
            (0x88df_fc08, false, false), // ldar w8, [x0]
            (0x889f_fc08, false, false), // stlr w8, [x0]
            (0xc8a9_7c0a, false, false), // cas x9, x10, [x0]
            (0xf940_0015, false, false), // ldr x21, [x0]
        ] {
            assert_eq!(
                (is_load_exclusive(word), is_store_exclusive(word)),
                (load, store),
                "{word:#010x}"
            );
        }
    }

    /// Words as an assembler writes them.
    #[test]
    fn what_changes_the_flow_of_control_is_recognised() {
        let at = 0x4020_0000;
        for (word, expected) in [
            (0x1400_0002, Flow::Branch(at + 8)),        // b .+8
            (0x17ff_ffff, Flow::Branch(at - 4)),        // b .-4
            (0x9400_0004, Flow::Call(at + 16)),         // bl .+16
            (0x5400_0048, Flow::Conditional(at + 8)),   // b.hi .+8
            (0x54ff_ff61, Flow::Conditional(at - 20)),  // b.ne .-20
            (0x3400_0540, Flow::Conditional(at + 168)), // cbz w0, .+168
            (0xb5ff_ffc3, Flow::Conditional(at - 8)),   // cbnz x3, .-8
            (0x3707_fa48, Flow::Conditional(at - 184)), // tbnz w8, #0, .-184
            (0xb600_0040, Flow::Conditional(at + 8)),   // tbz x0, #32, .+8
            (0xd61f_0140, Flow::BranchRegister),        // br x10
            (0xd63f_02a0, Flow::CallRegister),          // blr x21
            (0xd65f_03c0, Flow::Return),                // ret
            (0xd69f_03e0, Flow::EnterGuest),            // eret
            (0xd503_207f, Flow::Sleep),                 // wfi
            (0xd538_c108, Flow::Look),                  // mrs x8, isr_el1
            (0xd538_cc13, Flow::Look),                  // mrs x19, icc_iar1_el1
            (0xd420_0020, Flow::Trap),                  // brk #1
            (0x0000_0000, Flow::Trap),                  // udf #0
            (0xd400_0003, Flow::Next),                  // smc #0
            (0xd503_205f, Flow::Next),                  // wfe
            (0xd538_c120, Flow::Next),                  // mrs x0, s3_0_c12_c1_1
            (0xd518_c100, Flow::Next),                  // msr isr_el1, x0
            (0x8b0b_094a, Flow::Next),                  // add x10, x10, x11, lsl #2
            (0xf940_0015, Flow::Next),                  // ldr x21, [x0]
        ] {
            assert_eq!(flow(word, at), expected, "{word:#010x}");
        }
    }
}
