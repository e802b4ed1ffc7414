// SPDX-License-Identifier: MIT OR Apache-2.0
//! Access to the machine: only this folder has assembly, and pointers made of physical addresses.
//!
//! The rest of the crate reaches the machine by the functions and macros named here. They decide nothing. Those
//! on frequent paths are inlined into their callers.

mod block;
mod cache;
mod death;
mod firmware;
mod floating_point;
mod gic;
mod guest;
mod image_header;
mod memory;
mod mmio;
mod power;
mod registers;
pub mod running_guest;
mod sha256;
mod stacks;
mod statics;
mod steps;
mod translation;
mod trust;
mod vectors;
mod wait;

pub use arm_pl011_uart::Uart;
pub use cache::{
    clear_memory, fetch_memory, fetch_payload, finish_loading, payload_bytes, publish_pages,
    wait_until_visible, write_memory_byte,
};
pub use firmware::{ask_firmware, mitigate, run_for_ever, start_core, system_off};
pub use floating_point::{load_vectors, store_vectors};
pub use gic::{GicError, initialize_gic};
pub use guest::enter;
pub use memory::{activate_tables, bundle_start, own_memory, own_sections, text_start};
pub use mmio::{
    memory_bytes, read_u32, read_word_of_memory, uart_at, words_of_memory, write_if_there,
    write_memory, write_u32, write_u64,
};
pub use power::{TurnOn, turn_off, turn_on};
pub(crate) use registers::{
    dsb_ish, dsb_ishst, dsb_sy, isb, read_register, write_own_register, write_register,
};
pub use sha256::{
    compress, copy_and_hash, copy_and_hash_memory, enable_vectors, has_sha256, hash_memory,
};
pub(crate) use statics::{per_machine, place};
pub(crate) use steps::pass_step;
pub use translation::{forget_both_stages, forget_guest_translations, translate_for_kernel_read};
pub use trust::trust;
pub use vectors::set_vectors;
pub use wait::{halt, wait_for_interrupt};
