//! Brings a guest to the state it starts in: memory cleared, images copied, seeds drawn.
//!
//! Loading takes long, and EL2 is never preempted; so it is done in small chunks, as the work
//! of the guest's first vCPU, at that vCPU's priority. Between two chunks the core looks for
//! interrupts, and a guest of higher priority runs at once. A first start and a restart are the
//! same thing.

use crate::memory::bundle_start;
use crate::sysreg::mrs;
use core::arch::asm;
use rand_chacha::rand_core::RngCore;
use spumone_config::packed::{Guest, Mapping};
use spumone_config::{GuestAddr, PhysAddr};

/// Bytes handled between two looks for interrupts: about a thousand instructions. Guest memory
/// comes in pages, which are multiples of it.
const CHUNK: u64 = 2048;

/// How far loading has come.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    step: Step,
    /// Index of the range or segment in work.
    index: usize,
    /// Bytes of it that are done.
    done: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Clear,
    Copy,
    Seed,
    Finished,
}

impl Progress {
    /// Nothing done.
    pub const fn start() -> Self {
        Self {
            step: Step::Clear,
            index: 0,
            done: 0,
        }
    }

    /// Does one chunk; true when all is done.
    ///
    /// No vCPU of the guest may run. `random` is called once, for the seeds.
    pub fn advance<R: RngCore>(&mut self, guest: &Guest, random: impl FnOnce() -> R) -> bool {
        match self.step {
            Step::Clear => match guest.memory.get(self.index) {
                Some(range) => {
                    clear(PhysAddr(range.pa.0 + self.done));
                    self.proceed(CHUNK, range.size);
                }
                None => self.next_step(Step::Copy),
            },
            Step::Copy => match guest.segments.get(self.index) {
                Some(segment) => {
                    let bytes = CHUNK.min(segment.size - self.done);
                    // Chunks never cross a page of guest memory, so each lies in one range.
                    let destination = GuestAddr(segment.destination.0 + self.done);
                    let bytes = bytes.min(CHUNK - destination.0 % CHUNK);
                    if let Some(to) = physical(&guest.memory, destination) {
                        copy(segment.offset + self.done, to, bytes);
                    }
                    self.proceed(bytes, segment.size);
                }
                None => self.next_step(Step::Seed),
            },
            Step::Seed => {
                let mut random = random();
                for slot in &guest.seeds {
                    for offset in 0..u64::from(slot.size.min(64)) {
                        let at = GuestAddr(slot.destination.0 + offset);
                        if let Some(to) = physical(&guest.memory, at) {
                            write_byte(to, random.next_u32() as u8);
                        }
                    }
                }
                self.next_step(Step::Finished);
            }
            Step::Finished => {}
        }
        self.step == Step::Finished
    }

    fn proceed(&mut self, bytes: u64, total: u64) {
        self.done += bytes;
        if self.done >= total {
            self.index += 1;
            self.done = 0;
        }
    }

    fn next_step(&mut self, step: Step) {
        self.step = step;
        self.index = 0;
        self.done = 0;
    }
}

/// Where a byte of guest memory is on the machine.
fn physical(memory: &[Mapping], ipa: GuestAddr) -> Option<PhysAddr> {
    memory.iter().find_map(|range| {
        let offset = ipa.0.checked_sub(range.ipa.0)?;
        (offset < range.size).then_some(PhysAddr(range.pa.0 + offset))
    })
}

/// Clears one chunk of guest memory.
fn clear(start: PhysAddr) {
    /// `DCZID_EL0`: `DC ZVA` is prohibited; log2 of its block size in words.
    const PROHIBITED: u64 = 1 << 4;
    const SIZE: u64 = 0xF;
    let zva = mrs!(DCZID_EL0);
    let block = 4 << (zva & SIZE);
    // SAFETY: guest memory lies outside the hypervisor's (`spm` checks) and is mapped writable
    // and cacheable; no vCPU of the guest runs. A block of `DC ZVA` is a power of two no larger
    // than a chunk, and chunks are aligned to their size.
    unsafe {
        if zva & PROHIBITED == 0 && block <= CHUNK {
            let mut at = start.0;
            while at < start.0 + CHUNK {
                asm!("dc zva, {}", in(reg) at, options(nostack, preserves_flags));
                at += block;
            }
        } else {
            core::ptr::write_bytes(start.0 as *mut u8, 0, CHUNK as usize);
        }
    }
    clean(start.0, CHUNK, cache_line());
}

fn copy(offset: u64, to: PhysAddr, bytes: u64) {
    // SAFETY: the source lies in the bundle, read-only and checked by `spm`; the destination is
    // guest memory, as in `clear`. They do not overlap.
    unsafe {
        core::ptr::copy_nonoverlapping(
            bundle_start().add(offset as usize),
            to.0 as *mut u8,
            bytes as usize,
        );
    }
    clean(to.0, bytes, cache_line());
}

fn write_byte(to: PhysAddr, value: u8) {
    // SAFETY: as in `clear`.
    unsafe { (to.0 as *mut u8).write_volatile(value) };
    clean(to.0, 1, cache_line());
}

/// Smallest data cache line of the core in bytes (`CTR_EL0.DminLine`).
fn cache_line() -> u64 {
    4 << (mrs!(CTR_EL0) >> 16 & 0xF)
}

/// Writes what was stored through to memory: a guest starts with its caches off.
fn clean(start: u64, bytes: u64, line: u64) {
    let mut at = start & !(line - 1);
    while at < start + bytes {
        // SAFETY: cleaning a line does not change memory.
        unsafe { asm!("dc cvac, {}", in(reg) at, options(nostack, preserves_flags)) };
        at += line;
    }
}

/// Makes all that was loaded visible to the guest's data and instruction accesses.
pub fn finish() {
    // SAFETY: barriers and an instruction cache invalidation.
    unsafe {
        asm!(
            "dsb sy",
            "ic ialluis",
            "dsb ish",
            "isb",
            options(nostack, preserves_flags)
        )
    };
}
