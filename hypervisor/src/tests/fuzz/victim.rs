// SPDX-License-Identifier: MIT OR Apache-2.0
//! A guest that does nothing wrong among others that do: it sleeps until its timer, again and again.

use crate::fake::{self, Register};
use crate::guest_registers::Exit;
use crate::tests::guest::{GuestCpu, gicd};
use crate::tests::systems::*;

/// Its SPI, on the machine and of its own.
pub const SPI: (u16, u16) = (44, 50);
const TIMER: u16 = 27;
/// Its period in ticks.
const PERIOD: u64 = 50_000;

/// Where it is in its program.
#[derive(Debug, Default)]
pub struct Victim {
    is_set_up: bool,
    /// Times that its timer has woken it.
    pub periods: u64,
    /// When it is to be woken; 0 while it runs.
    pub due: u64,
}

impl Victim {
    /// What it does until it comes back.
    pub fn act(&mut self, cpu: &mut GuestCpu<'_>) -> Exit {
        let own = REDISTRIBUTORS + gicd::SGI_FRAME;
        let spi = u64::from(SPI.1 / 32) * 4;
        // What EL2 has had it try again has not been done.
        match (cpu.registers.pc - GUEST_MEMORY) / 4 {
            0 => {
                cpu.open_interface();
                cpu.store(DISTRIBUTOR + gicd::CTLR, gicd::ON)
            }
            1 => cpu.store(own + gicd::IGROUPR, u32::MAX),
            2 => cpu.store(own + gicd::ISENABLER, 1 << TIMER),
            3 => cpu.store(DISTRIBUTOR + gicd::IGROUPR + spi, u32::MAX),
            4 => cpu.store(DISTRIBUTOR + gicd::ISENABLER + spi, 1 << (SPI.1 % 32)),
            _ => {
                self.is_set_up = true;
                self.live(cpu)
            }
        }
    }

    fn live(&mut self, cpu: &mut GuestCpu<'_>) -> Exit {
        match cpu.acknowledge() {
            Some(TIMER) => {
                assert!(cpu.now() >= self.due, "its timer has rung too early");
                self.periods += 1;
                cpu.set(Register::CNTV_CTL_EL0, 0);
                cpu.end(TIMER);
                self.due = 0;
            }
            Some(other) => panic!("interrupt {other} is not the victim's"),
            None => {}
        }
        if self.due == 0 {
            assert_eq!(cpu.read_memory(GUEST_MEMORY, 8), IMAGE[..8]);
            self.due = cpu.now() + PERIOD;
            cpu.set(Register::CNTV_CVAL_EL0, self.due);
            cpu.set(Register::CNTV_CTL_EL0, 1);
        }
        cpu.wfi()
    }

    /// What is its own on the machine is as it was made.
    pub fn check(&self, home_mpidr: u64) {
        if !self.is_set_up {
            return;
        }
        fake::with(|machine| {
            assert_eq!(
                machine.gic.routes[usize::from(SPI.0)],
                home_mpidr,
                "its SPI was sent away"
            );
            let (bank, bit) = machine.gic.spi(SPI.0);
            assert_ne!(bank.enabled & bit, 0, "its SPI was turned off");
            assert_eq!(bank.active & bit, 0, "its SPI was taken");
        });
    }
}
