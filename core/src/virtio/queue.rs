// SPDX-License-Identifier: MIT OR Apache-2.0
//! A split virtqueue, from the device's side (Virtio 1.2, section 2.7).

use super::memory::{End, Memories};
use crate::sync::atomic::{AtomicBool, AtomicU16, AtomicU32, AtomicU64, Ordering, fence};
use spumone_config::GuestAddr;

/// The largest number of descriptors of a queue: `QueueNumMax`.
pub(super) const MAX_SIZE: u16 = 256;
/// The largest number of descriptors of one buffer that is looked at: as many as a Linux driver ever uses, and some more.
const MAX_CHAIN: u16 = 24;

/// Size of a descriptor (2.7.5).
const DESCRIPTOR: u64 = 16;
/// `VIRTQ_DESC_F_NEXT`: the buffer goes on in the descriptor `next`.
const NEXT: u16 = 1 << 0;
/// `VIRTQ_DESC_F_WRITE`: the device writes the memory, else it reads it.
const WRITE: u16 = 1 << 1;
/// Flags that the device knows. `VIRTQ_DESC_F_INDIRECT` is not offered.
const KNOWN: u16 = NEXT | WRITE;

/// Offset of `idx` in both rings, and of the first entry (2.7.6, 2.7.8).
const INDEX: u64 = 2;
const RING: u64 = 4;
/// `VIRTQ_AVAIL_F_NO_INTERRUPT`: the driver wants no interrupt.
const NO_INTERRUPT: u16 = 1 << 0;
/// `VIRTQ_USED_F_NO_NOTIFY`: the device wants no notification.
const NO_NOTIFY: u16 = 1 << 0;

/// In a place's `rest`, beside the number of descriptors that may follow: the present part is the last one.
const ENDED: u16 = 1 << 15;

/// In a transmit queue's `taken`: all of the buffer has been moved, and the next step gives it back. No frame or packet has so many bytes.
const MOVED: u32 = u32::MAX;

/// The driver has broken the rules: its device must be reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Broken;

/// The state of a queue, which the driver's vCPUs may write on several cores at once, and a core that moves frames reads.
///
/// Relaxed order: a driver sets a queue up before it sets `DRIVER_OK`, which is ordered. One that does not, harms only itself,
/// because every address is checked when it is used.
#[derive(Debug)]
pub(super) struct Queue {
    pub size: AtomicU16,
    pub ready: AtomicBool,
    pub descriptors: AtomicU64,
    pub available: AtomicU64,
    pub used: AtomicU64,
    /// The next entry of the available ring to look at, and of the used ring to write, of which the lowest 16 bits count. Only the core that moves
    /// frames changes them, and a reset.
    next_available: AtomicU16,
    next_used: AtomicU64,
    /// Of a frame or packet that is moved in several steps, its bytes that have been moved, at both ends; zero: the next step begins
    /// one. Changed like the indices, as are the fields below.
    taken: AtomicU32,
    /// At the receiver, the buffers of the frame that are full, and the bytes in the next one (`bytes_in_buffer`); at the sender, the bytes
    /// of the header that have been read, and in `filled` whether an answer was begun. At both ends, if the walk through a buffer goes on
    /// (`is_open`), where: its first descriptor (`head`), and the `place` in it.
    filled: AtomicU16,
    head: AtomicU16,
    bytes_in_buffer: AtomicU32,
    place: Place,
    is_open: AtomicBool,
    /// At the receiver of packets: an answer has used the buffer behind that of `head`, which has a part of a packet. So `head` stands
    /// for the next entry of the available ring.
    is_head_next: AtomicBool,
    /// There too: since an answer has begun, no packet has begun in a buffer of this queue.
    keeps_answer: AtomicBool,
}

impl Queue {
    constructor! {
        pub fn new() -> Self {
            Self {
                size: AtomicU16::new(0),
                ready: AtomicBool::new(false),
                descriptors: AtomicU64::new(0),
                available: AtomicU64::new(0),
                used: AtomicU64::new(0),
                next_available: AtomicU16::new(0),
                next_used: AtomicU64::new(0),
                taken: AtomicU32::new(0),
                filled: AtomicU16::new(0),
                head: AtomicU16::new(0),
                bytes_in_buffer: AtomicU32::new(0),
                place: Place::new(),
                is_open: AtomicBool::new(false),
                is_head_next: AtomicBool::new(false),
                keeps_answer: AtomicBool::new(false),
            }
        }
    }

    /// As after a reset of the device.
    pub fn reset(&self) {
        for flag in [
            &self.ready,
            &self.is_open,
            &self.is_head_next,
            &self.keeps_answer,
        ] {
            flag.store(false, Ordering::Relaxed);
        }
        let short = [&self.size, &self.next_available, &self.filled, &self.head];
        for register in short {
            register.store(0, Ordering::Relaxed);
        }
        for register in [&self.taken, &self.bytes_in_buffer] {
            register.store(0, Ordering::Relaxed);
        }
        let long = [
            &self.descriptors,
            &self.available,
            &self.used,
            &self.next_used,
            &self.place.at,
            &self.place.rest,
        ];
        for register in long {
            register.store(0, Ordering::Relaxed);
        }
    }

    /// What the driver has set up; `None`: the queue is not in use.
    pub fn ring(&self, end: End) -> Option<Ring<'_>> {
        let size = self.size.load(Ordering::Relaxed);
        let is_usable =
            self.ready.load(Ordering::Relaxed) && size.is_power_of_two() && size <= MAX_SIZE;
        is_usable.then(|| Ring {
            queue: self,
            end,
            size,
            descriptors: self.descriptors.load(Ordering::Relaxed),
            available: self.available.load(Ordering::Relaxed),
            used: self.used.load(Ordering::Relaxed),
        })
    }
}

/// Where a walk through a buffer goes on in a later step.
#[derive(Debug)]
pub(super) struct Place {
    /// The address in the present part.
    at: AtomicU64,
    /// The bytes that are left of that part, the next descriptor, and how many descriptors may follow.
    rest: AtomicU64,
}

impl Place {
    constructor! {
        pub fn new() -> Self {
            Self {
                at: AtomicU64::new(0),
                rest: AtomicU64::new(0),
            }
        }
    }

    /// The buffer of this ring, with the present part's address and bytes.
    pub fn resume<'a>(&self, ring: &'a Ring<'a>, is_written: bool) -> (Buffer<'a>, u64, u32) {
        let at = self.at.load(Ordering::Relaxed);
        let rest = self.rest.load(Ordering::Relaxed);
        let (next, left) = ((rest >> 32) as u16, (rest >> 48) as u16);
        let buffer = Buffer {
            ring,
            next: (left & ENDED == 0).then_some(next),
            left: left & !ENDED,
            is_written,
        };
        (buffer, at, rest as u32)
    }

    /// The walk goes on here, in a part of which so many bytes are left.
    pub fn keep(&self, buffer: &Buffer<'_>, at: u64, bytes: u32) {
        let (next, ended) = buffer.next.map_or((0, ENDED), |next| (next, 0));
        let left = buffer.left | ended;
        let rest = u64::from(bytes) | u64::from(next) << 32 | u64::from(left) << 48;
        self.at.store(at, Ordering::Relaxed);
        self.rest.store(rest, Ordering::Relaxed);
    }
}

/// A queue during one step: its addresses are read once.
pub(super) struct Ring<'a> {
    queue: &'a Queue,
    end: End,
    size: u16,
    descriptors: u64,
    available: u64,
    used: u64,
}

impl Ring<'_> {
    /// The first descriptor of the next buffer that the driver has made available; `None`: there is none.
    pub fn next(&self, memories: &impl Memories) -> Result<Option<u16>, Broken> {
        self.nth(0, memories)
    }

    /// The same of the buffer that comes `number` buffers later.
    pub fn nth(&self, number: u16, memories: &impl Memories) -> Result<Option<u16>, Broken> {
        let next = self.queue.next_available.load(Ordering::Relaxed);
        let index = self.load16(memories, self.available, INDEX)?;
        match index.wrapping_sub(next) {
            // The driver cannot make more buffers available than there are descriptors.
            waiting if waiting > self.size => Err(Broken),
            waiting if waiting <= number => Ok(None),
            _ => {
                let entry = RING + 2 * u64::from(next.wrapping_add(number) % self.size);
                self.load16(memories, self.available, entry).map(Some)
            }
        }
    }

    /// The first descriptor of the buffer in which the last step has stopped; `None`: it has stopped in none.
    pub fn begun(&self) -> Option<u16> {
        self.is_open().then(|| self.head())
    }

    /// The buffer behind those that are full of the present frame, for its next bytes.
    pub fn next_to_fill(&self, memories: &impl Memories) -> Result<Option<u16>, Broken> {
        match self.queue.is_head_next.load(Ordering::Relaxed) {
            true => Ok(Some(self.head())),
            false => self.nth(self.filled(), memories),
        }
    }

    /// Whether [`head`](Self::head) stands for the next entry of the available ring, of which the buffer has been used before.
    pub fn set_head_next(&self, is_next: bool) {
        self.queue.is_head_next.store(is_next, Ordering::Relaxed);
    }

    /// Whether no packet has begun in a buffer of this queue since an answer has.
    pub fn keeps_answer(&self) -> bool {
        self.queue.keeps_answer.load(Ordering::Relaxed)
    }

    /// An answer has begun in a buffer of this queue, or a packet.
    pub fn set_keeps_answer(&self, keeps: bool) {
        self.queue.keeps_answer.store(keeps, Ordering::Relaxed);
    }

    /// Whether so many buffers are all that the driver can make available.
    pub fn has_only(&self, number: u16) -> bool {
        number >= self.size
    }

    /// The parts of the buffer that begins with this descriptor; `is_written`: the device writes it.
    pub fn buffer(&self, first: u16, is_written: bool) -> Buffer<'_> {
        Buffer {
            ring: self,
            next: Some(first),
            left: MAX_CHAIN.min(self.size),
            is_written,
        }
    }

    /// Gives the buffer that [`next`](Self::next) has named back to the driver, with so many bytes written. Returns whether
    /// the driver wants an interrupt.
    pub fn give_back(
        &self,
        first: u16,
        written: u32,
        memories: &mut impl Memories,
    ) -> Result<bool, Broken> {
        self.put(0, [first.into(), written], memories)?;
        self.publish(1, memories)
    }

    /// Writes an element of the used ring, `number` elements from the next one: first descriptor and bytes written. The driver does
    /// not look at it before [`publish`](Self::publish).
    pub fn put(
        &self,
        number: u16,
        element: [u32; 2],
        memories: &mut impl Memories,
    ) -> Result<(), Broken> {
        let used = self.used_buffers() as u16;
        let entry = RING + 8 * u64::from(used.wrapping_add(number) % self.size);
        let at = address(self.used, entry)?;
        memories.store_pair(self.end, at, element).ok_or(Broken)
    }

    /// Gives so many buffers back to the driver, of which the elements were [`put`](Self::put). Returns whether the driver wants an
    /// interrupt.
    pub fn publish(&self, buffers: u16, memories: &mut impl Memories) -> Result<bool, Broken> {
        let used = self.used_buffers().wrapping_add(buffers.into());
        let at = address(self.used, INDEX)?;
        memories.store16(self.end, at, used as u16).ok_or(Broken)?;
        self.queue.next_used.store(used, Ordering::Relaxed);
        let next = self.queue.next_available.load(Ordering::Relaxed);
        self.queue
            .next_available
            .store(next.wrapping_add(buffers), Ordering::Relaxed);
        // The index is written before the driver's wish is read; the driver does the opposite.
        fence(Ordering::SeqCst);
        let flags = self.load16(memories, self.available, 0)?;
        Ok(flags & NO_INTERRUPT == 0)
    }

    /// Buffers that were given back to the driver since the last reset.
    pub fn used_buffers(&self) -> u64 {
        self.queue.next_used.load(Ordering::Relaxed)
    }

    /// Bytes of the next buffer that have been moved.
    pub fn taken(&self) -> u32 {
        self.queue.taken.load(Ordering::Relaxed)
    }

    /// So many bytes of the next buffer have been moved.
    pub fn set_taken(&self, bytes: u32) {
        self.queue.taken.store(bytes, Ordering::Relaxed);
    }

    /// Nothing is left to move of the buffer with this first descriptor. The next step gives it back.
    pub fn give_back_later(&self, first: u16) {
        self.queue.head.store(first, Ordering::Relaxed);
        self.set_taken(MOVED);
    }

    /// The buffer that this step gives back.
    pub fn to_give_back(&self) -> Option<u16> {
        (self.taken() == MOVED).then(|| self.head())
    }

    /// Buffers that are full of the present frame, and not published.
    pub fn filled(&self) -> u16 {
        self.queue.filled.load(Ordering::Relaxed)
    }

    /// Bytes of the present frame in the buffer behind those.
    pub fn bytes_in_buffer(&self) -> u32 {
        self.queue.bytes_in_buffer.load(Ordering::Relaxed)
    }

    /// So many buffers are full, and so many bytes in the next one.
    pub fn set_filled(&self, buffers: u16, bytes: u32) {
        self.queue.filled.store(buffers, Ordering::Relaxed);
        self.queue.bytes_in_buffer.store(bytes, Ordering::Relaxed);
    }

    /// Whether the last step has begun an answer to the packet of this transmit queue.
    pub fn has_begun_answer(&self) -> bool {
        self.filled() != 0
    }

    /// A step has begun an answer to the packet of this transmit queue, of which the header was read.
    pub fn set_begun_answer(&self) {
        self.queue.filled.store(1, Ordering::Relaxed);
    }

    /// Whether a step can go on where the last one has left both this transmit queue and the receiver's queue, within a buffer of
    /// each.
    pub fn is_within_frame(&self, receiver: &Ring<'_>) -> bool {
        self.has_begun(receiver) && receiver.is_open()
    }

    /// Whether the receiver has the beginning of the frame of this transmit queue.
    pub fn has_begun(&self, receiver: &Ring<'_>) -> bool {
        let taken = self.taken();
        taken > 0 && taken == receiver.taken()
    }

    /// Whether the last step has stopped within a buffer, of which the walk goes on.
    pub fn is_open(&self) -> bool {
        self.queue.is_open.load(Ordering::Relaxed)
    }

    /// The last buffer is not gone on with.
    pub fn close(&self) {
        self.queue.is_open.store(false, Ordering::Relaxed);
    }

    /// Nothing has been moved of the next frame.
    pub fn begin_anew(&self) {
        self.close();
        self.set_filled(0, 0);
        self.set_taken(0);
    }

    /// The first descriptor of the buffer that [`suspend`](Self::suspend) has left.
    pub fn head(&self) -> u16 {
        self.queue.head.load(Ordering::Relaxed)
    }

    /// The buffer, from the place at which [`suspend`](Self::suspend) has left it: with the present part's address and bytes.
    pub fn resume(&self, is_written: bool) -> (Buffer<'_>, u64, u32) {
        self.queue.place.resume(self, is_written)
    }

    /// The walk through the buffer with this first descriptor goes on later, at this place of the present part, of which so many bytes are left.
    pub fn suspend(&self, first: u16, buffer: &Buffer<'_>, at: u64, bytes: u32) {
        self.queue.is_open.store(true, Ordering::Relaxed);
        self.queue.head.store(first, Ordering::Relaxed);
        self.queue.place.keep(buffer, at, bytes);
    }

    /// Tells the driver whether the device wants to be notified of available buffers. What is available must be looked at
    /// afterwards.
    pub fn want_notifications(
        &self,
        wants: bool,
        memories: &mut impl Memories,
    ) -> Result<(), Broken> {
        let at = address(self.used, 0)?;
        let flags = if wants { 0 } else { NO_NOTIFY };
        memories.store16(self.end, at, flags).ok_or(Broken)?;
        // The wish is written before the ring is read; the driver does the opposite.
        fence(Ordering::SeqCst);
        Ok(())
    }

    fn load16(&self, memories: &impl Memories, base: u64, offset: u64) -> Result<u16, Broken> {
        let at = address(base, offset)?;
        memories.load16(self.end, at).ok_or(Broken)
    }

    /// Descriptor `number`: address, bytes, flags, the next one. Read once.
    fn descriptor(
        &self,
        number: u16,
        memories: &impl Memories,
    ) -> Result<(GuestAddr, u32, u16, u16), Broken> {
        if number >= self.size {
            return Err(Broken);
        }
        let at = address(self.descriptors, DESCRIPTOR * u64::from(number))?;
        let place = memories.load64(self.end, at).ok_or(Broken)?;
        let at = address(self.descriptors, DESCRIPTOR * u64::from(number) + 8)?;
        let rest = memories.load64(self.end, at).ok_or(Broken)?;
        let (flags, next) = ((rest >> 32) as u16, (rest >> 48) as u16);
        Ok((GuestAddr(place), rest as u32, flags, next))
    }
}

fn address(base: u64, offset: u64) -> Result<GuestAddr, Broken> {
    GuestAddr(base).checked_add(offset).ok_or(Broken)
}

/// The parts of a buffer, one after the other.
pub(super) struct Buffer<'a> {
    ring: &'a Ring<'a>,
    next: Option<u16>,
    left: u16,
    is_written: bool,
}

impl Buffer<'_> {
    /// Whether there is a next part.
    pub fn goes_on(&self) -> bool {
        self.next.is_some()
    }

    /// The next part: where it is, and how many bytes it has; `None` behind the last one.
    pub fn next(&mut self, memories: &impl Memories) -> Result<Option<(GuestAddr, u32)>, Broken> {
        let Some(number) = self.next else {
            return Ok(None);
        };
        // Ends a chain that is a circle.
        self.left = self.left.checked_sub(1).ok_or(Broken)?;
        let (at, bytes, flags, next) = self.ring.descriptor(number, memories)?;
        if flags & !KNOWN != 0 || (flags & WRITE != 0) != self.is_written {
            return Err(Broken);
        }
        self.next = (flags & NEXT != 0).then_some(next);
        Ok(Some((at, bytes)))
    }
}
