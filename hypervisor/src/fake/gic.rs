// SPDX-License-Identifier: MIT OR Apache-2.0
//! The state of a GICv3: for each interrupt whether it is enabled, pending and active, its priority and its route.

use super::with;
use spumone_config::packed::{Spi, Trigger};
use spumone_config::{IntId, PhysAddr};
use spumone_core::schedule::band_priority;

/// An error of the GIC's setup.
pub type GicError = &'static str;

/// Words of 32 interrupts in the distributor. The first one, of SGIs and PPIs, is not used.
pub const WORDS: usize = 32;

/// 32 interrupts.
#[derive(Clone, Debug, Default)]
pub struct Bank {
    /// The enabled ones.
    pub enabled: u32,
    /// Those made pending by an edge, or by software.
    pub latched: u32,
    /// The levels of their lines.
    pub lines: u32,
    /// The active ones.
    pub active: u32,
    /// The edge-triggered ones.
    pub edges: u32,
    /// Their priorities.
    pub priority: [u8; 32],
}

impl Bank {
    /// Those that are pending; `lines` are the levels of lines.
    pub fn pending(&self, lines: u32) -> u32 {
        self.latched | lines & !self.edges
    }

    /// The one of the highest priority among `candidates`, as (priority, bit).
    pub fn highest_priority(&self, candidates: u32) -> Option<(u8, u16)> {
        (0..32)
            .filter(|bit| candidates >> bit & 1 != 0)
            .map(|bit| (self.priority[bit as usize], bit))
            .min()
    }
}

/// The distributor.
pub struct Gic {
    /// First address of the distributor.
    pub distributor: u64,
    /// First address of the redistributors.
    pub redistributors: u64,
    /// SPIs, from word 1 on.
    pub spis: Vec<Bank>,
    /// `GICD_IROUTER`.
    pub routes: Vec<u64>,
    /// Highest word with an SPI that was ever enabled.
    pub used_words: usize,
}

impl Gic {
    /// A GIC after a reset.
    pub fn new(distributor: u64, redistributors: u64) -> Self {
        Self {
            distributor,
            redistributors,
            spis: vec![Bank::default(); WORDS],
            routes: vec![0; 32 * WORDS],
            used_words: 0,
        }
    }

    /// The bank of an SPI, and its bit.
    pub fn spi(&mut self, interrupt: u16) -> (&mut Bank, u32) {
        assert!(
            (32..1020).contains(&interrupt),
            "INTID {interrupt} is no SPI"
        );
        let word = usize::from(interrupt) / 32;
        (&mut self.spis[word], 1 << (interrupt % 32))
    }

    /// Sets the level of an SPI's line.
    pub fn set_line(&mut self, interrupt: u16, high: bool) {
        let (bank, bit) = self.spi(interrupt);
        let was_high = bank.lines & bit != 0;
        if high {
            bank.lines |= bit;
        } else {
            bank.lines &= !bit;
        }
        if high && !was_high && bank.edges & bit != 0 {
            bank.latched |= bit;
        }
    }
}

/// Initializes distributor and redistributors, as `hardware` does.
///
/// # Safety
///
/// As on the machine.
pub unsafe fn initialize_gic(
    distributor: PhysAddr,
    redistributor: PhysAddr,
    cores: usize,
    private_priorities: &[(IntId, u8)],
    spis: &[Spi],
) -> Result<(), GicError> {
    with(|machine| {
        if (distributor.0, redistributor.0) != (machine.gic.distributor, machine.gic.redistributors)
        {
            return Err("there is no GIC at this address");
        }
        for core in machine.cores.iter_mut().take(cores) {
            for &(interrupt, priority) in private_priorities {
                core.private.priority[interrupt.index()] = priority;
                core.private.enabled |= 1 << interrupt.0;
            }
        }
        for spi in spis {
            let (bank, bit) = machine.gic.spi(spi.physical.0);
            bank.enabled &= !bit;
            bank.priority[spi.physical.index() % 32] = band_priority(spi.band).0;
            match spi.trigger {
                Trigger::Edge => bank.edges |= bit,
                Trigger::Level => bank.edges &= !bit,
            }
        }
        Ok(())
    })
}
