// SPDX-License-Identifier: MIT OR Apache-2.0
//! Statics of which there is one for each machine. On a host each thread has its own machine.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::cell::RefCell;
use std::collections::HashMap;
use std::ops::Deref;

/// A static with a copy for the machine of each thread.
pub struct PerMachine<T: 'static> {
    initial: T,
}

// SAFETY: `initial` is only copied from; references are to the copy of the calling thread.
unsafe impl<T> Sync for PerMachine<T> {}

struct Copy {
    address: *mut u8,
    layout: Layout,
}

thread_local! {
    static COPIES: RefCell<HashMap<usize, Copy>> = RefCell::new(HashMap::new());
}

impl<T: 'static> PerMachine<T> {
    /// A static with the initial value `initial`, a constant that owns no resources.
    pub const fn new(initial: T) -> Self {
        Self { initial }
    }

    /// This thread's copy.
    pub fn pointer(&'static self) -> *mut T {
        let key = (&raw const *self).addr();
        COPIES.with_borrow_mut(|copies| {
            let copy = copies.entry(key).or_insert_with(|| self.copy());
            copy.address.cast()
        })
    }

    fn copy(&'static self) -> Copy {
        // One byte more, since a type may have size 0.
        let (layout, _) = match Layout::new::<T>().extend(Layout::new::<u8>()) {
            Ok(layout) => layout,
            Err(error) => panic!("{error}"),
        };
        // SAFETY: the size is not zero.
        let address = unsafe { alloc(layout) };
        if address.is_null() {
            handle_alloc_error(layout);
        }
        // SAFETY: both are valid for a `T`. The original is a constant that owns no resources, and is only copied from,
        // so a copy of its bytes is a valid value.
        unsafe { (&raw const self.initial).copy_to_nonoverlapping(address.cast(), 1) };
        Copy { address, layout }
    }
}

impl<T: 'static> Deref for PerMachine<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: a `PerMachine` is always a static (`per_machine!`), so it lives for ever.
        let this: &'static Self = unsafe { (&raw const *self).as_ref_unchecked() };
        // SAFETY: the copy lives until `forget`; the instances that use it have been dropped by then.
        unsafe { &*this.pointer() }
    }
}

/// Frees the statics of this thread's machine, which must not be used any more.
pub fn forget() {
    COPIES.with_borrow_mut(|copies| {
        for (_, copy) in copies.drain() {
            // SAFETY: allocated above, with this layout. The value owns no resources (`no_std`, no allocation).
            unsafe { dealloc(copy.address, copy.layout) };
        }
    });
}

/// Declares statics of which there is one for each machine.
macro_rules! per_machine {
    ($($(#[$meta:meta])* $visibility:vis static $name:ident: $type:ty = $initial:expr;)*) => {
        $(
            $(#[$meta])*
            $visibility static $name: $crate::fake::PerMachine<$type> = $crate::fake::PerMachine::new($initial);
        )*
    };
    ($($(#[$meta:meta])* $visibility:vis static mut $name:ident: $type:ty = $initial:expr;)*) => {
        $crate::hardware::per_machine! {
            $($(#[$meta])* $visibility static $name: $type = $initial;)*
        }
    };
}

/// The address of a `static mut` declared by [`per_machine!`].
macro_rules! place {
    ($name:ident) => {
        $name.pointer()
    };
}

pub(crate) use {per_machine, place};
