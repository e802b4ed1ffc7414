// SPDX-License-Identifier: MIT OR Apache-2.0
//! The encodings of `MRS`, `MSR`, `SYS` and `SYSL`, and those among them that need care.
//!
//! Source: Arm ARM DDI 0487, C5.1 (the System instruction class encoding space).

use core::fmt;

/// Number of encodings in each direction.
pub const COUNT: usize = 1 << 16;

/// `op0:op1:CRn:CRm:op2`, 16 bits, as in bits 20 to 5 of the instruction.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Encoding(u16);

/// Whether an instruction reads a register or writes it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// `MRS`, `SYSL`.
    Read,
    /// `MSR`, `SYS`, and with `op0` 0 hints, barriers and `MSR (immediate)`.
    Write,
}

impl Encoding {
    /// `S<op0>_<op1>_C<crn>_C<crm>_<op2>`.
    pub const fn new(op0: u16, op1: u16, crn: u16, crm: u16, op2: u16) -> Self {
        Self(op0 << 14 | op1 << 11 | crn << 7 | crm << 3 | op2)
    }

    /// All of them.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..COUNT).map(|number| Self(number as u16))
    }

    /// Its index among all encodings.
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// `op0`: 0 for PSTATE, hints and barriers, 1 for system instructions, 2 and 3 for registers.
    pub const fn op0(self) -> u16 {
        self.0 >> 14
    }

    /// The instruction, with general register `Rt`.
    pub const fn instruction(self, direction: Direction, rt: u32) -> u32 {
        const SYSTEM: u32 = 0xD500_0000;
        /// `L`.
        const READ: u32 = 1 << 21;
        let read = match direction {
            Direction::Read => READ,
            Direction::Write => 0,
        };
        SYSTEM | read | (self.0 as u32) << 5 | rt
    }

    /// Whether the instruction is left out: it puts the CPU to sleep and has no state.
    pub fn is_left_out(self, direction: Direction) -> bool {
        direction == Direction::Write && [WFE, WFI, WFET, WFIT].contains(&self)
    }

    /// Whether the value changes by itself, or may differ between two lives.
    pub fn is_volatile(self) -> bool {
        // The system counter, and timer values, which are relative to it.
        let counts = [
            CNTPCT_EL0,
            CNTVCT_EL0,
            CNTPCTSS_EL0,
            CNTVCTSS_EL0,
            CNTP_TVAL_EL0,
            CNTV_TVAL_EL0,
        ];
        // Random numbers.
        let random = [RNDR, RNDRRS];
        counts.contains(&self) || random.contains(&self)
    }

    /// Whether access depends on `CPACR_EL1.FPEN`.
    pub fn is_floating_point(self) -> bool {
        [FPCR, FPSR].contains(&self)
    }
}

impl fmt::Display for Encoding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (op0, op1) = (self.0 >> 14, self.0 >> 11 & 7);
        let (crn, crm, op2) = (self.0 >> 7 & 15, self.0 >> 3 & 15, self.0 & 7);
        write!(f, "S{op0}_{op1}_C{crn}_C{crm}_{op2}")
    }
}

macro_rules! encodings {
    ($($name:ident = $op0:literal, $op1:literal, $crn:literal, $crm:literal, $op2:literal;)*) => {
        $(
            #[doc = concat!("`", stringify!($name), "`.")]
            pub const $name: Encoding = Encoding::new($op0, $op1, $crn, $crm, $op2);
        )*
    };
}

encodings! {
    WFET = 0, 3, 1, 0, 0;
    WFIT = 0, 3, 1, 0, 1;
    WFE = 0, 3, 2, 0, 2;
    WFI = 0, 3, 2, 0, 3;
    SCTLR_EL1 = 3, 0, 1, 0, 0;
    CPACR_EL1 = 3, 0, 1, 0, 2;
    SPSEL = 3, 0, 4, 2, 0;
    VBAR_EL1 = 3, 0, 12, 0, 0;
    RNDR = 3, 3, 2, 4, 0;
    RNDRRS = 3, 3, 2, 4, 1;
    DAIF = 3, 3, 4, 2, 1;
    FPCR = 3, 3, 4, 4, 0;
    FPSR = 3, 3, 4, 4, 1;
    CNTPCT_EL0 = 3, 3, 14, 0, 1;
    CNTVCT_EL0 = 3, 3, 14, 0, 2;
    CNTPCTSS_EL0 = 3, 3, 14, 0, 5;
    CNTVCTSS_EL0 = 3, 3, 14, 0, 6;
    CNTP_TVAL_EL0 = 3, 3, 14, 2, 0;
    CNTV_TVAL_EL0 = 3, 3, 14, 3, 0;
}

/// A set of encodings.
pub struct Set([u64; COUNT / 64]);

impl Set {
    /// The encodings for which `belongs` is true.
    pub fn of(belongs: impl Fn(Encoding) -> bool) -> Self {
        let mut set = Self([0; COUNT / 64]);
        Encoding::all()
            .filter(|&encoding| belongs(encoding))
            .for_each(|encoding| set.add(encoding));
        set
    }

    /// Adds one.
    pub fn add(&mut self, encoding: Encoding) {
        self.0[encoding.index() / 64] |= 1 << (encoding.index() % 64);
    }

    /// Whether it contains an encoding.
    pub fn has(&self, encoding: Encoding) -> bool {
        self.0[encoding.index() / 64] >> (encoding.index() % 64) & 1 != 0
    }

    /// Its encodings, in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = Encoding> + use<'_> {
        Encoding::all().filter(|&encoding| self.has(encoding))
    }
}
