// SPDX-License-Identifier: MIT OR Apache-2.0
//! Statics of which each machine has one: here there is one machine. A test on a host has one of its own.

/// Declares statics of the machine.
macro_rules! per_machine {
    ($($(#[$meta:meta])* $visibility:vis static $name:ident: $type:ty = $initial:expr;)*) => {
        $($(#[$meta])* $visibility static $name: $type = $initial;)*
    };
    ($($(#[$meta:meta])* $visibility:vis static mut $name:ident: $type:ty = $initial:expr;)*) => {
        $($(#[$meta])* $visibility static mut $name: $type = $initial;)*
    };
}

/// The address of a `static mut` of the machine.
macro_rules! place {
    ($name:ident) => {
        &raw mut $name
    };
}

pub(crate) use {per_machine, place};
