// SPDX-License-Identifier: MIT OR Apache-2.0
//! Decodes a guest's exceptions to EL2, and decides how they are emulated.
//!
//! Everything here is a pure function of register values that the hypervisor has read, so that the meaning of each bit
//! is tested on the host. Sources: Arm Architecture Reference Manual (DDI 0487), section D24.2 for registers, D1.3 for
//! the exception model.

mod abort;
mod debug;
mod external_abort;
mod fault_address;
mod gpr;
mod idregs;
mod instruction;
mod report;
mod syndrome;
mod sysreg;

pub use abort::{AccessSize, DataAccess, is_big_endian};
pub use debug::{DebugAction, MDSCR_WRITABLE, debug_register};
pub use external_abort::external_abort;
pub use fault_address::fault_ipa;
pub use gpr::Gpr;
pub use idregs::guest_id_register;
pub use instruction::is_hint;
pub use report::{Effect, FaultReport, Place};
pub use syndrome::{Exception, Hidden, Syndrome};
pub use sysreg::{SysReg, SysRegAccess};
