// SPDX-License-Identifier: MIT OR Apache-2.0
//! `suite=dma`: has a device write to memory of another guest, which stage 2 does not prevent: it confines CPUs, not devices. The
//! device is a virtio entropy device (virtio 1.2, section 5.4) in the machine's first transport, whose DMA addresses are those of the machine.
//! `count=` times (default 1), one each `every=` microseconds (default 100000), it writes 8 random bytes somewhere in the `pages=` pages
//! (default 1) from machine address `target=` on. `offset=`: what is to be added to an address of this guest for the machine's.
//!
//! `suite=victim`: says the time, in microseconds of the counter, and then sleeps `ms=` milliseconds (default 1000), a millisecond at a time.
//! `write=`: it writes to this address before.

use crate::machine::mmio::write32;
use crate::machine::random::Random;
use crate::machine::sysreg::mrs;
use crate::machine::time::{self, Timer, now};
use crate::machine::uart::say;
use crate::machine::virtio::{Device, MAGIC, register};
use crate::machine::{bootargs, gic, interrupts};
use crate::report::{Verdict, check, check_eq, record};
use core::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering};

/// The transport.
const TRANSPORT: Device = Device(0x0A00_3E00);
/// `DeviceID` of an entropy device.
const ENTROPY: u32 = 4;

/// Buffers of the queue, of which one is used.
const BUFFERS: usize = 2;
/// Descriptor: the device writes.
const WRITE: u32 = 1 << 1;
/// What it writes at a time.
pub(super) const BYTES: u32 = 8;
pub(super) const PAGE: u64 = 4096;

/// A queue (section 2.7): what the driver writes, and the device's index.
#[repr(C, align(4096))]
struct Queue {
    /// Address, length, flags.
    address: AtomicU64,
    length: AtomicU32,
    flags: AtomicU32,
    second: [AtomicU64; 2],
    available_flags: AtomicU16,
    available: AtomicU16,
    ring: [AtomicU16; BUFFERS],
    padding: AtomicU64,
    used_flags: AtomicU16,
    used: AtomicU16,
    used_ring: [AtomicU64; BUFFERS],
}

static QUEUE: Queue = Queue {
    address: AtomicU64::new(0),
    length: AtomicU32::new(BYTES),
    flags: AtomicU32::new(WRITE),
    second: [const { AtomicU64::new(0) }; 2],
    available_flags: AtomicU16::new(0),
    available: AtomicU16::new(0),
    ring: [const { AtomicU16::new(0) }; BUFFERS],
    padding: AtomicU64::new(0),
    used_flags: AtomicU16::new(0),
    used: AtomicU16::new(0),
    used_ring: [const { AtomicU64::new(0) }; BUFFERS],
};

/// Microseconds of the counter.
fn now_us() -> u64 {
    now() * 1000 / (mrs!(CNTFRQ_EL0) / 1000)
}

/// Attacks.
pub fn run() {
    record("dma", attack());
}

fn attack() -> Verdict {
    start()?;
    let mut random = Random::new(bootargs::number_or("seed", 1));
    let (target, pages) = (
        bootargs::number_or("target", 0),
        bootargs::number_or("pages", 1),
    );
    let every = bootargs::number_or("every", 100_000);
    for number in 1..=bootargs::number_or("count", 1) {
        time::delay_us(every);
        let word = random.below(pages * PAGE / u64::from(BYTES));
        let at = target + word * u64::from(BYTES);
        let page = at & !(PAGE - 1);
        say!("attack {number} page={page:#x} at={at:#x} us={}", now_us());
        write(at)?;
    }
    time::delay_us(every);
    Ok(())
}

/// Starts the device.
pub(super) fn start() -> Verdict {
    check_eq!(TRANSPORT.read(register::MAGIC), MAGIC, "a transport");
    check_eq!(TRANSPORT.read(register::DEVICE_ID), ENTROPY, "the device");
    TRANSPORT.begin(0);
    let offset = bootargs::number_or("offset", 0);
    let areas = [
        (&raw const QUEUE.address).addr(),
        (&raw const QUEUE.available_flags).addr(),
        (&raw const QUEUE.used_flags).addr(),
    ];
    TRANSPORT.set_queue(0, BUFFERS as u32, areas.map(|at| at as u64 + offset));
    TRANSPORT.end();
    Ok(())
}

/// Has the device write at this machine address; it has done so when this returns.
pub(super) fn write(at: u64) -> Verdict {
    QUEUE.address.store(at, Ordering::Relaxed);
    let next = QUEUE.available.load(Ordering::Relaxed).wrapping_add(1);
    QUEUE.available.store(next, Ordering::Release);
    TRANSPORT.write(register::QUEUE_NOTIFY, 0);
    check!(
        time::wait(|| QUEUE.used.load(Ordering::Acquire) == next),
        "the device does not answer"
    );
    Ok(())
}

/// Is attacked.
pub fn be_attacked() {
    say!("victim us={}", now_us());
    gic::start_distributor();
    gic::start_cpu();
    if let at @ 1.. = bootargs::number_or("write", 0) {
        write32(at, 0);
        say!("FAIL write: it has written at {at:#x}");
    }
    let mut periods = 0;
    while periods < bootargs::number_or("ms", 1000) {
        interrupts::forget(0);
        Timer::Virtual.start_us(1000);
        interrupts::sleep_until(|| interrupts::count(0) > 0);
        periods += 1;
    }
    say!("victim periods={periods}");
}
