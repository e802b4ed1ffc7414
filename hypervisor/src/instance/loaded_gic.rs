// SPDX-License-Identifier: MIT OR Apache-2.0
//! The machine's GIC as the virtual GIC of the loaded vCPU uses it.

use crate::cpu;
use crate::gic::{read_list_register, write_list_register};
use crate::hardware::isb;
use crate::machine::Machine;
use crate::sysreg::{mrs, msr};
use crate::timers;
use spumone_config::{GuestId, IntId, PcpuId};
use spumone_core::vgic::{ListRegister, PhysicalGic, VcpuIndex};

/// The machine's GIC as the virtual GIC of the loaded vCPU uses it.
pub(super) struct LoadedGic {
    machine: &'static Machine,
    core: PcpuId,
    guest: GuestId,
    list_registers: usize,
}

impl LoadedGic {
    pub(super) fn new(
        machine: &'static Machine,
        core: PcpuId,
        guest: GuestId,
        list_registers: usize,
    ) -> Self {
        Self {
            machine,
            core,
            guest,
            list_registers,
        }
    }
}

impl PhysicalGic for LoadedGic {
    #[inline(always)]
    fn list_registers(&self) -> usize {
        self.list_registers
    }

    #[inline(always)]
    fn read_lr(&self, index: usize) -> ListRegister {
        ListRegister(read_list_register(index))
    }

    #[inline(always)]
    fn write_lr(&mut self, index: usize, value: ListRegister) {
        write_list_register(index, value.0);
    }

    #[inline(always)]
    fn empty_lrs(&self) -> u32 {
        // `ICH_ELRSR_EL2` shows a write of a list register only after a context synchronization.
        isb();
        mrs!(ICH_ELRSR_EL2) as u32
    }

    #[inline(always)]
    fn read_hcr(&self) -> u64 {
        isb();
        mrs!(ICH_HCR_EL2)
    }

    #[inline(always)]
    fn write_hcr(&mut self, value: u64) {
        msr!(ICH_HCR_EL2, value);
    }

    #[inline(always)]
    fn vmcr(&self) -> u64 {
        mrs!(ICH_VMCR_EL2)
    }

    #[inline(always)]
    fn is_interrupted(&self) -> bool {
        cpu::interrupt_pending()
    }

    #[inline(always)]
    fn lines(&self) -> u32 {
        timers::live_lines()
    }

    fn set_enabled(&mut self, physical: IntId, enabled: bool) {
        self.machine.gic.set_spi_enabled(physical, enabled);
    }

    fn set_route(&mut self, physical: IntId, vcpu: VcpuIndex) {
        let core = self.machine.guest(self.guest).gic.doorbell(vcpu).location();
        if let Some(core) = self.machine.cores.get(core.index()) {
            self.machine.gic.route_spi(physical, core.mpidr);
        }
    }

    fn pending(&self, word: usize) -> u32 {
        self.machine.gic.pending_spis(word)
    }

    fn clear_pending(&mut self, physical: IntId) {
        self.machine.gic.clear_spi_pending(physical);
    }

    fn set_active(&mut self, physical: IntId, active: bool) {
        self.machine.gic.set_active(self.core, physical, active);
    }
}
