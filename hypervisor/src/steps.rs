// SPDX-License-Identifier: MIT OR Apache-2.0
//! Steps of a migration and of local memory, for the exact clock (`testbed/README.md`, "Marks"): it counts the instructions from the exit
//! to each, for the figures `migration` and `integrity`.
//!
//! A step is one instruction without effect, which is always compiled in, so the measured program is the one that is
//! used. Three steps, those of the switch, are also executed between an interrupt of a guest of a higher band and that
//! guest's entry.

/// A step; its value is the number of its mark.
#[derive(Clone, Copy)]
#[repr(u16)]
pub enum Step {
    /// Another core has parked a vCPU, or a time slice has ended: the core is about to fetch.
    Look = 0xff00,
    /// The core has claimed a vCPU.
    Take,
    /// The claimed vCPU has this core as its host core, whose scheduler has it.
    Taken,
    /// The registers of the loaded vCPU are about to be saved.
    Save,
    /// A vCPU whose registers are saved is about to be parked.
    Park,
    /// The vCPU is parked.
    Parked,
    /// Another core is notified.
    Notified,
    /// No vCPU is loaded, and one is about to be.
    Load,
    /// The vCPU is loaded.
    Loaded,
    /// A guest that runs from local memory has accessed a page that is not there.
    PageWanted,
    /// A page was written back to main memory.
    PageWrittenBack,
    /// A page was brought to local memory.
    PageBrought,
}

/// A point in time that the clock lists each time; its value is the number of its mark.
#[derive(Clone, Copy)]
#[repr(u16)]
pub enum Mark {
    /// All protected memory of a guest has been checked once.
    RoundEnded = 0xfe00,
    /// A core goes off.
    CoreOff,
    /// A core that is off is wanted again.
    CoreOn,
    /// A core that is off is about to have the firmware turn it off.
    TurnOff,
    /// The firmware has turned it on again.
    TurnedOn,
}

/// Executes the instruction of a mark.
macro_rules! mark {
    ($mark:ident) => {
        $crate::hardware::pass_step!($crate::steps::Mark::$mark as u16)
    };
}

/// Executes the instruction of a step.
macro_rules! step {
    ($step:ident) => {
        $crate::hardware::pass_step!($crate::steps::Step::$step as u16)
    };
}

pub(crate) use {mark, step};
