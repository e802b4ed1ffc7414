// SPDX-License-Identifier: MIT OR Apache-2.0
//! The memory link between the program `victim` and the guest that attacks it, as both see it: link 0 of the board `qemu-virt`.

/// Its registers.
pub const REGISTERS: u64 = 0x0C00_0000;
/// Its memory: the words below, of 64 bits. The victim writes them. They stay when it starts again.
const MEMORY: u64 = 0x0C10_0000;

/// The number of the victim's life. The victim writes it in the first period of each life.
pub const ALIVE: u64 = MEMORY;
/// The value of the counter in that period.
pub const ALIVE_AT: u64 = MEMORY + 8;
/// How often the victim has looked at all of its pages in this life, and the life's number from bit [`LIFE_SHIFT`] on.
pub const SWEEPS: u64 = MEMORY + 16;
/// How often it has found a page that was not as before, in all lives.
pub const CHANGES: u64 = MEMORY + 24;
// Behind it the victim has words of its own.

/// In [`SWEEPS`].
pub const LIFE_SHIFT: u32 = 32;
