// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the GIC is told of an SPI at start.

use spumone_config::IntId;
use spumone_config::packed::Trigger;

/// What is set up for one interrupt at start.
#[derive(Clone, Copy, Debug)]
pub struct SpiSetup {
    /// Which.
    pub interrupt: IntId,
    /// Its GIC priority.
    pub priority: u8,
    /// How it is signalled.
    pub trigger: Trigger,
}
