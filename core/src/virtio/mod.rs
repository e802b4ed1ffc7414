// SPDX-License-Identifier: MIT OR Apache-2.0
//! Virtio devices that connect two guests: what one transmits, the other receives (Virtio 1.2, OASIS).
//!
//! Each end of a link is a network card or a socket device ([`Kind`]), with registers in memory ([`Device`], section 4.2). A frame that a guest transmits is
//! copied by EL2 to a buffer that its peer has offered ([`Direction`]); no guest sees the other's memory. The work is charged
//! to the guest that transmits: its vCPUs do it, in small pieces of work between which the core looks for interrupts, before they enter the guest.
//!
//! Guests are bad input. What a guest writes to its own memory is read once, checked, and then used; every walk has a bound;
//! every access is checked against the guest's memory ([`Memories`]). A driver that breaks the rules stops its own device
//! until it resets it.

mod answer;
mod claim;
mod cursor;
mod device;
mod direction;
mod fault;
mod frame;
mod header;
mod kept;
mod kind;
#[cfg(test)]
pub(crate) mod link_for_tests;
mod looks;
#[cfg(test)]
#[cfg(loom)]
mod loom_answer_tests;
#[cfg(test)]
#[cfg(loom)]
mod loom_tests;
mod memory;
mod moved;
mod packet;
mod precedence;
mod queue;
mod registers;
#[cfg(test)]
pub(crate) mod sockets_for_tests;
#[cfg(test)]
#[cfg(not(loom))]
mod tests;
mod turn;

pub use device::{Device, Effect};
pub use direction::{Direction, Step};
pub use kind::Kind;
pub use memory::{End, Memories, STRETCH};
pub use precedence::Precedence;
pub use registers::FRAME_SIZE;
pub use turn::Turn;
