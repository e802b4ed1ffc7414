// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which registers have a constant value: as much as it takes to know the length of a copy, and to decide branches on the kind of an exit.

/// Registers 0 to 30; 31 is zero or SP.
const REGISTERS: usize = 31;

/// What is known of all registers: those with a constant value, of 16 bits at most.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Values {
    registers: [Option<u64>; REGISTERS],
    /// The last comparison: a register with a constant.
    compared: Option<(u32, u64)>,
}

impl Values {
    /// Nothing is known.
    pub fn unknown() -> Self {
        Self {
            registers: [None; REGISTERS],
            compared: None,
        }
    }

    /// Only this register is known.
    pub fn knowing(register: u32, value: u64) -> Self {
        let mut values = Self::unknown();
        values.set(register, Some(value));
        values
    }

    /// The value of a register, if it is known.
    pub fn get(&self, register: u32) -> Option<u64> {
        self.registers.get(register as usize).copied().flatten()
    }

    fn set(&mut self, register: u32, value: Option<u64>) {
        if let Some(place) = self.registers.get_mut(register as usize) {
            *place = value;
        }
        if self.compared.is_some_and(|it| it.0 == register) {
            self.compared = None;
        }
    }

    /// Whether a conditional branch `word` is taken, if the constants that are known decide it.
    pub fn decides(&self, word: u32) -> Option<bool> {
        match word >> 24 {
            // CBZ, CBNZ.
            0x34 | 0xb4 => Some(self.get(word & 0x1f)? == 0),
            0x35 | 0xb5 => Some(self.get(word & 0x1f)? != 0),
            // B.EQ, B.NE.
            0x54 if word & 0xe == 0 => {
                let (register, with) = self.compared?;
                Some((self.get(register)? == with) == (word & 1 == 0))
            }
            _ => None,
        }
    }

    /// Executes an instruction that is no branch.
    pub fn execute(&mut self, word: u32) {
        let rd = word & 0x1f;
        match word {
            // MOVZ of the lowest 16 bits.
            _ if word & 0x7fe0_0000 == 0x5280_0000 => {
                self.set(rd, Some(u64::from((word >> 5) & 0xffff)));
            }
            // MOV (register).
            _ if word & 0x7fe0_ffe0 == 0x2a00_03e0 => self.set(rd, self.get((word >> 16) & 0x1f)),
            // CMP (immediate) without a shift.
            _ if word & 0x7fc0_001f == 0x7100_001f => {
                self.compared = Some(((word >> 5) & 0x1f, u64::from((word >> 10) & 0xfff)));
            }
            // ADD and SUB (immediate), which do not write the flags.
            _ if word & 0x3f80_0000 == 0x1100_0000 => self.set(rd, None),
            _ if is_load_or_store(word) => {
                // Any register that one of them may write: also the second one of a pair, the base, and the status of an exclusive store.
                for first in [0, 5, 10, 16] {
                    self.set((word >> first) & 0x1f, None);
                }
            }
            _ => {
                self.set(rd, None);
                // Many of them write the flags.
                self.compared = None;
            }
        }
    }
}

/// The class "loads and stores": bits 28 to 25 are x1x0.
fn is_load_or_store(word: u32) -> bool {
    word & 0x0a00_0000 == 0x0800_0000
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(words: &[u32]) -> Values {
        let mut values = Values::unknown();
        for &word in words {
            values.execute(word);
        }
        values
    }

    #[test]
    fn a_constant_holds_until_the_register_is_written() {
        const MOV: u32 = 0x5280_00e9; // mov w9, #7
        for (word, known) in [
            (0xf900_03e9, false), // str x9, [sp]; taken as a write
            (0xf900_03e8, true),  // str x8, [sp]
            (0xa940_27e8, false), // ldp x8, x9, [sp]
            (0xf840_8528, false), // ldr x8, [x9], #8
            (0x8809_fc08, false), // stlxr w9, w8, [x0]
            (0x9100_0529, false), // add x9, x9, #1
            (0x9100_0528, true),  // add x8, x9, #1
            (0xf280_0029, false), // movk x9, #1
            (0xd53b_e049, false), // mrs x9, cntvct_el0
            (0xaa08_03e9, false), // mov x9, x8
        ] {
            assert_eq!(
                after(&[MOV, word]).get(9),
                known.then_some(7),
                "{word:#010x}"
            );
        }
        // mov x8, x9
        assert_eq!(after(&[MOV, 0xaa09_03e8]).get(8), Some(7));
    }

    #[test]
    fn branches_on_constants_are_decided() {
        let values = Values::knowing(0, 1);
        assert_eq!(values.decides(0xb400_1940), Some(false)); // cbz x0
        assert_eq!(values.decides(0xb500_1940), Some(true)); // cbnz x0
        assert_eq!(values.decides(0xb400_1941), None); // cbz x1
        let mut compared = values;
        compared.execute(0xf100_041f); // cmp x0, #1
        assert_eq!(compared.decides(0x5400_1b81), Some(false)); // b.ne
        assert_eq!(compared.decides(0x5400_1b80), Some(true)); // b.eq
        assert_eq!(compared.decides(0x5400_1b8b), None); // b.lt
        // add x26, x19, #0xa0; add x28, x19, #0x2, lsl #12
        for word in [0x9102_827a, 0x9140_0a7c] {
            compared.execute(word);
        }
        assert_eq!(compared.decides(0x5400_1b81), Some(false)); // b.ne
        // Another comparison comes between, or another value: tst x1, #1; mov w0, #2; adds x1, x1, #1; add x0, x0, #1.
        for word in [0xf240_003f, 0x5280_0040, 0xb100_0421, 0x9100_0400] {
            let mut written = compared.clone();
            written.execute(word);
            assert_eq!(written.decides(0x5400_1b80), None, "{word:#010x}");
        }
    }
}
