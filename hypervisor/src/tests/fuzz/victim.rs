// SPDX-License-Identifier: MIT OR Apache-2.0
//! The victim: a well-behaved guest among hostile ones. It sleeps until its timer expires, again and again.

use crate::fake::{self, Register};
use crate::guest_registers::Exit;
use crate::tests::guest::{GuestCpu, gicd};
use crate::tests::systems::*;

/// Its SPI: on the machine, and for the guest.
pub const SPI: (u16, u16) = (44, 50);
const TIMER: u16 = 27;
/// Its period in ticks.
const PERIOD: u64 = 50_000;

/// The state of its program.
#[derive(Debug, Default)]
pub struct Victim {
    is_set_up: bool,
    /// Number of times that its timer has woken it.
    pub periods: u64,
    /// When its timer expires; 0 while it runs.
    pub due: u64,
}

impl Victim {
    /// What it does until its next exit.
    pub fn act(&mut self, cpu: &mut GuestCpu<'_>) -> Exit {
        let own = REDISTRIBUTORS + gicd::SGI_FRAME;
        let spi = u64::from(SPI.1 / 32) * 4;
        // The program counter shows the progress: EL2 may have it retry an access.
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
                assert!(cpu.now() >= self.due, "its timer has expired too early");
                self.periods += 1;
                cpu.set(Register::CNTV_CTL_EL0, 0);
                cpu.end(TIMER);
                self.due = 0;
            }
            Some(other) => panic!("the victim gets interrupt {other}"),
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

    /// Checks that its SPI is as it has set it up.
    pub fn check(&self, home_mpidr: u64) {
        if !self.is_set_up {
            return;
        }
        fake::with(|machine| {
            assert_eq!(
                machine.gic.routes[usize::from(SPI.0)],
                home_mpidr,
                "its SPI was rerouted"
            );
            let (bank, bit) = machine.gic.spi(SPI.0);
            assert_ne!(bank.enabled & bit, 0, "its SPI was turned off");
            assert_eq!(bank.active & bit, 0, "its SPI was acknowledged");
        });
    }
}
