// SPDX-License-Identifier: MIT OR Apache-2.0
//! Decodes offset and size of an access to a GIC register.
//!
//! Offsets and access sizes: IHI 0069, sections 12.8 to 12.11. What is not decoded here is RAZ/WI, and so are accesses
//! that are misaligned or of another size than the architecture names for a register.

use super::VcpuIndex;
use spumone_config::gic::{REDISTRIBUTOR_SIZE, SGI_FRAME};
use spumone_config::types::IntId;

/// A part of the GIC in a guest's address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Region {
    /// The distributor frame, 64 KiB.
    Distributor,
    /// The redistributors, [`REDISTRIBUTOR_SIZE`] for each vCPU.
    Redistributors,
}

/// One of the families with one bit per interrupt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bank {
    Group,
    SetEnable,
    ClearEnable,
    SetPending,
    ClearPending,
    SetActive,
    ClearActive,
}

/// Registers that have fields per interrupt: at the same offsets in GICD and SGI_base frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InterruptRegister {
    /// Interrupts 32 × n and up.
    Bank(Bank, usize),
    /// Priorities of one or four interrupts.
    Priority { first: IntId, count: u16 },
    /// ICFGR of interrupts 16 × n and up.
    Config(usize),
}

impl InterruptRegister {
    /// Whether a read depends on state in list registers.
    pub const fn is_live(self) -> bool {
        matches!(
            self,
            Self::Bank(
                Bank::SetPending | Bank::ClearPending | Bank::SetActive | Bank::ClearActive,
                _
            )
        )
    }
}

/// The part of a 64-bit register that is accessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Low,
    High,
    Both,
}

impl Part {
    pub const fn of(self, value: u64) -> u64 {
        match self {
            Self::Low => value & 0xffff_ffff,
            Self::High => value >> 32,
            Self::Both => value,
        }
    }
}

/// The register that is accessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Register {
    /// GICD_CTLR.
    Control,
    /// GICD_TYPER.
    Type,
    /// GICD_IIDR, GICR_IIDR.
    Implementer,
    /// GICD_PIDR2, GICR_PIDR2.
    PeripheralId2,
    /// `GICD_IROUTER<n>`.
    Route(IntId, Part),
    /// SPIs, in the distributor.
    Shared(InterruptRegister),
    /// GICR_TYPER of a vCPU.
    RedistributorType(VcpuIndex, Part),
    /// GICR_WAKER of a vCPU.
    Waker(VcpuIndex),
    /// SGIs and PPIs, in the redistributor of a vCPU.
    Private(VcpuIndex, InterruptRegister),
}

impl Register {
    /// Whether a read depends on state in list registers.
    pub const fn is_live(self) -> bool {
        match self {
            Self::Shared(register) | Self::Private(_, register) => register.is_live(),
            _ => false,
        }
    }
}

const PERIPHERAL_ID_2: u64 = 0xffe8;
const GICD_CTLR: u64 = 0x0000;
const GICD_TYPER: u64 = 0x0004;
const GICD_IIDR: u64 = 0x0008;
const GICD_IROUTER: u64 = 0x6000;
const GICD_IROUTER_END: u64 = 0x7fe0;
const GICR_IIDR: u64 = 0x0004;
const GICR_TYPER: u64 = 0x0008;
const GICR_TYPER_HIGH: u64 = 0x000c;
const GICR_WAKER: u64 = 0x0014;
const IGROUPR: u64 = 0x0080;
const BANK_SIZE: u64 = 0x80;
const IPRIORITYR: u64 = 0x0400;
const IPRIORITYR_END: u64 = 0x07fc;
const ICFGR: u64 = 0x0c00;
const ICFGR_END: u64 = 0x0d00;

/// The register at `offset` of a region, for an access of `size` bytes.
pub(super) fn decode(region: Region, offset: u64, size: u8) -> Option<Register> {
    if !matches!(size, 1 | 2 | 4 | 8) || !offset.is_multiple_of(u64::from(size)) {
        return None;
    }
    match region {
        Region::Distributor => decode_distributor(offset, size),
        Region::Redistributors => {
            let vcpu = u8::try_from(offset / REDISTRIBUTOR_SIZE).ok()?;
            let offset = offset % REDISTRIBUTOR_SIZE;
            decode_redistributor(VcpuIndex(vcpu), offset, size)
        }
    }
}

fn decode_distributor(offset: u64, size: u8) -> Option<Register> {
    if (GICD_IROUTER..GICD_IROUTER_END).contains(&offset) {
        let intid = IntId(((offset - GICD_IROUTER) / 8) as u16);
        return part(offset, size).map(|part| Register::Route(intid, part));
    }
    match (offset, size) {
        (GICD_CTLR, 4) => Some(Register::Control),
        (GICD_TYPER, 4) => Some(Register::Type),
        (GICD_IIDR, 4) => Some(Register::Implementer),
        (PERIPHERAL_ID_2, 4) => Some(Register::PeripheralId2),
        _ => decode_interrupts(offset, size).map(Register::Shared),
    }
}

fn decode_redistributor(vcpu: VcpuIndex, offset: u64, size: u8) -> Option<Register> {
    if let Some(offset) = offset.checked_sub(SGI_FRAME) {
        let register = decode_interrupts(offset, size)?;
        let private = match register {
            InterruptRegister::Bank(_, n) => n == 0,
            InterruptRegister::Priority { first, .. } => first.is_private(),
            InterruptRegister::Config(n) => n < 2,
        };
        return private.then_some(Register::Private(vcpu, register));
    }
    match (offset, size) {
        (GICR_IIDR, 4) => Some(Register::Implementer),
        (GICR_TYPER | GICR_TYPER_HIGH, _) => {
            part(offset, size).map(|part| Register::RedistributorType(vcpu, part))
        }
        (GICR_WAKER, 4) => Some(Register::Waker(vcpu)),
        (PERIPHERAL_ID_2, 4) => Some(Register::PeripheralId2),
        _ => None,
    }
}

fn decode_interrupts(offset: u64, size: u8) -> Option<InterruptRegister> {
    match offset {
        IGROUPR..IPRIORITYR if size == 4 => {
            let bank = match (offset - IGROUPR) / BANK_SIZE {
                0 => Bank::Group,
                1 => Bank::SetEnable,
                2 => Bank::ClearEnable,
                3 => Bank::SetPending,
                4 => Bank::ClearPending,
                5 => Bank::SetActive,
                _ => Bank::ClearActive,
            };
            Some(InterruptRegister::Bank(
                bank,
                (offset % BANK_SIZE / 4) as usize,
            ))
        }
        IPRIORITYR..IPRIORITYR_END if size == 1 || size == 4 => Some(InterruptRegister::Priority {
            first: IntId((offset - IPRIORITYR) as u16),
            count: u16::from(size),
        }),
        ICFGR..ICFGR_END if size == 4 => {
            Some(InterruptRegister::Config(((offset - ICFGR) / 4) as usize))
        }
        _ => None,
    }
}

fn part(offset: u64, size: u8) -> Option<Part> {
    match (size, offset % 8) {
        (8, 0) => Some(Part::Both),
        (4, 0) => Some(Part::Low),
        (4, 4) => Some(Part::High),
        _ => None,
    }
}
