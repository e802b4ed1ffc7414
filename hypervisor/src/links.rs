// SPDX-License-Identifier: MIT OR Apache-2.0
//! The memory of two guests between which frames are copied.

use crate::guest::Guest;
use crate::hardware::running_guest;
use spumone_config::{GuestAddr, PhysAddr};
use spumone_core::virtio::{End, Memories, STRETCH};

/// The memory of both guests of a link.
pub struct LinkMemories {
    /// The guest that transmits.
    pub sender: &'static Guest,
    /// The guest that receives.
    pub receiver: &'static Guest,
}

impl LinkMemories {
    #[inline(always)]
    const fn guest(&self, end: End) -> &'static Guest {
        match end {
            End::Sender => self.sender,
            End::Receiver => self.receiver,
        }
    }

    /// The same, if the guest may write them: EL2 must not write for a guest what stage 2 keeps it from writing.
    #[inline(always)]
    fn writable(&self, end: End, at: GuestAddr, bytes: u64, alignment: u64) -> Option<PhysAddr> {
        let protect = self.guest(end).config.protect.as_ref();
        match protect.is_some_and(|it| it.is_read_only(at, bytes)) {
            true => None,
            false => self.place(end, at, bytes, alignment),
        }
    }

    /// Where these bytes of a guest are, if all of them are in its memory. Inlined, since every access needs it, and a call takes as
    /// long as the check.
    #[inline(always)]
    fn place(&self, end: End, at: GuestAddr, bytes: u64, alignment: u64) -> Option<PhysAddr> {
        let guest = self.guest(end);
        let mut ranges = guest.config.memory.iter();
        // At most 16 times: ranges of memory.
        ranges.find_map(|range| {
            let offset = at.0.checked_sub(range.ipa.0)?;
            let is_inside = offset.checked_add(bytes)? <= range.size;
            (is_inside && at.is_aligned(alignment)).then(|| PhysAddr(range.pa.0 + offset))
        })
    }
}

// For each access below: `place` gives aligned memory of a guest, all of which EL2 maps for reads and writes. Aligned
// guest addresses are aligned physical addresses, since ranges consist of whole pages.
impl Memories for LinkMemories {
    fn load16(&self, end: End, at: GuestAddr) -> Option<u16> {
        let at = self.place(end, at, 2, 2)?;
        // SAFETY: see above.
        Some(unsafe { running_guest::load16(at) })
    }

    fn load64(&self, end: End, at: GuestAddr) -> Option<u64> {
        let at = self.place(end, at, 8, 8)?;
        // SAFETY: see above.
        Some(unsafe { running_guest::load64(at) })
    }

    fn store16(&mut self, end: End, at: GuestAddr, value: u16) -> Option<()> {
        let at = self.writable(end, at, 2, 2)?;
        // SAFETY: see above.
        unsafe { running_guest::store16(at, value) };
        Some(())
    }

    fn store_pair(&mut self, end: End, at: GuestAddr, pair: [u32; 2]) -> Option<()> {
        let at = self.writable(end, at, 8, 4)?;
        // SAFETY: see above.
        unsafe {
            running_guest::store32(at, pair[0]);
            running_guest::store32(PhysAddr(at.0 + 4), pair[1]);
        }
        Some(())
    }

    fn read(&self, at: GuestAddr, into: &mut [u8]) -> Option<()> {
        let at = self.place(End::Sender, at, into.len() as u64, 1)?;
        // SAFETY: see above.
        unsafe { running_guest::read(at, into) };
        Some(())
    }

    fn write(&mut self, end: End, at: GuestAddr, bytes: &[u8]) -> Option<()> {
        let at = self.writable(end, at, bytes.len() as u64, 1)?;
        // SAFETY: see above.
        unsafe { running_guest::write(at, bytes) };
        Some(())
    }

    fn copy(
        &mut self,
        from: GuestAddr,
        to: GuestAddr,
        bytes: u32,
        mut stops: impl FnMut() -> bool,
    ) -> Result<u32, End> {
        let bytes_64 = u64::from(bytes);
        let from = self.place(End::Sender, from, bytes_64, 1);
        let to = self.writable(End::Receiver, to, bytes_64, 1);
        let (from, to) = (from.ok_or(End::Sender)?, to.ok_or(End::Receiver)?);
        let mut done = 0;
        // At most once: then it looks.
        loop {
            let next = STRETCH.min(bytes - done);
            let [from, to] = [from, to].map(|it| PhysAddr(it.0 + u64::from(done)));
            // SAFETY: see above.
            unsafe { running_guest::copy(from, to, next) };
            done += next;
            if stops() || done == bytes {
                return Ok(done);
            }
        }
    }
}
