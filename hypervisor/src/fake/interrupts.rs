// SPDX-License-Identifier: MIT OR Apache-2.0
//! Physical interrupts: signalled, acknowledged, priority dropped, deactivated. `EOImode` is 1.

use super::registers::{ENABLE, IMASK, Register};
use super::{Core, Machine};
use spumone_config::gic::{HYPERVISOR_TIMER, MAINTENANCE, PHYSICAL_TIMER, VIRTUAL_TIMER};

/// First SPI.
const FIRST_SPI: u16 = 32;

impl Machine {
    /// The levels of a core's private lines.
    pub fn private_lines(&self, core: usize) -> u32 {
        let core = &self.cores[core];
        let timer = |control, compare| {
            let is_armed = core.get(control) & (ENABLE | IMASK) == ENABLE;
            u32::from(is_armed && self.clock >= core.get(compare))
        };
        timer(Register::CNTV_CTL_EL0, Register::CNTV_CVAL_EL0) << VIRTUAL_TIMER.0
            | timer(Register::CNTP_CTL_EL0, Register::CNTP_CVAL_EL0) << PHYSICAL_TIMER.0
            | timer(Register::CNTHP_CTL_EL2, Register::CNTHP_CVAL_EL2) << HYPERVISOR_TIMER.0
            | u32::from(core.wants_maintenance()) << MAINTENANCE.0
            | core.private.lines
    }

    /// The pending and enabled interrupt of the highest priority for a core, as (priority, INTID).
    fn highest_priority(&self, core: usize) -> Option<(u8, u16)> {
        let private = &self.cores[core].private;
        let candidates =
            private.pending(self.private_lines(core)) & private.enabled & !private.active;
        let mut best = private.highest_priority(candidates);
        let mpidr = self.cores[core].get(Register::MPIDR_EL1);
        for word in 1..=self.gic.used_words {
            let bank = &self.gic.spis[word];
            let mut candidates = bank.pending(bank.lines) & bank.enabled & !bank.active;
            if candidates == 0 {
                continue;
            }
            for bit in 0..32 {
                if self.gic.routes[32 * word + bit] != mpidr {
                    candidates &= !(1 << bit);
                }
            }
            if let Some((priority, bit)) = bank.highest_priority(candidates) {
                let found = (priority, 32 * word as u16 + bit);
                best = Some(best.map_or(found, |best| best.min(found)));
            }
        }
        best
    }

    /// The interrupt that is signalled to a core: its priority is above the priority mask and the running priority.
    pub fn signalled(&self, core: usize) -> Option<u16> {
        let (priority, interrupt) = self.highest_priority(core)?;
        let it = &self.cores[core];
        let running = it
            .running_priorities
            .last()
            .map_or(0xFF, |&(_, priority)| priority);
        let passes = u64::from(priority) < it.get(Register::ICC_PMR_EL1) && priority < running;
        (passes && it.get(Register::ICC_IGRPEN1_EL1) & 1 != 0).then_some(interrupt)
    }

    /// `ICC_IAR1_EL1`: acknowledges the interrupt that is signalled.
    pub fn acknowledge(&mut self, core: usize) -> Option<u16> {
        let interrupt = self.signalled(core)?;
        self.clock += self.acknowledge_ticks;
        let (bank, bit) = if interrupt < FIRST_SPI {
            (&mut self.cores[core].private, 1 << interrupt)
        } else {
            self.gic.spi(interrupt)
        };
        bank.active |= bit;
        bank.latched &= !bit;
        let priority = bank.priority[usize::from(interrupt % 32)];
        self.cores[core]
            .running_priorities
            .push((interrupt, priority));
        Some(interrupt)
    }

    /// `ICC_EOIR1_EL1`: drops the running priority.
    pub fn drop_priority(&mut self, core: usize, interrupt: u16) {
        let dropped = self.cores[core].running_priorities.pop();
        assert_eq!(
            dropped.map(|(taken, _)| taken),
            Some(interrupt),
            "EOI of an interrupt that was not acknowledged last"
        );
    }

    /// Deactivates an interrupt, by `ICC_DIR_EL1` or by a list register with a physical interrupt.
    pub fn deactivate(&mut self, core: usize, interrupt: u16) {
        let (bank, bit) = if interrupt < FIRST_SPI {
            (&mut self.cores[core].private, 1 << interrupt)
        } else {
            self.gic.spi(interrupt)
        };
        assert!(
            bank.active & bit != 0,
            "INTID {interrupt} is deactivated, but is not active"
        );
        bank.active &= !bit;
    }

    /// Whether an interrupt is active. SGIs and PPIs: of this core.
    pub fn is_active(&mut self, core: usize, interrupt: u16) -> bool {
        let (bank, bit) = if interrupt < FIRST_SPI {
            (&mut self.cores[core].private, 1 << interrupt)
        } else {
            self.gic.spi(interrupt)
        };
        bank.active & bit != 0
    }

    /// `ICC_SGI1R_EL1`.
    pub fn send_sgi(&mut self, from: usize, value: u64) {
        /// `ICC_SGI1R_EL1.IRM`: all cores but the sender.
        const ALL_OTHERS: u64 = 1 << 40;
        let sgi = value >> 24 & 0xF;
        let bit = 1 << sgi;
        if value & ALL_OTHERS != 0 {
            for (index, core) in self.cores.iter_mut().enumerate() {
                if index != from {
                    core.private.latched |= bit;
                }
            }
            return;
        }
        let mut receivers = 0;
        for core in &mut self.cores {
            if is_target(core, value) {
                core.private.latched |= bit;
                receivers += 1;
            }
        }
        assert_eq!(receivers, 1, "an SGI has one receiver: {value:#x}");
    }
}

/// Whether an SGI is for this core (IHI 0069, 12.2.19).
fn is_target(core: &Core, value: u64) -> bool {
    let mpidr = core.get(Register::MPIDR_EL1);
    let aff0 = mpidr & 0xFF;
    let upper = |value: u64, shifts: [u32; 3]| shifts.map(|shift| value >> shift & 0xFF);
    let range = value >> 44 & 0xF;
    aff0 >> 4 == range
        && value >> (aff0 & 0xF) & 1 != 0
        && upper(value, [16, 32, 48]) == upper(mpidr, [8, 16, 32])
}
