// SPDX-License-Identifier: MIT OR Apache-2.0
//! The unit of time: one instruction of the machine on which the testbed measures loads.

use spumone_core::schedule::Ticks;

/// Instructions, and ticks, in a virtual microsecond of each core, as in `spm bench lhp`.
pub const TICKS_PER_US: u64 = 100;
/// Ticks in a virtual second.
pub const TICKS_PER_SECOND: u64 = TICKS_PER_US * 1_000_000;
/// The same as the frequency of the system counter.
pub const FREQUENCY_HZ: u32 = TICKS_PER_SECOND as u32;

/// Ticks of so many microseconds.
pub const fn us(microseconds: u64) -> Ticks {
    Ticks(microseconds * TICKS_PER_US)
}
