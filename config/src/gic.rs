// SPDX-License-Identifier: MIT OR Apache-2.0
//! The GICv3 as every board has it: sizes of its frames, and what each private interrupt is for.

use crate::types::IntId;

/// Bytes of one frame of registers (IHI 0069, section 12.10).
pub const FRAME_SIZE: u64 = 0x1_0000;
/// Bytes of the distributor: one frame.
pub const DISTRIBUTOR_SIZE: u64 = FRAME_SIZE;
/// Bytes of the redistributor of one core: `RD_base` and `SGI_base` (IHI 0069, section 12.10).
pub const REDISTRIBUTOR_SIZE: u64 = 2 * FRAME_SIZE;
/// From a redistributor to its frame of SGIs and PPIs, `SGI_base`.
pub const SGI_FRAME: u64 = FRAME_SIZE;

/// The maintenance interrupt of the virtual interface (Base System Architecture, section 3.8).
pub const MAINTENANCE: IntId = IntId(25);
/// The physical timer of EL2, `CNTHP` (Base System Architecture, section 3.8).
pub const HYPERVISOR_TIMER: IntId = IntId(26);
/// The virtual timer of EL1, `CNTV` (Base System Architecture, section 3.8).
pub const VIRTUAL_TIMER: IntId = IntId(27);
/// The physical timer of EL1, `CNTP` (Base System Architecture, section 3.8).
pub const PHYSICAL_TIMER: IntId = IntId(30);
