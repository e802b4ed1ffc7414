// SPDX-License-Identifier: MIT OR Apache-2.0
//! Emulates a guest's load or store in a GIC frame.
//!
//! A read of pending or active state, which list registers change, and any write fold first. List registers are filled again before the
//! guest goes on. Other reads do neither.
//!
//! An access may call for much work, so the core looks for interrupts in between. If one is pending, the access is not done, or only a
//! part of it, and the guest executes its instruction again once the interrupt is handled. Each part that is done leaves less to do the
//! next time, or is done again: a pending state is cleared once more, which changes nothing for a store that is not done.

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
    /// The guest reads `size` bytes at `offset` of a region. Loaded only. Returns the value (upper bytes 0), and the vCPUs whose doorbells
    /// were rung. The value is `None` if the core was interrupted: the guest must execute the load again. Where there is no register it
    /// reads 0. [`synchronize`](Self::synchronize) is to be called before the guest goes on, if [`is_unfilled`](Self::is_unfilled).
    pub fn mmio_read(
        &mut self,
        gic: &GuestGic,
        region: Region,
        offset: u64,
        size: u8,
        machine: &mut impl PhysicalGic,
    ) -> (Option<u64>, VcpuIndexSet) {
        let distributor = &gic.distributor;
        let Some(register) = decode(region, offset, size) else {
            return (Some(0), VcpuIndexSet::EMPTY);
        };
        let mut kick = VcpuIndexSet::EMPTY;
        if register.is_live() {
            let (rung, is_done) = self.fold_for_access(gic, machine);
            kick = rung;
            if !is_done {
                return (None, kick);
            }
        }
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
            Register::Shared(register) => {
                let Some(value) = gic.read_shared(register, machine) else {
                    return (None, kick);
                };
                if register.is_live() {
                    kick = kick.with(gic.refresh_shared(register, self.index()));
                }
                u64::from(value)
            }
            Register::Private(vcpu, register) => {
                if register.is_live() {
                    self.collect(gic);
                }
                u64::from(self.read_private(vcpu, register, machine))
            }
        };
        (Some(value), kick.without(self.index()))
    }

    /// The guest writes `size` bytes at `offset` of a region. Loaded only. Returns the vCPUs whose doorbells were rung, and whether the
    /// write is done. If not, the core was interrupted: a part of it may be done, and the guest must execute the store again. A write
    /// where there is no register is ignored.
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
    ) -> (VcpuIndexSet, bool) {
        let Some(register) = decode(region, offset, size) else {
            return (VcpuIndexSet::EMPTY, true);
        };
        let (kick, is_done) = self.fold_for_access(gic, machine);
        if !is_done {
            return (kick, false);
        }
        // Registers of one interrupt family have 32 bits or less.
        let word = value as u32;
        let (rung, is_done) = match register {
            Register::Control => (gic.write_control(word), true),
            Register::Route(intid, part) => (gic.write_route(intid, part, value, machine), true),
            Register::Shared(register) => self.write_shared(gic, register, word, machine),
            Register::Private(vcpu, register) => {
                self.collect(gic);
                self.write_private(vcpu, register, word);
                (VcpuIndexSet::EMPTY, true)
            }
            Register::Waker(vcpu) => {
                gic.write_waker(vcpu, word);
                (VcpuIndexSet::EMPTY, true)
            }
            Register::Type
            | Register::Implementer
            | Register::PeripheralId2
            | Register::RedistributorType(..) => (VcpuIndexSet::EMPTY, true),
        };
        (kick.with(rung).without(self.index()), is_done)
    }

    /// Folds for an access to state that list registers change. Returns the vCPUs whose doorbells were rung, and whether the access may
    /// go on: it may not if the core is interrupted.
    fn fold_for_access(
        &mut self,
        gic: &GuestGic,
        machine: &mut impl PhysicalGic,
    ) -> (VcpuIndexSet, bool) {
        let (kick, is_done) = self.fold_unless_interrupted(gic, machine);
        self.is_unfilled = true;
        if !is_done {
            return (kick, false);
        }
        let (rung, is_done) = self.finish_ended_first(gic, machine);
        (kick.with(rung).without(self.index()), is_done)
    }

    /// Whether list registers are to be filled before the vCPU runs: [`synchronize`](Self::synchronize) does it.
    pub const fn is_unfilled(&self) -> bool {
        self.is_unfilled
    }
}
