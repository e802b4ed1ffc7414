// SPDX-License-Identifier: MIT OR Apache-2.0
//! The machine as this program uses it: a minimal kernel for tests of the machine.
//!
//! Each CPU runs at EL1 with the MMU on and memory identity mapped. Interrupts are masked except
//! where a test unmasks them. The whole machine belongs to this program, so it accesses registers and devices
//! freely; a wrong access ends in a failure with its address.

pub mod alias;
pub mod bootargs;
pub mod cards;
pub mod cpus;
pub mod entry;
pub mod gic;
pub mod interrupts;
pub mod link;
pub mod memory;
pub mod mmio;
pub mod part;
pub mod psci;
pub mod random;
pub mod sysreg;
pub mod time;
pub mod traps;
pub mod uart;
pub mod virtio;

/// Most CPUs that this program starts.
pub const MAX_CPUS: usize = 8;
