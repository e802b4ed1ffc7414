// SPDX-License-Identifier: MIT OR Apache-2.0
//! One terminal for all guests and the hypervisor.
//!
//! Output: a guest's vCPU writes a byte to its virtual UART ([`crate::vuart`]); its core pushes the byte into that
//! guest's [`OutputRing`] and asks for the [`UartToken`]; the core that has the token drains all rings through the
//! [`Mux`], which makes tagged lines of them, into the UART. No core waits for another one, nor for the UART. Colours,
//! and a prompt that is redrawn below the lines of others, are made by the program that shows the console (`spm`),
//! which separates the stream: see [`mod@format`].
//!
//! Input: the core that handles the UART's interrupt passes each byte to its [`InputSwitch`], which passes it to the
//! guest with the focus, or recognises a command to the hypervisor.
//!
//! Cores share only [`Console`], which consists of atomics. The `Mux` is plain state and belongs to the core with the
//! token; the hypervisor keeps it in a cell whose access needs a `&mut UartToken`.

mod answer;
mod attendance;
pub mod format;
mod input;
mod mux;
mod notice;
mod ring;
mod sink;
#[cfg(test)]
#[cfg(not(loom))]
mod tests;
mod token;
mod waiting;

pub use answer::{Answer, Answers, GuestState, Machine, Off, PastLife};
pub use attendance::{Attendance, Duty, LOOK_US, Left};
pub use input::{InputEffect, InputSwitch};
pub use mux::Mux;
pub use notice::{Notice, Notices, Subject};
pub use ring::{Full, OutputRing};
pub use sink::{Drained, Sink};
pub use token::{Served, UartSlot, UartToken};

use crate::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use core::fmt;
use spumone_config::types::{GuestId, MAX_GUESTS, MAX_PCPUS, PcpuId};
use waiting::Waiting;

/// Slots of each source's ring.
const RING_SLOTS: usize = 1024;
/// All sources: the guests, then the hypervisor's instance on each core, then its answers to the operator.
const SOURCES: usize = MAX_GUESTS + MAX_PCPUS + 1;
/// The index of the hypervisor's first source.
const FIRST_OF_HYPERVISOR: usize = MAX_GUESTS;
/// The index of the answers to the operator, which are printed before all else.
const OPERATOR: usize = MAX_GUESTS + MAX_PCPUS;

/// The source of a byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// A guest, on any of its vCPUs.
    Guest(GuestId),
    /// The hypervisor's own messages; each core's instance has its own lines.
    Hypervisor(PcpuId),
    /// The hypervisor's answers to the operator, written by the core that reads the keyboard. They are printed before
    /// all else.
    Operator,
}

impl Source {
    /// Index in tables of [`SOURCES`]; an id out of range counts as the last of its kind.
    fn index(self) -> usize {
        match self {
            Self::Guest(guest) => guest.index().min(MAX_GUESTS - 1),
            Self::Hypervisor(core) => FIRST_OF_HYPERVISOR + core.index().min(MAX_PCPUS - 1),
            Self::Operator => OPERATOR,
        }
    }
}

/// The part of the console that cores share: the rings, the token's slot and requests to the [`Mux`].
pub struct Console {
    rings: [OutputRing<RING_SLOTS>; SOURCES],
    waiting: Waiting,
    slot: UartSlot,
    /// The guest with the focus. Written by the core that reads the keyboard, read by all. Relaxed: it publishes
    /// nothing.
    focus: AtomicU8,
    /// Bit n is set if the stream of source n has ended.
    ended: AtomicU32,
}

/// How many bytes of each source had been released at some time.
pub struct Marks([u64; SOURCES]);

impl Console {
    constructor! {
        /// A console without output, with the focus on `GuestId(0)`.
        pub fn new() -> Self {
            Self {
                rings: atomics!(OutputRing::new()),
                waiting: Waiting::new(),
                slot: UartSlot::new(),
                focus: AtomicU8::new(0),
                ended: AtomicU32::new(0),
            }
        }
    }

    /// Bytes of output that `source` may push now.
    pub fn room(&self, source: Source) -> usize {
        self.rings[source.index()].room()
    }

    /// Takes one byte of output. Call [`Console::serve`] after one or more pushes. It is printed at the end of
    /// its line; if the guest has the focus, at once.
    ///
    /// # Errors
    /// [`Full`] when the source has [`OutputRing::CAPACITY`] bytes waiting.
    pub fn push(&self, source: Source, byte: u8) -> Result<(), Full> {
        let source = source.index();
        self.rings[source].push(byte, self.is_focused(source))?;
        self.waiting.add(source);
        Ok(())
    }

    /// A writer of the hypervisor's own messages on `core`, to be used only by that core.
    pub const fn log(&self, core: PcpuId) -> Log<'_> {
        Log {
            console: self,
            core,
        }
    }

    /// Gives the focus to `guest`.
    pub fn set_focus(&self, guest: GuestId) {
        self.focus.store(guest.0, Ordering::Relaxed);
        // An unfinished line, such as a prompt, is printed at once.
        let source = Source::Guest(guest).index();
        self.rings[source].release();
        self.waiting.add(source);
    }

    /// The guest with the focus.
    pub fn focus(&self) -> GuestId {
        GuestId(self.focus.load(Ordering::Relaxed))
    }

    fn is_focused(&self, source: usize) -> bool {
        source == usize::from(self.focus.load(Ordering::Relaxed))
    }

    /// To be called about ten times a second, on one core, followed by [`Console::serve`]: an unfinished line that has
    /// not grown since the last call is printed as it is.
    pub fn flush_idle(&self) {
        for (source, ring) in self.rings.iter().enumerate() {
            if ring.release_if_idle() {
                self.waiting.add(source);
            }
        }
    }

    /// `source` has stopped: once its ring is drained, the rest of its last line is printed, and its next byte starts a
    /// new line.
    pub fn end_stream(&self, source: Source) {
        let source = source.index();
        self.rings[source].release();
        self.ended.fetch_or(1 << source, Ordering::Release);
        self.waiting.add(source);
    }

    /// Whether an answer to the operator, or another message of the hypervisor, is not yet printed.
    pub fn has_message(&self) -> bool {
        let rings = self.rings.iter().skip(FIRST_OF_HYPERVISOR);
        rings.into_iter().any(OutputRing::is_ready)
    }

    /// How many bytes of each source have been released until now.
    pub fn marks(&self) -> Marks {
        Marks(core::array::from_fn(|source| self.rings[source].released()))
    }

    /// Whether all bytes that had been released at `marks` are printed.
    pub fn has_printed(&self, marks: &Marks) -> bool {
        let mut rings = self.rings.iter().zip(&marks.0);
        rings.all(|(ring, &released)| ring.has_read(released))
    }

    /// Whether output waits and no core writes it. One relaxed load, for use before each entry; if true, call
    /// [`Console::serve`].
    pub fn work_left(&self) -> bool {
        self.slot.work_left()
    }

    /// Leaves the output that was pushed to the next core that serves: the one with the token, or the first that finds
    /// [`Console::work_left`].
    pub fn ask(&self) {
        self.slot.ask();
    }

    /// Writes the output that waits, if the token is free. `drain` gets the token and calls [`Mux::drain`]
    /// with it once; it is called at most four times, which bounds the time spent.
    ///
    /// A caller that gets another result than [`Served::Elsewhere`] has made room, perhaps for a guest on another core.
    /// It then must call [`crate::vuart::Vuart::output_drained`] for every UART that is stalled.
    pub fn serve(&self, drain: impl FnMut(&mut UartToken) -> Drained) -> Served {
        self.slot.serve(drain)
    }
}

/// Writes the hypervisor's messages of one core. Text for which there is no room is lost.
pub struct Log<'a> {
    console: &'a Console,
    core: PcpuId,
}

impl fmt::Write for Log<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            self.console
                .push(Source::Hypervisor(self.core), byte)
                .map_err(|Full| fmt::Error)?;
        }
        Ok(())
    }
}
