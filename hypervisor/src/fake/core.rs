// SPDX-License-Identifier: MIT OR Apache-2.0
//! A core: its registers, its private interrupts, its TLB.

use super::firmware::{CorePower, Firmware};
use super::gic::Bank;
use super::registers::Register;
use spumone_core::mitigation::Workaround;
use std::collections::HashMap;

/// Five bits of priority, four list registers: as QEMU's.
const VTR: u64 = 4 << 29 | 4 << 26 | (LIST_REGISTERS as u64 - 1);
/// List registers of a core.
pub const LIST_REGISTERS: usize = 4;
/// Ticks of the system counter in a second.
pub const FREQUENCY: u64 = 62_500_000;

/// What a core has cached of the translations of one VMID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cached {
    /// The guest's own number of the vCPU whose stage 1 it is.
    pub vcpu: u64,
    /// The stage 2 tables.
    pub root: u64,
    /// The number of the guest's life, and how often the vCPU was turned off.
    pub life: (u32, u32),
}

/// A core.
pub struct Core {
    values: Vec<u64>,
    /// V0 to V31.
    pub vectors: [u128; 32],
    /// SGIs and PPIs.
    pub private: Bank,
    /// Interrupts acknowledged whose priority was not dropped yet, with their priorities, the highest last.
    pub running_priorities: Vec<(u16, u8)>,
    /// The TLB, by VMID: stage 1.
    pub cached: HashMap<u64, Cached>,
    /// The TLB, by VMID and page: the leaves of stage 2.
    pub cached_leaves: HashMap<(u64, u64), u64>,
    /// Number of entries to guests.
    pub entries: u64,
    /// Times that the core slept.
    pub sleeps: u64,
    /// Whether the firmware has it on.
    pub power: CorePower,
    /// Its firmware.
    pub firmware: Firmware,
    /// The workarounds of the firmware that were called.
    pub mitigations: Vec<Workaround>,
}

impl Core {
    /// A core after a reset: a Cortex-A53 with FEAT_RAS and FEAT_XNX.
    pub fn new(mpidr: u64) -> Self {
        let mut core = Self {
            values: vec![0; Register::COUNT],
            vectors: [0; 32],
            private: Bank::default(),
            running_priorities: Vec::new(),
            cached: HashMap::new(),
            cached_leaves: HashMap::new(),
            entries: 0,
            sleeps: 0,
            power: CorePower::On,
            firmware: Firmware::new([-1; 3]),
            mitigations: Vec::new(),
        };
        for (register, value) in [
            (Register::MPIDR_EL1, mpidr),
            (Register::MIDR_EL1, 0x410F_D034),
            (Register::CNTFRQ_EL0, FREQUENCY),
            (Register::ICH_VTR_EL2, VTR),
            // 64 byte lines, 64 bytes by DC ZVA.
            (Register::CTR_EL0, 4 << 16 | 4),
            (Register::DCZID_EL0, 4),
            // 40 bits of address, all granules.
            (Register::ID_AA64MMFR0_EL1, 0b0010),
            (Register::ID_AA64MMFR1_EL1, 1 << 28 | 1 << 20),
            (Register::ID_AA64PFR0_EL1, 1 << 28 | 1 << 24 | 0x2222),
            (Register::S3_0_C0_C4_0, 1 << 28 | 1 << 24 | 0x2222),
            (Register::S3_0_C0_C7_0, 0b0010),
            (Register::S3_0_C0_C7_1, 1 << 28 | 1 << 20),
            (Register::MDCR_EL2, 6),
        ] {
            core.set(register, value);
        }
        core
    }

    /// The core loses its power: its registers have other values afterwards, except those that cannot be written.
    pub fn lose_power(&mut self) {
        const LOST: u64 = 0xBAD0_BAD0_BAD0_BAD0;
        let kept = |register: &Register| {
            let name = format!("{register:?}");
            let fixed = [
                "ID_",
                "S3_0_C0_C",
                "MIDR_EL1",
                "MPIDR_EL1",
                "CNTFRQ_EL0",
                "CNTPCT_EL0",
                "ICH_VTR_EL2",
                "CTR_EL0",
                "DCZID_EL0",
                "MDCR_EL2",
            ];
            fixed.iter().any(|it| name.starts_with(it))
        };
        for &register in Register::ALL.iter().filter(|it| !kept(it)) {
            self.set(register, LOST);
        }
        self.vectors = [u128::from(LOST); 32];
        self.running_priorities.clear();
        // TF-A's `gicv3_rdistif_init`, at `CPU_ON`: SGIs and PPIs are disabled, with one priority. What was pending may be lost.
        self.private = Bank {
            lines: self.private.lines,
            edges: self.private.edges,
            ..Bank::default()
        };
        self.power = CorePower::Off;
    }

    /// The value of a register.
    pub fn get(&self, register: Register) -> u64 {
        self.values[register as usize]
    }

    /// Sets a register.
    pub fn set(&mut self, register: Register, value: u64) {
        self.values[register as usize] = value;
    }

    /// List register `index`.
    pub fn list_register(&self, index: usize) -> u64 {
        self.values[Register::ICH_LR0_EL2 as usize + index]
    }

    /// Sets a list register.
    pub fn set_list_register(&mut self, index: usize, value: u64) {
        self.values[Register::ICH_LR0_EL2 as usize + index] = value;
    }
}
