// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which cores are on, as all cores see it. `instance/power.rs` has what a core does about that.

use spumone_core::power::{Limits, Supply, Wish};

/// What the description says about power, and which cores are wanted.
pub struct Power {
    /// `None`: all cores stay on.
    pub described: Option<spumone_config::packed::Power>,
    /// Which cores may be off.
    pub limits: Limits,
    /// The cores that are to be on.
    pub wish: Wish,
    /// The cores that have turned themselves off.
    pub supply: Supply,
    /// The guests whose vCPUs migrate; bit n for guest n.
    pub moving: u32,
}
