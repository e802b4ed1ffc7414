// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writes type information (BTF) in a kernel's form, for tests.

/// Kinds of types.
pub const INT: u32 = 1;
pub const STRUCT: u32 = 4;
pub const UNION: u32 = 5;
pub const TYPEDEF: u32 = 8;
pub const FUNC: u32 = 12;
/// The flag of a structure whose members may be bit fields.
pub const BIT_FIELDS: u32 = 1 << 31;

/// Type information under construction.
pub struct Types {
    types: Vec<u8>,
    strings: Vec<u8>,
    count: u32,
}

impl Types {
    pub fn new() -> Self {
        Self {
            types: Vec::new(),
            strings: vec![0],
            count: 0,
        }
    }

    fn name(&mut self, name: &str) -> u32 {
        if name.is_empty() {
            return 0;
        }
        let at = self.strings.len() as u32;
        self.strings.extend(name.as_bytes());
        self.strings.push(0);
        at
    }

    fn words(&mut self, words: &[u32]) {
        self.types
            .extend(words.iter().flat_map(|it| it.to_le_bytes()));
    }

    /// Adds a type; returns its number. `what` is its size or another type, `tail` the entries after it.
    pub fn add(&mut self, kind: u32, name: &str, what: u32, tail: &[u32]) -> u32 {
        let name = self.name(name);
        self.words(&[name, kind << 24, what]);
        self.words(tail);
        self.count += 1;
        self.count
    }

    /// Adds a structure or union; its members are name, type and offset in bits.
    pub fn structure(&mut self, kind: u32, name: &str, members: &[(&str, u32, u32)]) -> u32 {
        let flag = kind & BIT_FIELDS;
        let kind = kind & !BIT_FIELDS;
        let name = self.name(name);
        self.words(&[name, flag | kind << 24 | members.len() as u32, 64]);
        for &(name, of, bits) in members {
            let name = self.name(name);
            self.words(&[name, of, bits]);
        }
        self.count += 1;
        self.count
    }

    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0x9f, 0xeb, 1, 0];
        let (types, strings) = (self.types.len() as u32, self.strings.len() as u32);
        for word in [24, 0, types, types, strings] {
            bytes.extend(u32::to_le_bytes(word));
        }
        bytes.extend(&self.types);
        bytes.extend(&self.strings);
        bytes
    }
}

/// Types of an arm64 kernel whose `preempt_count` is at byte 8 + 8 of a task.
pub fn kernel(counts: bool) -> Types {
    let mut types = Types::new();
    let long = types.add(INT, "long unsigned int", 8, &[64]);
    let int = types.add(INT, "unsigned int", 4, &[32]);
    let u64 = types.add(TYPEDEF, "u64", long, &[]);
    let halves = [("count", int, 0), ("need_resched", int, 32)];
    let halves = types.structure(STRUCT, "", &halves);
    let count = types.structure(
        UNION,
        "",
        &[("preempt_count", u64, 0), ("preempt", halves, 0)],
    );
    let info = [("flags", long, 0), ("", count, 64)];
    let info = types.structure(STRUCT, "thread_info", &info);
    // A function of that name is not a structure.
    types.add(FUNC, "task_struct", 0, &[]);
    let task = [("__state", long, 0), ("thread_info", info, 64)];
    types.structure(STRUCT | BIT_FIELDS, "task_struct", &task);
    types.add(FUNC, "preempt_schedule_irq", 0, &[]);
    if counts {
        types.add(FUNC, "preempt_schedule", 0, &[]);
    }
    types
}
