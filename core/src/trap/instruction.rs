// SPDX-License-Identifier: MIT OR Apache-2.0
//! Instructions by their encoding.

/// Whether an A64 instruction is in the hint space: a core that does not implement it executes it as a `NOP` (DDI 0487,
/// C4.1, "Hints": `HINT #<imm>`, with any `CRm` and `op2`).
pub const fn is_hint(instruction: u32) -> bool {
    /// All bits but `CRm` and `op2`.
    const FIXED: u32 = 0xffff_f01f;
    const HINT: u32 = 0xd503_201f;
    instruction & FIXED == HINT
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hints_are_told_from_other_instructions() {
        for (name, instruction, expected) in [
            ("nop", 0xd503_201f, true),
            ("paciasp", 0xd503_233f, true),
            ("autiasp", 0xd503_23bf, true),
            ("pacia1716", 0xd503_211f, true),
            ("hint #127", 0xd503_2fff, true),
            ("pacia x0, x1", 0xdac1_0020, false),
            ("pacga x0, x1, x2", 0x9ac2_3020, false),
            ("retaa", 0xd65f_0bff, false),
            ("eretaa", 0xd69f_0bff, false),
            ("isb", 0xd503_3fdf, false),
            ("msr daifset, #15", 0xd503_4fdf, false),
            ("wfet x0", 0xd503_1000, false),
        ] {
            assert_eq!(is_hint(instruction), expected, "{name}");
        }
    }
}
