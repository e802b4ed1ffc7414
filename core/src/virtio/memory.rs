// SPDX-License-Identifier: MIT OR Apache-2.0
//! The memory of the two guests of a link, as EL2 sees it.

use spumone_config::GuestAddr;

/// Most bytes that are copied between two looks for interrupts.
pub const STRETCH: u32 = 512;

/// One of the two guests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The guest that transmits.
    Sender,
    /// The guest that receives.
    Receiver,
}

/// The memory of both guests. Each function returns `None`, and does nothing, if a byte is not in the guest's own memory or
/// a word is not aligned. Guests may change their memory at any time.
pub trait Memories {
    /// Reads 16 bits at once. What the guest wrote before them is read after them.
    fn load16(&self, end: End, at: GuestAddr) -> Option<u16>;
    /// Reads 64 bits at once.
    fn load64(&self, end: End, at: GuestAddr) -> Option<u64>;
    /// Writes 16 bits at once. What was written before is seen before them.
    fn store16(&mut self, end: End, at: GuestAddr, value: u16) -> Option<()>;
    /// Writes two words of 32 bits.
    fn store_pair(&mut self, end: End, at: GuestAddr, pair: [u32; 2]) -> Option<()>;
    /// Reads bytes of the sender.
    fn read(&self, at: GuestAddr, into: &mut [u8]) -> Option<()>;
    /// Writes bytes.
    fn write(&mut self, end: End, at: GuestAddr, bytes: &[u8]) -> Option<()>;
    /// Copies `bytes` bytes from the sender to the receiver, or fewer if `stops` says so, which is asked after each stretch of
    /// [`STRETCH`] bytes. Returns how many.
    ///
    /// # Errors
    ///
    /// Not all of these bytes are in the memory of this end; [`End::Sender`] also if that holds for both ends.
    fn copy(
        &mut self,
        from: GuestAddr,
        to: GuestAddr,
        bytes: u32,
        stops: impl FnMut() -> bool,
    ) -> Result<u32, End>;
}
