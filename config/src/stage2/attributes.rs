// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a descriptor says, and its bits.
//!
//! DDI 0487, chapter D8: "VMSAv8-64 descriptor formats" for the layout, the sections on stage 2
//! memory types, shareability (with `HCR_EL2.FWB` = 0), data access permissions and instruction
//! execution permissions for the fields.

use super::Level;
use crate::types::PhysAddr;

/// How a range of guest memory may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// Type of the memory.
    pub memory: Memory,
    /// Reads and writes.
    pub access: Access,
    /// Instruction fetches.
    pub execute: Execute,
}

impl Attributes {
    /// Ordinary memory of a guest.
    pub const RAM: Self = Self {
        memory: Memory::Normal,
        access: Access::ReadWrite,
        execute: Execute::All,
    };
    /// Memory of a guest of which only the kernel runs: a return to a program faults. Needs FEAT_XNX.
    pub const RAM_OF_KERNEL: Self = Self {
        execute: Execute::El1Only,
        ..Self::RAM
    };
    /// Memory of a guest of which only programs run: an entry into the kernel faults. Needs FEAT_XNX.
    pub const RAM_OF_PROGRAMS: Self = Self {
        execute: Execute::El0Only,
        ..Self::RAM
    };
    /// Memory that guests share. It is not cached, whatever each guest asks for: with different attributes they would see
    /// different contents.
    pub const SHARED: Self = Self {
        memory: Memory::NonCacheable,
        access: Access::ReadWrite,
        execute: Execute::None,
    };
    /// The same, for a guest that may not write to it.
    pub const SHARED_READ_ONLY: Self = Self {
        access: Access::ReadOnly,
        ..Self::SHARED
    };
    /// The hypervisor's page with the stolen time of a guest's vCPUs (DEN0057: normal memory, write-back).
    pub const STOLEN_TIME: Self = Self {
        access: Access::ReadOnly,
        execute: Execute::None,
        ..Self::RAM
    };
    /// Registers of a device passed through to a guest.
    pub const DEVICE: Self = Self {
        memory: Memory::Device,
        access: Access::ReadWrite,
        execute: Execute::None,
    };
}

/// Type of memory. Stage 1 of the guest may make it weaker (non-cacheable), never stronger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// Normal memory, write-back cacheable, inner shareable.
    Normal,
    /// Normal memory, not cacheable.
    NonCacheable,
    /// Device memory, nGnRE.
    Device,
}

/// Which data accesses are permitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reads only.
    ReadOnly,
    /// Reads and writes.
    ReadWrite,
}

/// Which exception levels may fetch instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Execute {
    /// None.
    None,
    /// EL0, not EL1. Needs FEAT_XNX.
    El0Only,
    /// EL1, not EL0. Needs FEAT_XNX.
    El1Only,
    /// EL0 and EL1.
    All,
}

/// One descriptor of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Descriptor(pub(super) u64);

const VALID: u64 = 1 << 0;
/// At levels 1 and 2: a table rather than a block. At level 3 all valid descriptors have it.
const TABLE_OR_PAGE: u64 = 1 << 1;

const MEMORY_MASK: u64 = 0b1111 << 2;
const MEMORY_NORMAL_WRITE_BACK: u64 = 0b1111 << 2;
const MEMORY_NORMAL_NON_CACHEABLE: u64 = 0b0101 << 2;
const MEMORY_DEVICE_NGNRE: u64 = 0b0001 << 2;

const READ: u64 = 1 << 6;
const WRITE: u64 = 1 << 7;

const INNER_SHAREABLE: u64 = 0b11 << 8;
/// Set from the start: the hypervisor wants no access flag faults.
const ACCESS_FLAG: u64 = 1 << 10;

const EXECUTE_NEVER_MASK: u64 = 0b11 << 53;
const EXECUTE_NEVER_AT_EL1: u64 = 0b01 << 53;
const EXECUTE_NEVER: u64 = 0b10 << 53;
const EXECUTE_NEVER_AT_EL0: u64 = 0b11 << 53;

/// Output address: bits 47 to 12 (48-bit physical addresses, no FEAT_LPA2).
const ADDRESS_MASK: u64 = 0x0000_ffff_ffff_f000;

impl Descriptor {
    /// Any access through it faults.
    pub(super) const INVALID: Self = Self(0);

    /// Points to the table of the next level.
    pub(super) const fn table(pa: PhysAddr) -> Self {
        Self(pa.0 & ADDRESS_MASK | TABLE_OR_PAGE | VALID)
    }

    /// Maps a block (levels 1 and 2) or page (level 3) at `pa`.
    pub(super) const fn leaf(pa: PhysAddr, attributes: Attributes, level: Level) -> Self {
        // Device memory and memory that is not cacheable are outer shareable, whatever the field says.
        let memory = match attributes.memory {
            Memory::Normal => MEMORY_NORMAL_WRITE_BACK | INNER_SHAREABLE,
            Memory::NonCacheable => MEMORY_NORMAL_NON_CACHEABLE,
            Memory::Device => MEMORY_DEVICE_NGNRE,
        };
        let access = match attributes.access {
            Access::ReadOnly => READ,
            Access::ReadWrite => READ | WRITE,
        };
        let execute = match attributes.execute {
            Execute::All => 0,
            Execute::El0Only => EXECUTE_NEVER_AT_EL1,
            Execute::None => EXECUTE_NEVER,
            Execute::El1Only => EXECUTE_NEVER_AT_EL0,
        };
        Self::leaf_with(pa, memory | access | execute | ACCESS_FLAG, level)
    }

    /// Maps a block (levels 1 and 2) or page (level 3) at `pa`, with these other bits.
    pub(super) const fn leaf_with(pa: PhysAddr, bits: u64, level: Level) -> Self {
        let kind = match level {
            Level::One | Level::Two => VALID,
            Level::Three => VALID | TABLE_OR_PAGE,
        };
        Self(pa.0 & ADDRESS_MASK | kind | bits)
    }

    /// Whether the descriptor maps or points to anything.
    pub(super) const fn is_valid(self) -> bool {
        self.0 & VALID != 0
    }

    /// Whether, at `level`, it points to a table of the next level.
    pub(super) const fn is_table(self, level: Level) -> bool {
        !matches!(level, Level::Three) && self.0 & (VALID | TABLE_OR_PAGE) == VALID | TABLE_OR_PAGE
    }

    /// Where it points to: a table, a block or a page.
    pub(super) const fn address(self) -> PhysAddr {
        PhysAddr(self.0 & ADDRESS_MASK)
    }

    /// What a leaf permits.
    pub(super) const fn attributes(self) -> Attributes {
        Attributes {
            memory: match self.0 & MEMORY_MASK {
                MEMORY_NORMAL_WRITE_BACK => Memory::Normal,
                MEMORY_NORMAL_NON_CACHEABLE => Memory::NonCacheable,
                _ => Memory::Device,
            },
            access: if self.0 & WRITE == 0 {
                Access::ReadOnly
            } else {
                Access::ReadWrite
            },
            execute: match self.0 & EXECUTE_NEVER_MASK {
                EXECUTE_NEVER => Execute::None,
                EXECUTE_NEVER_AT_EL0 => Execute::El1Only,
                EXECUTE_NEVER_AT_EL1 => Execute::El0Only,
                _ => Execute::All,
            },
        }
    }
}
