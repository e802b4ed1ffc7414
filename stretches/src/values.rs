// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is known of registers: as much as it takes to follow a jump through a table, and a copy of a constant length.

use crate::instruction::SIZE;
use std::collections::BTreeMap;

/// What is known of a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value {
    /// Nothing, but that it is at most this.
    AtMost(u64),
    /// It is this.
    Constant(u64),
    /// An entry of a table.
    Entry(Entry),
    /// An address, plus an entry of a table.
    Target {
        /// The address.
        base: u64,
        /// The entry.
        entry: Entry,
        /// The entry is shifted left by this before the sum.
        shift: u32,
    },
}

/// An entry of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The address of the table.
    pub table: u64,
    /// Bytes of an entry: 1, 2, or 4. Those of 4 bytes are signed.
    pub size: u64,
    /// The largest index, or more than any table has.
    pub last: u64,
}

const UNKNOWN: Value = Value::AtMost(u64::MAX);
/// Registers 0 to 30; 31 is zero or SP.
const REGISTERS: usize = 31;
/// A call keeps the registers from this one on.
const FIRST_KEPT: usize = 19;

/// What is known of all registers, and of the stack's words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Values {
    registers: [Value; REGISTERS],
    /// What is known of the stack's words of 8 bytes, by their distance from SP in words.
    stack: BTreeMap<i64, Value>,
    /// The last comparison: a register with a constant.
    compared: Option<(u8, u64)>,
}

impl Values {
    /// At the entry of a function.
    pub fn unknown() -> Self {
        Self {
            registers: [UNKNOWN; REGISTERS],
            stack: BTreeMap::new(),
            compared: None,
        }
    }

    /// What is known of register `number`.
    pub fn get(&self, number: u8) -> Value {
        match self.registers.get(usize::from(number)) {
            Some(value) => *value,
            None => Value::Constant(0),
        }
    }

    fn set(&mut self, number: u32, value: Value) {
        if let Some(register) = self.registers.get_mut(number as usize) {
            *register = value;
        }
        if self.compared.is_some_and(|it| u32::from(it.0) == number) {
            self.compared = None;
        }
    }

    fn limit(&self, number: u8) -> u64 {
        match self.get(number) {
            Value::AtMost(limit) | Value::Constant(limit) => limit,
            _ => u64::MAX,
        }
    }

    /// Keeps what is true of both. Returns whether anything is lost.
    pub fn join(&mut self, other: &Self) -> bool {
        let mut changed = false;
        for (mine, theirs) in self.registers.iter_mut().zip(&other.registers) {
            let joined = join(*mine, *theirs);
            changed |= joined != *mine;
            *mine = joined;
        }
        let words = self.stack.len();
        self.stack
            .retain(|at, mine| other.stack.get(at) == Some(mine));
        changed |= self.stack.len() != words;
        if self.compared != other.compared && self.compared.is_some() {
            self.compared = None;
            changed = true;
        }
        changed
    }

    /// After a call.
    pub fn call(&mut self) {
        self.registers[..FIRST_KEPT].fill(UNKNOWN);
        self.registers[REGISTERS - 1] = UNKNOWN;
        self.compared = None;
    }

    /// A conditional branch `word` was taken, or not: what a comparison says of its register.
    pub fn branch(&mut self, word: u32, taken: bool) {
        const HIGHER: u32 = 8;
        const CARRY: u32 = 2;
        let Some((register, with)) = self.compared.filter(|_| word >> 24 == 0x54) else {
            return;
        };
        // Conditions are in pairs: the odd one is the opposite.
        let condition = word & 0xf;
        let holds = taken == (condition & 1 == 0);
        let limit = match condition & !1 {
            HIGHER if !holds => with,
            CARRY if !holds => with.saturating_sub(1),
            _ => return,
        };
        if let (Value::AtMost(now), Some(value)) = (
            self.get(register),
            self.registers.get_mut(usize::from(register)),
        ) {
            *value = Value::AtMost(now.min(limit));
        }
    }

    /// Whether a conditional branch `word` is taken, if the constants that are known decide it.
    pub fn decides(&self, word: u32) -> Option<bool> {
        let constant = |number: u8| match self.get(number) {
            Value::Constant(value) => Some(value),
            _ => None,
        };
        match word >> 24 {
            // CBZ, CBNZ.
            0x34 | 0xb4 => Some(constant((word & 0x1f) as u8)? == 0),
            0x35 | 0xb5 => Some(constant((word & 0x1f) as u8)? != 0),
            // B.EQ, B.NE, B.HI, B.LS, and those of carry.
            0x54 => {
                let (register, with) = self.compared?;
                let value = constant(register)?;
                let holds = match word & 0xe {
                    0 => value == with,
                    2 => value >= with,
                    8 => value > with,
                    _ => return None,
                };
                Some(holds == (word & 1 == 0))
            }
            _ => None,
        }
    }

    /// As [`Self::unknown`], but a register is known.
    pub fn knowing(register: u8, value: u64) -> Self {
        let mut values = Self::unknown();
        values.set(u32::from(register), Value::Constant(value));
        values
    }

    /// Executes an instruction that is no branch.
    pub fn execute(&mut self, word: u32, address: u64) {
        let rd = word & 0x1f;
        let rn = ((word >> 5) & 0x1f) as u8;
        let rm = ((word >> 16) & 0x1f) as u8;
        let imm12 = u64::from((word >> 10) & 0xfff) << if word & 1 << 22 == 0 { 0 } else { 12 };
        match word {
            // ADR, ADRP.
            _ if word & 0x1f00_0000 == 0x1000_0000 => {
                let field = ((word >> 3) & !3) | ((word >> 29) & 3);
                let offset = i64::from((field << 11) as i32 >> 11);
                let value = if word >> 31 == 0 {
                    address.wrapping_add_signed(offset)
                } else {
                    (address & !0xfff).wrapping_add_signed(offset << 12)
                };
                self.set(rd, Value::Constant(value));
            }
            // ADD (immediate).
            _ if word & 0x7f80_0000 == 0x1100_0000 => {
                let value = match self.get(rn) {
                    Value::Constant(value) if rn != 31 => {
                        Value::Constant(value.wrapping_add(imm12))
                    }
                    _ => UNKNOWN,
                };
                self.set_or_move_stack(rd, value);
            }
            // SUBS (immediate): CMP if the result is dropped.
            _ if word & 0x7f80_0000 == 0x7100_0000 => {
                self.set(rd, UNKNOWN);
                self.compared = (rn != 31 && u32::from(rn) != rd).then_some((rn, imm12));
            }
            // AND (immediate) with ones from bit 0 on: N = 0 or 1, immr = 0.
            _ if word & 0x7fbf_0000 == 0x1200_0000 => {
                let ones = ((word >> 10) & 0x3f) + 1;
                let wide = word & (1 << 22) != 0;
                let known = ones < 32 && (wide || (word >> 10) & 0x20 == 0);
                self.set(
                    rd,
                    if known {
                        Value::AtMost((1 << ones) - 1)
                    } else {
                        UNKNOWN
                    },
                );
            }
            // UBFM from bit 0 on is UXTB, UXTH; from others a shift or a field.
            _ if word & 0x7f80_0000 == 0x5300_0000 => {
                let (immr, imms) = ((word >> 16) & 0x3f, (word >> 10) & 0x3f);
                let width = if imms >= immr { imms - immr + 1 } else { 64 };
                let limit = if width < 64 {
                    (1 << width) - 1
                } else {
                    u64::MAX
                };
                let before = if immr == 0 { self.limit(rn) } else { u64::MAX };
                self.set(rd, Value::AtMost(limit.min(before)));
            }
            // MOV (register).
            _ if word & 0x7fe0_ffe0 == 0x2a00_03e0 => {
                let value = self.get(rm);
                self.set(rd, value);
            }
            // MOVZ.
            _ if word & 0x7f80_0000 == 0x5280_0000 => {
                let value = u64::from((word >> 5) & 0xffff) << (16 * ((word >> 21) & 3));
                self.set(rd, Value::Constant(value));
            }
            // MOVK.
            _ if word & 0x7f80_0000 == 0x7280_0000 => {
                let shift = 16 * ((word >> 21) & 3);
                let part = u64::from((word >> 5) & 0xffff) << shift;
                let value = match self.get(rd as u8) {
                    Value::Constant(value) => Value::Constant(value & !(0xffff << shift) | part),
                    _ => UNKNOWN,
                };
                self.set(rd, value);
            }
            // ADD (shifted register), LSL.
            _ if word & 0xffe0_0000 == 0x8b00_0000 => {
                let shift = (word >> 10) & 0x3f;
                let value = match (self.get(rn), self.get(rm)) {
                    (Value::Constant(base), Value::Entry(entry)) => {
                        Value::Target { base, entry, shift }
                    }
                    (Value::Entry(entry), Value::Constant(base)) if shift == 0 => {
                        Value::Target { base, entry, shift }
                    }
                    _ => UNKNOWN,
                };
                self.set(rd, value);
            }
            // LDRB, LDRH, LDRSW with a register as offset.
            _ if matches!(word & 0xffe0_0c00, 0x3860_0800 | 0x7860_0800 | 0xb8a0_0800) => {
                let size = 1 << (word >> 30);
                let value = match self.get(rn) {
                    Value::Constant(table) if rn != 31 => Value::Entry(Entry {
                        table,
                        size,
                        last: self.limit(rm),
                    }),
                    _ => UNKNOWN,
                };
                self.set(rd, value);
            }
            _ if is_load_or_store(word) => self.access_memory(word),
            _ if is_branch_or_system(word) => {
                // MRS, SYSL write a register.
                if word & 0xffe0_0000 == 0xd520_0000 {
                    self.set(rd, UNKNOWN);
                }
            }
            _ => self.set_or_move_stack(rd, UNKNOWN),
        }
    }

    /// Writes a register; a write of SP moves the words of the stack.
    fn set_or_move_stack(&mut self, rd: u32, value: Value) {
        if rd == 31 {
            self.stack.clear();
        } else {
            self.set(rd, value);
        }
    }

    fn access_memory(&mut self, word: u32) {
        let rt = word & 0x1f;
        let rn = (word >> 5) & 0x1f;
        let vector = word & (1 << 26) != 0;
        let load = word & (1 << 22) != 0;
        // STP, LDP: bits 29 to 27 are 101.
        if word & 0x3800_0000 == 0x2800_0000 {
            let rt2 = (word >> 10) & 0x1f;
            let indexed = (word >> 23) & 3;
            if indexed & 1 == 1 {
                self.set_or_move_stack(rn, UNKNOWN);
            }
            if vector {
                self.stack.clear();
                return;
            }
            let imm7 = i64::from(((word >> 15) << 25) as i32 >> 25);
            let slot = (rn == 31 && indexed == 2 && word >> 30 == 2).then_some(imm7);
            for (register, slot) in [(rt, slot), (rt2, slot.map(|it| it + 1))] {
                self.move_word(register, slot, load);
            }
            return;
        }
        // LDR, STR of 8 bytes with an unsigned offset.
        if word & 0xff80_0000 == 0xf900_0000 {
            let slot = (rn == 31).then_some(i64::from((word >> 10) & 0xfff));
            self.move_word(rt, slot, load);
            return;
        }
        // Post- and pre-indexed forms write the base.
        if word & 0x3b20_0400 == 0x3800_0400 {
            self.set_or_move_stack(rn, UNKNOWN);
        }
        if rn == 31 {
            self.stack.clear();
        }
        if vector {
            return;
        }
        const EXCLUSIVE: u32 = 0x0800_0000;
        if word & 0x3f00_0000 == EXCLUSIVE {
            // Also CAS. Any register that one of them writes.
            for register in [rt, (word >> 10) & 0x1f, (word >> 16) & 0x1f] {
                self.set(register, UNKNOWN);
            }
        } else if (word >> 22) & 3 != 0 || word & 0x3b20_0c00 == 0x3820_0000 {
            // A load, or an atomic operation.
            self.set(rt, UNKNOWN);
        }
    }

    fn move_word(&mut self, register: u32, slot: Option<i64>, load: bool) {
        let word = slot.and_then(|it| self.stack.get(&it).copied());
        if load {
            self.set(register, word.unwrap_or(UNKNOWN));
        } else if let Some(slot) = slot {
            match self.get(register as u8) {
                UNKNOWN => self.stack.remove(&slot),
                value => self.stack.insert(slot, value),
            };
        }
    }
}

/// What is true of a register if one of two things is.
fn join(a: Value, b: Value) -> Value {
    match (a, b) {
        (a, b) if a == b => a,
        // A limit that grows grows without end: it is dropped at once.
        (Value::AtMost(a) | Value::Constant(a), Value::AtMost(b) | Value::Constant(b))
            if b <= a =>
        {
            Value::AtMost(a)
        }
        _ => UNKNOWN,
    }
}

/// The class "loads and stores": bits 28 to 25 are x1x0.
fn is_load_or_store(word: u32) -> bool {
    word & 0x0a00_0000 == 0x0800_0000
}

/// The class "branches, exceptions and system instructions": bits 28 to 26 are 101.
fn is_branch_or_system(word: u32) -> bool {
    word & 0x1c00_0000 == 0x1400_0000
}

impl Entry {
    /// Bytes from the start of the table to the end of the entry with the largest index.
    pub fn bytes(&self) -> u64 {
        self.last.saturating_add(1).saturating_mul(self.size)
    }
}

/// The target of a jump: the entry `raw` of a table, added to an address.
pub fn jump(base: u64, raw: &[u8], shift: u32) -> u64 {
    let mut bytes = [0; 8];
    bytes[..raw.len()].copy_from_slice(raw);
    let value = u64::from_le_bytes(bytes);
    let value = if raw.len() as u64 == SIZE {
        i64::from(value as u32 as i32)
    } else {
        value as i64
    };
    base.wrapping_add_signed(value << shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: u64 = 0x4020_0000;

    fn after(words: &[u32]) -> Values {
        let mut values = Values::unknown();
        for (index, &word) in words.iter().enumerate() {
            values.execute(word, AT + 4 * index as u64);
        }
        values
    }

    #[test]
    fn a_jump_through_a_table_is_followed() {
        // adr x9, .+0x100; cmp w8, #5 and b.hi not taken; adr x10, .+16; ldrb w11, [x9, x8]; add x10, x10, x11, lsl #2
        let mut values = after(&[0x1000_0809, 0x7100_151f]);
        values.branch(0x5400_0048, false);
        for (index, word) in [0x1000_008a, 0x3868_692b, 0x8b0b_094a]
            .into_iter()
            .enumerate()
        {
            values.execute(word, AT + 12 + 4 * index as u64);
        }
        let entry = Entry {
            table: AT + 0x100,
            size: 1,
            last: 5,
        };
        let base = AT + 12 + 16;
        assert_eq!(
            values.get(10),
            Value::Target {
                base,
                entry,
                shift: 2
            }
        );
        assert_eq!(entry.bytes(), 6);
        assert_eq!(jump(base, &[3], 2), base + 12);
        assert_eq!(jump(base, &(-8_i32).to_le_bytes(), 0), base - 8);
    }

    #[test]
    fn a_limit_holds_only_where_the_branch_says_so() {
        // cmp w8, #5; b.hi
        let compared = after(&[0x7100_151f]);
        let (mut taken, mut fallen) = (compared.clone(), compared.clone());
        taken.branch(0x5400_0048, true);
        fallen.branch(0x5400_0048, false);
        assert_eq!((taken.get(8), fallen.get(8)), (UNKNOWN, Value::AtMost(5)));
        // Another write of the register comes between: add x8, x8, #1.
        let mut written = compared;
        written.execute(0x9100_0508, AT);
        written.branch(0x5400_0048, false);
        assert_eq!(written.get(8), UNKNOWN);
    }

    #[test]
    fn a_constant_survives_on_the_stack_but_not_in_a_register_that_a_call_may_write() {
        // mov w9, #7; str x9, [sp, #16]
        let mut values = after(&[0x5280_00e9, 0xf900_0be9]);
        values.call();
        assert_eq!(values.get(9), UNKNOWN);
        // ldr x9, [sp, #16]
        values.execute(0xf940_0be9, AT);
        assert_eq!(values.get(9), Value::Constant(7));
        // Where another path has another constant, nothing is known.
        assert!(values.join(&Values::knowing(9, 8)));
        assert_eq!(values.get(9), UNKNOWN);
    }

    #[test]
    fn branches_on_constants_are_decided() {
        let values = Values::knowing(0, 1);
        assert_eq!(values.decides(0xb400_1940), Some(false)); // cbz x0
        assert_eq!(values.decides(0xb500_1940), Some(true)); // cbnz x0
        assert_eq!(values.decides(0xb400_1941), None); // cbz x1
        let mut compared = values;
        compared.execute(0xf100_041f, AT); // cmp x0, #1
        assert_eq!(compared.decides(0x5400_1b81), Some(false)); // b.ne
        assert_eq!(compared.decides(0x5400_1b80), Some(true)); // b.eq
        assert_eq!(compared.decides(0x5400_1b88), Some(false)); // b.hi
        assert_eq!(compared.decides(0x5400_1b8b), None); // b.lt
    }
}
