// SPDX-License-Identifier: MIT OR Apache-2.0
//! The machine as this program uses it: just enough of a kernel to test what is under it.
//!
//! Each CPU runs at EL1 with the MMU on, memory mapped as it is. Interrupts are masked except
//! where a test says so. The whole machine belongs to this program, so registers and devices are
//! accessed freely; a wrong access ends in a failure that says where.

pub mod alias;
pub mod bootargs;
pub mod cpus;
pub mod entry;
pub mod gic;
pub mod interrupts;
pub mod memory;
pub mod mmio;
pub mod part;
pub mod psci;
pub mod random;
pub mod sysreg;
pub mod time;
pub mod traps;
pub mod uart;

/// Most CPUs this program starts.
pub const MAX_CPUS: usize = 8;
