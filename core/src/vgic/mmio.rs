// SPDX-License-Identifier: MIT OR Apache-2.0
//! Emulates a guest's load or store in a GIC frame.
//!
//! A read of pending or active state, which list registers change, and any write fold first and fill afterwards. Other
//! reads do neither.

use super::cpu_interface::CpuInterface;
use super::register::{Region, Register, decode};
use super::{GuestGic, PhysicalGic, VcpuIndexSet};

/// GICD_CTLR.ARE: affinity routing, always on.
const CTLR_ARE: u32 = 1 << 4;
/// GICD_CTLR.DS: one Security state, always.
const CTLR_DS: u32 = 1 << 6;
/// GICD_TYPER.IDbits: INTIDs have 10 bits.
const TYPER_ID_BITS: u32 = 9 << 19;
/// GICD_TYPER.No1N: no 1-of-N distribution.
const TYPER_NO_1_OF_N: u32 = 1 << 25;
/// GICD_IIDR, GICR_IIDR: product 'S', revision 0, no JEP106 code.
const IIDR: u32 = 0x5300_0000;
/// GICD_PIDR2.ArchRev, GICR_PIDR2.ArchRev: GICv3.
const PIDR2: u32 = 3 << 4;

impl CpuInterface {
    /// The guest reads `size` bytes at `offset` of a region. Loaded only. Returns the value (upper bytes 0) and the
    /// vCPUs whose doorbells were rung. Where there is no register it reads 0.
    pub fn mmio_read(
        &mut self,
        gic: &GuestGic,
        region: Region,
        offset: u64,
        size: u8,
        machine: &mut impl PhysicalGic,
    ) -> (u64, VcpuIndexSet) {
        let distributor = &gic.distributor;
        let Some(register) = decode(region, offset, size) else {
            return (0, VcpuIndexSet::EMPTY);
        };
        let value = match register {
            Register::Control => u64::from(distributor.control() | CTLR_ARE | CTLR_DS),
            Register::Type => {
                let words = u32::from(distributor.spis() / 32);
                u64::from(words | TYPER_ID_BITS | TYPER_NO_1_OF_N)
            }
            Register::Implementer => u64::from(IIDR),
            Register::PeripheralId2 => u64::from(PIDR2),
            Register::Route(intid, part) => part.of(gic.read_route(intid)),
            Register::RedistributorType(vcpu, part) => part.of(gic.read_redistributor_type(vcpu)),
            Register::Waker(vcpu) => u64::from(gic.read_waker(vcpu)),
            Register::Shared(register) if !register.is_live() => {
                u64::from(gic.read_shared(register, machine))
            }
            Register::Private(vcpu, register) if !register.is_live() => {
                u64::from(self.read_private(vcpu, register, machine))
            }
            Register::Shared(register) => {
                let kick = self.fold(gic, machine);
                let value = gic.read_shared(register, machine);
                let kick = kick.with(gic.refresh_shared(register, self.index()));
                return (u64::from(value), kick.with(self.fill(gic, machine)));
            }
            Register::Private(vcpu, register) => {
                let kick = self.fold(gic, machine);
                self.collect(gic);
                let value = self.read_private(vcpu, register, machine);
                return (u64::from(value), kick.with(self.fill(gic, machine)));
            }
        };
        (value, VcpuIndexSet::EMPTY)
    }

    /// The guest writes `size` bytes at `offset` of a region. Loaded only. Returns the vCPUs whose doorbells were rung. A write where
    /// there is no register is ignored.
    ///
    /// Leaves all state folded: [`synchronize`](Self::synchronize) is to be called before the guest goes on.
    pub fn mmio_write(
        &mut self,
        gic: &GuestGic,
        region: Region,
        offset: u64,
        size: u8,
        value: u64,
        machine: &mut impl PhysicalGic,
    ) -> VcpuIndexSet {
        let Some(register) = decode(region, offset, size) else {
            return VcpuIndexSet::EMPTY;
        };
        let mut kick = self.fold(gic, machine);
        // Registers of one interrupt family have 32 bits or less.
        let word = value as u32;
        kick = kick.with(match register {
            Register::Control => gic.write_control(word),
            Register::Route(intid, part) => gic.write_route(intid, part, value, machine),
            Register::Shared(register) => self.write_shared(gic, register, word, machine),
            Register::Private(vcpu, register) => {
                self.collect(gic);
                self.write_private(vcpu, register, word);
                VcpuIndexSet::EMPTY
            }
            Register::Waker(vcpu) => {
                gic.write_waker(vcpu, word);
                VcpuIndexSet::EMPTY
            }
            Register::Type
            | Register::Implementer
            | Register::PeripheralId2
            | Register::RedistributorType(..) => VcpuIndexSet::EMPTY,
        });
        kick.without(self.index())
    }
}
