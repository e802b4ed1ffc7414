// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a reader may take for one file: memory of some times its size, and a second.
//!
//! Both are counted exactly here, so that neither depends on what else the machine does: bytes that the reader has allocated, and the CPU
//! time of this thread.

use rustix::process::{Signal, getpid, kill_process};
use rustix::time::{ClockId, clock_gettime};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

/// A reader may take so many bytes for each byte of the file…
const TIMES: usize = 10;
/// …and so many for the rest: the other files of the system, which are small, the memory of its guests, which an unpacked image may fill,
/// and the image that is built.
const BASE: usize = 24 << 20;
/// CPU time for one file.
const MOST_SECONDS: f64 = 1.0;

/// Bytes that are allocated.
static ALLOCATED: AtomicUsize = AtomicUsize::new(0);
/// How many may be. There is one thread.
static LIMIT: AtomicUsize = AtomicUsize::new(usize::MAX);

/// The allocator, which counts.
pub struct Counted;

impl Counted {
    fn add(bytes: usize) {
        let allocated = ALLOCATED.fetch_add(bytes, Relaxed) + bytes;
        if allocated > LIMIT.load(Relaxed) {
            LIMIT.store(usize::MAX, Relaxed);
            eprintln!(
                "FINDING: {bytes} bytes more are beyond the memory that a file of this size may take"
            );
            std::process::abort();
        }
    }
}

// SAFETY: every call goes on to `System`, which keeps the contract; counting allocates nothing.
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        Self::add(layout.size());
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        Self::add(layout.size());
        // SAFETY: the caller's promise.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, old: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // Not both at once: large blocks are moved by their page tables.
        ALLOCATED.fetch_sub(layout.size(), Relaxed);
        Self::add(size);
        // SAFETY: the caller's promise.
        unsafe { System.realloc(old, layout, size) }
    }

    unsafe fn dealloc(&self, old: *mut u8, layout: Layout) {
        ALLOCATED.fetch_sub(layout.size(), Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(old, layout) }
    }
}

/// How long the fuzzer goes on.
pub struct Limits {
    /// CPU time at which it ends, in seconds.
    end: Option<f64>,
}

impl Limits {
    /// `minutes` of CPU time; without end if there are none.
    pub fn new(minutes: Option<f64>) -> Self {
        let end = minutes.map(|minutes| seconds() + minutes * 60.0);
        Self { end }
    }

    /// Reads a file of so many bytes; aborts if that takes too much. libFuzzer then keeps the file.
    pub fn within(&self, name: &str, size: usize, read: impl FnOnce() -> bool) {
        let start = seconds();
        LIMIT.store(ALLOCATED.load(Relaxed) + BASE + TIMES * size, Relaxed);
        read();
        LIMIT.store(usize::MAX, Relaxed);
        let taken = seconds() - start;
        if taken > MOST_SECONDS {
            eprintln!("FINDING: the reader {name} took {taken:.2} s for {size} bytes");
            std::process::abort();
        }
    }

    /// Has libFuzzer end if the time is over. Not called while a file is read.
    pub fn end_of_time(&self) {
        if self.end.is_some_and(|end| seconds() > end) {
            let asked = kill_process(getpid(), Signal::USR1);
            asked.expect("a process may signal itself");
        }
    }
}

/// CPU time of this thread.
fn seconds() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}
