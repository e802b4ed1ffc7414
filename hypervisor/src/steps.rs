// SPDX-License-Identifier: MIT OR Apache-2.0
//! Steps of a move between cores, for the exact clock (`testbed/README.md`, "Marks"): it counts the instructions from the
//! entry to EL2 to each, which makes the figure `migration`.
//!
//! A step is one instruction that does nothing on any core, so the program that is measured is the one that runs. Three,
//! those of the switch, are also between an interrupt of a more urgent guest and that guest.

/// A step; its value is the number of its mark.
#[derive(Clone, Copy)]
#[repr(u16)]
pub enum Step {
    /// Other cores have parked a vCPU, or a turn is over: the core is about to choose.
    Look = 0xff00,
    /// It has claimed a vCPU.
    Take,
    /// The vCPU is settled, and in the run queue.
    Taken,
    /// A vCPU of this core has to make room, and is about to be saved.
    Save,
    /// A vCPU of this core is about to be parked; its registers are saved.
    Park,
    /// It is parked.
    Parked,
    /// Another core is told.
    Notified,
    /// The core holds nobody's registers, and is about to load a vCPU's.
    Load,
    /// They are loaded.
    Loaded,
}

/// Passes a step.
macro_rules! step {
    ($step:ident) => {
        $crate::hardware::pass_step!($crate::steps::Step::$step as u16)
    };
}

pub(crate) use step;
