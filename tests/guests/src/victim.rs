// SPDX-License-Identifier: MIT OR Apache-2.0
//! A guest of few pages, which the suite `flips` of the probe attacks. In each period it looks at one of its pages: whether it is as it was
//! when its first life looked at it, or as this life has written it. It tells the attacker what it has seen, over a memory link ([`victim_link`]), and prints nothing.
//!
//! It never ends. If it executes what was changed, and that is an exception, it resets itself.

#![no_std]
#![no_main]

mod victim_link;

use core::arch::{asm, global_asm};
use core::panic::PanicInfo;
use core::ptr::without_provenance;
use core::sync::atomic::{AtomicU64, Ordering};
use spumone_config::gic::{SGI_FRAME, VIRTUAL_TIMER};
use victim_link::{ALIVE, ALIVE_AT, CHANGES, LIFE_SHIFT, REGISTERS, SWEEPS};

global_asm!(
    ".pushsection .text.start, \"ax\"",
    ".global start",
    "start:",
    "adrp x1, vectors",
    "add x1, x1, :lo12:vectors",
    "msr vbar_el1, x1",
    "adrp x1, {stack}",
    "add x1, x1, :lo12:{stack}",
    "add x1, x1, #{stack_size}",
    "mov sp, x1",
    "isb",
    "bl {main}",
    // PSCI SYSTEM_RESET.
    "reset: movz x0, #0x0009",
    "movk x0, #0x8400, lsl #16",
    "hvc #0",
    "b reset",
    ".balign 2048",
    "vectors:",
    ".rept 16",
    ".balign 128",
    "b reset",
    ".endr",
    ".popsection",
    stack = sym STACK,
    stack_size = const STACK_WORDS * 8,
    main = sym main,
);

const STACK_WORDS: usize = 512;
const PAGE: u64 = 4096;
const WORDS_A_PAGE: usize = 512;
/// Pages of constants.
const CONSTANT_PAGES: usize = 12;
/// Pages that it writes each time it has looked at them.
const OWN_PAGES: usize = 4;
/// In the memory of the link, so that they stay: the sums of the pages that it never writes, as its first life has seen them.
const SUMS: u64 = CHANGES + 8;
const PERIOD_US: u64 = 100;

/// 4096 bytes, on a boundary of as many.
#[repr(C, align(4096))]
struct Page([AtomicU64; WORDS_A_PAGE]);

impl Page {
    const fn clear() -> Self {
        Self([const { AtomicU64::new(0) }; WORDS_A_PAGE])
    }
}

#[repr(C, align(4096))]
struct Constants([[u64; WORDS_A_PAGE]; CONSTANT_PAGES]);

static CONSTANTS: Constants = {
    let mut pages = [[0; WORDS_A_PAGE]; CONSTANT_PAGES];
    let mut page = 0;
    while page < CONSTANT_PAGES {
        let mut word = 0;
        while word < WORDS_A_PAGE {
            pages[page][word] = pattern(page as u64, word as u64);
            word += 1;
        }
        page += 1;
    }
    Constants(pages)
};

static STACK: Page = Page::clear();
static OWN: [Page; OWN_PAGES] = [const { Page::clear() }; OWN_PAGES];

/// A word that is another one for each pair of numbers.
const fn pattern(one: u64, other: u64) -> u64 {
    (one << 32 | other)
        .wrapping_mul(0x9E37_79B9_7F4A_7C15)
        .rotate_left(29)
}

macro_rules! mrs {
    ($register:literal) => {{
        let value: u64;
        // SAFETY: the CPU belongs to this program, and reading a register changes no memory.
        unsafe { asm!(concat!("mrs {}, ", $register), out(reg) value, options(nostack)) };
        value
    }};
}

macro_rules! msr {
    ($register:literal, $value:expr) => {{
        let value: u64 = $value;
        // SAFETY: the CPU belongs to this program, and its code depends on no register that it writes.
        unsafe { asm!(concat!("msr ", $register, ", {}"), "isb", in(reg) value, options(nostack)) };
    }};
}

fn read32(address: u64) -> u32 {
    let value: u64;
    // SAFETY: a register of a device.
    unsafe { asm!("ldr {:w}, [{}]", out(reg) value, in(reg) address, options(nostack)) };
    value as u32
}

fn write32(address: u64, value: u32) {
    // SAFETY: a register of a device, none of which writes memory.
    unsafe { asm!("str {:w}, [{}]", in(reg) u64::from(value), in(reg) address, options(nostack)) };
}

fn read64(address: u64) -> u64 {
    let value;
    // SAFETY: a word of the link's memory.
    unsafe { asm!("ldr {}, [{}]", out(reg) value, in(reg) address, options(nostack)) };
    value
}

fn write64(address: u64, value: u64) {
    // SAFETY: a word of the link's memory, which no Rust code has as its own.
    unsafe { asm!("str {}, [{}]", in(reg) value, in(reg) address, options(nostack)) };
}

fn now() -> u64 {
    mrs!("cntvct_el0")
}

/// Has the timer's interrupt come to this CPU.
fn start_interrupts() {
    const DISTRIBUTOR: u64 = 0x0800_0000;
    const REDISTRIBUTOR: u64 = 0x080A_0000;
    const IGROUPR: u64 = 0x0080;
    const ISENABLER: u64 = 0x0100;
    /// GICD_CTLR: affinity routing, group 1.
    const CONTROL: u32 = 1 << 4 | 1 << 1;
    const LOWEST: u64 = 0xFF;
    write32(DISTRIBUTOR, CONTROL);
    write32(REDISTRIBUTOR + SGI_FRAME + IGROUPR, !0);
    write32(REDISTRIBUTOR + SGI_FRAME + ISENABLER, 1 << VIRTUAL_TIMER.0);
    msr!("icc_pmr_el1", LOWEST);
    msr!("icc_igrpen1_el1", 1);
}

/// Sleeps until the counter has the value `due`. Interrupts stay masked: a pending interrupt ends WFI, and is not taken.
fn sleep_until(due: u64) {
    const PENDING: u64 = 1 << 7;
    msr!("cntv_cval_el0", due);
    msr!("cntv_ctl_el0", 1);
    while mrs!("isr_el1") & PENDING == 0 {
        // SAFETY: WFI changes no state.
        unsafe { asm!("wfi", options(nostack)) };
    }
    let interrupt = mrs!("icc_iar1_el1");
    msr!("cntv_ctl_el0", 0);
    msr!("icc_eoir1_el1", interrupt);
}

/// First address of what it never writes, and the first address after that.
fn never_written() -> (u64, u64) {
    unsafe extern "C" {
        static image_begin: u8;
        static image_written: u8;
    }
    // Only the addresses are used.
    (
        (&raw const image_begin) as u64,
        (&raw const image_written) as u64,
    )
}

/// Whether a page that the guest never writes is unchanged: the page at `address`, the `number`th of them. `is_first`: the first life looks at the
/// page for the first time, and keeps its sum.
fn is_as_before(address: u64, number: u64, is_first: bool) -> bool {
    let mut sum = 0_u64;
    for place in (address..address + PAGE).step_by(8) {
        let place = without_provenance::<u64>(place as usize);
        // SAFETY: a word of this program's image, which it never writes. It may change nevertheless, therefore volatile.
        let word = unsafe { place.read_volatile() };
        sum = sum.rotate_left(7).wrapping_add(word);
    }
    let before = SUMS + 8 * number;
    if is_first {
        write64(before, sum);
    }
    read64(before) == sum
}

/// Whether an own page is as it was written after look `look - 1`. Writes it anew.
fn is_as_written(page: &Page, look: u64) -> bool {
    let mut is_right = true;
    for (number, word) in page.0.iter().enumerate() {
        let wanted = match look {
            0 => 0,
            _ => pattern(look, number as u64),
        };
        is_right &= word.load(Ordering::Relaxed) == wanted;
        word.store(pattern(look + 1, number as u64), Ordering::Relaxed);
    }
    is_right
}

extern "C" fn main() -> ! {
    const LIFE: u64 = 0x10;
    const SIGNAL: u64 = 0x18;
    let signal = || write32(REGISTERS + SIGNAL, 1);
    start_interrupts();
    // So that the constants are in the image.
    core::hint::black_box(&CONSTANTS);
    let life = u64::from(read32(REGISTERS + LIFE));
    let period = mrs!("cntfrq_el0") * PERIOD_US / 1_000_000;
    let (begin, end) = never_written();
    let mut due = now() + period;
    let mut wait = || {
        sleep_until(due);
        due = now().max(due + period);
    };
    wait();
    write64(ALIVE_AT, now());
    write64(ALIVE, life);
    signal();
    let mut look = 0;
    loop {
        let changed = || write64(CHANGES, read64(CHANGES) + 1);
        for (number, address) in (0..).zip((begin..end).step_by(PAGE as usize)) {
            wait();
            if !is_as_before(address, number, (life, look) == (1, 0)) {
                changed();
            }
        }
        for page in &OWN {
            wait();
            if !is_as_written(page, look) {
                changed();
            }
        }
        look += 1;
        write64(SWEEPS, life << LIFE_SHIFT | look);
        signal();
    }
}

#[panic_handler]
fn panic(_: &PanicInfo<'_>) -> ! {
    unsafe extern "C" {
        fn reset() -> !;
    }
    // SAFETY: it ends this life of the guest.
    unsafe { reset() }
}
