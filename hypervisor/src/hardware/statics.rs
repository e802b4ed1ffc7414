// SPDX-License-Identifier: MIT OR Apache-2.0
//! Statics of which there is one for each machine. Here that is an ordinary static; on a host each test has its own
//! (`fake/statics.rs`).

/// Declares statics of which there is one for each machine.
macro_rules! per_machine {
    ($($(#[$meta:meta])* $visibility:vis static $name:ident: $type:ty = $initial:expr;)*) => {
        $($(#[$meta])* $visibility static $name: $type = $initial;)*
    };
    ($($(#[$meta:meta])* $visibility:vis static mut $name:ident: $type:ty = $initial:expr;)*) => {
        $($(#[$meta])* $visibility static mut $name: $type = $initial;)*
    };
}

/// The address of a `static mut` declared by [`per_machine!`].
macro_rules! place {
    ($name:ident) => {
        &raw mut $name
    };
}

pub(crate) use {per_machine, place};
