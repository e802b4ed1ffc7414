// SPDX-License-Identifier: MIT OR Apache-2.0
//! Copies of the registers of vCPUs at their exits, compared with those at their next entries.

use crate::fake::{self, Register};
use crate::tests::guest::GuestCpu;
use std::collections::HashMap;

/// Registers that only the vCPU itself writes, and a reset sets to zero.
const OWN: &[Register] = &[
    Register::TPIDR_EL0,
    Register::TPIDRRO_EL0,
    Register::TPIDR_EL1,
    Register::TTBR0_EL1,
    Register::TTBR1_EL1,
    Register::TCR_EL1,
    Register::MAIR_EL1,
    Register::CONTEXTIDR_EL1,
    Register::FAR_EL1,
    Register::PAR_EL1,
    Register::SP_EL0,
    Register::SP_EL1,
    Register::CNTKCTL_EL1,
    Register::CSSELR_EL1,
    Register::S3_4_C12_C1_1,
    Register::S3_3_C4_C4_0,
];
/// General registers that no result is written to, by the exits of this fuzzer that have a known form.
const KEPT: std::ops::Range<usize> = 8..31;

/// The registers of one vCPU at its last exit.
struct Left {
    system: Vec<u64>,
    vectors: [u128; 32],
    general: [u64; 31],
    /// Whether the syndrome may have named any general register.
    is_general_open: bool,
}

/// The registers of all vCPUs at their last exits, by guest and vCPU.
#[derive(Default)]
pub struct Shadow {
    left: HashMap<(u8, u8), Left>,
    marks: u64,
}

impl Shadow {
    /// Checks at an entry that the registers are those of the last exit, or those after a reset.
    pub fn check(&mut self, cpu: &GuestCpu<'_>) {
        let Some(left) = self.left.get(&(cpu.guest, cpu.vcpu)) else {
            return;
        };
        let system: Vec<u64> = OWN.iter().map(|&register| cpu.get(register)).collect();
        let vectors = fake::with(|machine| machine.cores[cpu.core].vectors);
        if cpu.get(Register::TPIDR_EL0) == 0 {
            assert!(
                system.iter().all(|&value| value == 0),
                "system registers after a reset: {system:x?}"
            );
            assert_eq!(vectors, [0; 32], "vector registers after a reset");
            assert_eq!(
                cpu.registers.x[KEPT], [0; 31][KEPT],
                "general registers after a reset"
            );
            return;
        }
        assert_eq!(
            system, left.system,
            "system registers of vCPU {} of guest {}",
            cpu.vcpu, cpu.guest
        );
        assert_eq!(
            vectors, left.vectors,
            "vector registers of vCPU {} of guest {}",
            cpu.vcpu, cpu.guest
        );
        if !left.is_general_open {
            assert_eq!(
                cpu.registers.x[KEPT], left.general[KEPT],
                "general registers"
            );
        }
    }

    /// Writes new values to all of them.
    pub fn renew(&mut self, cpu: &mut GuestCpu<'_>) {
        self.marks += 1;
        let mark = u64::from(cpu.guest + 1) << 56 | u64::from(cpu.vcpu) << 48 | self.marks;
        for &register in OWN {
            cpu.set(register, mark);
        }
        for n in KEPT {
            cpu.registers.x[n] = mark + n as u64;
        }
        fake::with(|machine| machine.cores[cpu.core].vectors = [u128::from(mark); 32]);
    }

    /// Copies the registers at an exit.
    pub fn keep(&mut self, cpu: &GuestCpu<'_>, is_general_open: bool) {
        let left = Left {
            system: OWN.iter().map(|&register| cpu.get(register)).collect(),
            vectors: fake::with(|machine| machine.cores[cpu.core].vectors),
            general: cpu.registers.x,
            is_general_open,
        };
        self.left.insert((cpu.guest, cpu.vcpu), left);
    }
}
