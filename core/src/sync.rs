// SPDX-License-Identifier: MIT OR Apache-2.0
//! Atomics: those of loom in its tests, which explore interleavings, and those of `core` otherwise.

#[cfg(loom)]
pub use loom::sync::atomic;

#[cfg(not(loom))]
pub use core::sync::atomic;

/// A constructor that is `const`, except under loom, whose atomics have no `const` constructor.
macro_rules! constructor {
    ($(#[$meta:meta])* $vis:vis fn new($($argument:ident: $type:ty)?) -> Self $body:block) => {
        $(#[$meta])*
        #[cfg(not(loom))]
        $vis const fn new($($argument: $type)?) -> Self $body

        $(#[$meta])*
        #[cfg(loom)]
        $vis fn new($($argument: $type)?) -> Self $body
    };
}

/// An array of atomics with the same first value.
#[cfg(not(loom))]
macro_rules! atomics {
    ($value:expr) => {
        [const { $value }; _]
    };
}

#[cfg(loom)]
macro_rules! atomics {
    ($value:expr) => {
        core::array::from_fn(|_| $value)
    };
}
