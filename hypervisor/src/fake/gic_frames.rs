// SPDX-License-Identifier: MIT OR Apache-2.0
//! The registers of the GIC's frames that the hypervisor uses after start.

use super::Machine;
use super::REDISTRIBUTOR_SIZE;
use super::gic::{Bank, WORDS};

/// Bytes of the distributor.
const DISTRIBUTOR_SIZE: u64 = 0x1_0000;
/// The frame of SGIs and PPIs in a redistributor.
const SGI_FRAME: u64 = 0x1_0000;
/// `GICR_WAKER`.
const WAKER: u64 = 0x14;
/// `GICR_IGROUPR0` and `GICR_IPRIORITYR`, in that frame.
const GROUPS: u64 = 0x80;
const PRIORITIES: u64 = 0x400;
/// `GICD_IROUTER`.
const ROUTERS: u64 = 0x6000;

/// A bank of registers with a bit for each interrupt.
#[derive(Clone, Copy)]
enum Bits {
    SetEnable,
    ClearEnable,
    SetPending,
    ClearPending,
    SetActive,
    ClearActive,
}

impl Bits {
    fn at(offset: u64) -> Option<(Self, usize)> {
        let bank = match offset & !0x7F {
            0x0100 => Self::SetEnable,
            0x0180 => Self::ClearEnable,
            0x0200 => Self::SetPending,
            0x0280 => Self::ClearPending,
            0x0300 => Self::SetActive,
            0x0380 => Self::ClearActive,
            _ => return None,
        };
        Some((bank, (offset & 0x7F) as usize / 4))
    }

    fn read(self, bank: &Bank, lines: u32) -> u32 {
        match self {
            Self::SetEnable | Self::ClearEnable => bank.enabled,
            Self::SetPending | Self::ClearPending => bank.pending(lines),
            Self::SetActive | Self::ClearActive => bank.active,
        }
    }

    fn write(self, bank: &mut Bank, value: u32) {
        match self {
            Self::SetEnable => bank.enabled |= value,
            Self::ClearEnable => bank.enabled &= !value,
            Self::SetPending => bank.latched |= value,
            Self::ClearPending => bank.latched &= !value,
            Self::SetActive => bank.active |= value,
            Self::ClearActive => bank.active &= !value,
        }
    }
}

impl Machine {
    /// Reads a register of the GIC; `None` if there is none at this address.
    pub fn read_gic(&mut self, address: u64) -> Option<u32> {
        if let Some(offset) = within(address, self.gic.distributor, DISTRIBUTOR_SIZE) {
            if offset == 0 {
                // GICD_CTLR: no write is in progress.
                return Some(0);
            }
            let (bits, word) = Bits::at(offset)?;
            let bank = &self.gic.spis[word % WORDS];
            return Some(bits.read(bank, bank.lines));
        }
        if self.is_waker(address) {
            return Some(0);
        }
        let (core, offset) = self.redistributor(address)?;
        let (bits, word) = Bits::at(offset)?;
        let lines = self.private_lines(core);
        (word == 0).then(|| bits.read(&self.cores[core].private, lines))
    }

    /// Writes a register of the GIC; false if there is none at this address.
    pub fn write_gic(&mut self, address: u64, value: u64) -> bool {
        if let Some(offset) = within(address, self.gic.distributor, DISTRIBUTOR_SIZE) {
            if let Some((bits, word)) = Bits::at(offset) {
                assert!(word > 0, "SGIs and PPIs are not in the distributor");
                bits.write(&mut self.gic.spis[word], value as u32);
                self.gic.used_words = self.gic.used_words.max(word);
                return true;
            }
            let number = offset.wrapping_sub(ROUTERS) / 8;
            return match self.gic.routes.get_mut(number as usize) {
                Some(route) if number >= 32 => {
                    assert!(
                        self.cores
                            .iter()
                            .any(|core| core.get(super::Register::MPIDR_EL1) == value),
                        "INTID {number} is routed to {value:#x}, which is no core's affinity"
                    );
                    *route = value;
                    true
                }
                _ => false,
            };
        }
        if self.is_waker(address) {
            return true;
        }
        let Some((core, offset)) = self.redistributor(address) else {
            return false;
        };
        if offset == GROUPS {
            return true;
        }
        if let Some(first) = offset.checked_sub(PRIORITIES).filter(|it| *it < 32) {
            let bytes = (value as u32).to_le_bytes();
            self.cores[core].private.priority[first as usize..][..4].copy_from_slice(&bytes);
            return true;
        }
        match Bits::at(offset) {
            Some((bits, 0)) => {
                assert_eq!(
                    core, self.current,
                    "a core writes its own redistributor only"
                );
                bits.write(&mut self.cores[core].private, value as u32);
                true
            }
            _ => false,
        }
    }

    /// Whether this is the address of a redistributor's `GICR_WAKER`. All are awake.
    fn is_waker(&self, address: u64) -> bool {
        let size = REDISTRIBUTOR_SIZE * self.cores.len() as u64;
        let offset = within(address, self.gic.redistributors, size);
        offset.is_some_and(|it| it % REDISTRIBUTOR_SIZE == WAKER)
    }

    fn redistributor(&self, address: u64) -> Option<(usize, u64)> {
        let size = REDISTRIBUTOR_SIZE * self.cores.len() as u64;
        let offset = within(address, self.gic.redistributors, size)?;
        let core = (offset / REDISTRIBUTOR_SIZE) as usize;
        let in_frame = (offset % REDISTRIBUTOR_SIZE).checked_sub(SGI_FRAME)?;
        Some((core, in_frame))
    }
}

fn within(address: u64, base: u64, size: u64) -> Option<u64> {
    let offset = address.wrapping_sub(base);
    (offset < size).then_some(offset)
}
