// SPDX-License-Identifier: MIT OR Apache-2.0
//! The redistributors' registers (IHI 0069, sections 12.10 and 12.11). GICR_CTLR has nothing to
//! control without LPIs and 1-of-N distribution: RAZ/WI, as is GICR_STATUSR.

use super::cpu_interface::CpuInterface;
use super::rank::Rank;
use super::register::{Bank, InterruptRegister};
use super::{GuestGic, PhysicalGic, TIMER_PPIS, VcpuIndex, bits};

/// GICR_TYPER.Last: the highest redistributor of the series.
const TYPER_LAST: u64 = 1 << 4;
/// GICR_TYPER.Processor_Number.
const TYPER_PROCESSOR_SHIFT: u32 = 8;
/// GICR_TYPER.Affinity_Value.
const TYPER_AFFINITY_SHIFT: u32 = 32;
/// GICR_WAKER.ProcessorSleep.
const WAKER_PROCESSOR_SLEEP: u32 = 1 << 1;
/// GICR_WAKER.ChildrenAsleep.
const WAKER_CHILDREN_ASLEEP: u32 = 1 << 2;
/// GICR_ICFGR0: SGIs are edge-triggered.
const ICFGR0: u32 = 0xaaaa_aaaa;

impl GuestGic {
    fn has_vcpu(&self, vcpu: VcpuIndex) -> bool {
        vcpu.index() < self.vcpus()
    }

    pub(super) fn read_redistributor_type(&self, vcpu: VcpuIndex) -> u64 {
        if !self.has_vcpu(vcpu) {
            return 0;
        }
        let number = u64::from(vcpu.0);
        let last = if vcpu.index() + 1 == self.vcpus() {
            TYPER_LAST
        } else {
            0
        };
        number << TYPER_AFFINITY_SHIFT | number << TYPER_PROCESSOR_SHIFT | last
    }

    pub(super) fn read_waker(&self, vcpu: VcpuIndex) -> u32 {
        if self.has_vcpu(vcpu) && self.doorbell(vcpu).is_asleep() {
            WAKER_PROCESSOR_SLEEP | WAKER_CHILDREN_ASLEEP
        } else {
            0
        }
    }

    pub(super) fn write_waker(&self, vcpu: VcpuIndex, value: u32) {
        if self.has_vcpu(vcpu) {
            self.doorbell(vcpu)
                .set_asleep(value & WAKER_PROCESSOR_SLEEP != 0);
        }
    }
}

impl CpuInterface {
    /// Reads a register of SGIs and PPIs; pending and active only when folded. RAZ if it is that
    /// of another vCPU.
    pub(super) fn read_private(
        &self,
        vcpu: VcpuIndex,
        register: InterruptRegister,
        machine: &impl PhysicalGic,
    ) -> u32 {
        if vcpu != self.index {
            return 0;
        }
        match register {
            InterruptRegister::Bank(bank, _) => match bank {
                Bank::Group => self.group,
                Bank::SetEnable | Bank::ClearEnable => self.enabled,
                Bank::SetPending | Bank::ClearPending => self.latch | machine.lines() & TIMER_PPIS,
                Bank::SetActive | Bank::ClearActive => self.active,
            },
            InterruptRegister::Priority { first, count } => {
                // At most 4 times: priorities in a word.
                (0..count).rev().fold(0, |value, offset| {
                    value << 8 | u32::from(self.priority[usize::from(first.0 + offset) & 31])
                })
            }
            InterruptRegister::Config(0) => ICFGR0,
            InterruptRegister::Config(_) => 0,
        }
    }

    /// Writes a register of SGIs and PPIs. Folded only. WI if it is that of another vCPU.
    pub(super) fn write_private(
        &mut self,
        vcpu: VcpuIndex,
        register: InterruptRegister,
        value: u32,
    ) {
        if vcpu != self.index {
            return;
        }
        match register {
            InterruptRegister::Bank(bank, _) => match bank {
                Bank::Group => self.group = value,
                Bank::SetEnable => self.enabled |= value,
                Bank::ClearEnable => self.enabled &= !value,
                Bank::SetPending => self.latch |= value,
                Bank::ClearPending => self.latch &= !value,
                Bank::SetActive => {
                    // At most 32 times: SGIs and PPIs.
                    for bit in bits(value & !self.active) {
                        self.active_rank[bit as usize] = Rank::NEVER_ACKNOWLEDGED;
                    }
                    self.active |= value;
                }
                Bank::ClearActive => self.clear_active(value),
            },
            InterruptRegister::Priority { first, count } => {
                // At most 4 times: priorities in a word.
                for offset in 0..count {
                    self.set_priority(u32::from(first.0 + offset), (value >> (8 * offset)) as u8);
                }
            }
            InterruptRegister::Config(_) => {}
        }
    }
}
