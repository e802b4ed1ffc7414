// SPDX-License-Identifier: MIT OR Apache-2.0
//! `suite=watch`: checks its own state. For `ms=` milliseconds (default 1000) each CPU compares its
//! memory, its registers, its timers and its SGIs with what it has set, again and again, while other
//! guests run. `seed=` gives other values than those of the same program in another guest.
//! `sleep=1`: it sleeps between two checks. `slice=`: how many words of memory it compares with
//! each check (default 2048). `link=1`: it ends when the guest at the other end of its link has ended, if not before.

use crate::machine::cpus;
use crate::machine::gic::{self, SPURIOUS};
use crate::machine::interrupts::{self, with_handler};
use crate::machine::link;
use crate::machine::memory;
use crate::machine::part::Part;
use crate::machine::random::Random;
use crate::machine::sysreg::{cpu, mask, mrs, msr, unmask, wfi};
use crate::machine::time::{self, Timer, now, us};
use crate::machine::uart::say;
use crate::machine::{MAX_CPUS, alias, bootargs, mmio};
use crate::report::{Failure, Verdict, check, check_eq, record};
use core::arch::{asm, global_asm};
use core::sync::atomic::{AtomicU64, Ordering};

/// Periods of the two timers, in microseconds.
const PERIODS: [(Timer, u64); 2] = [(Timer::Virtual, 1000), (Timer::Physical, 3000)];
/// Sent by each CPU to itself and to the next CPU with each check.
const SGI_SELF: u32 = 1;
const SGI_NEXT: u32 = 2;
/// Words of memory that each CPU checks: 1 MiB.
const WORDS: usize = 1 << 17;
/// Words compared with each check, usually.
const SLICE: u64 = 1 << 11;

struct Counts {
    ticks: [AtomicU64; 2],
    sgis: [AtomicU64; 16],
    looks: AtomicU64,
    early: AtomicU64,
    other: AtomicU64,
}

static COUNTS: [Counts; MAX_CPUS] = [const {
    Counts {
        ticks: [const { AtomicU64::new(0) }; 2],
        sgis: [const { AtomicU64::new(0) }; 16],
        looks: AtomicU64::new(0),
        early: AtomicU64::new(0),
        other: AtomicU64::new(0),
    }
}; MAX_CPUS];

/// Runs the suite.
pub fn run() {
    gic::start_distributor();
    gic::start_cpu();
    let count = cpus::start_all();
    say!("watch begins");
    for cpu in 1..count {
        cpus::begin(cpu, watch_and_record);
    }
    watch_and_record();
    for cpu in 1..count {
        cpus::finish(cpu);
    }
    for (cpu, counts) in COUNTS.iter().enumerate().take(count) {
        say!(
            "watch-result cpu={cpu} looks={} ticks={}",
            counts.looks.load(Ordering::Relaxed),
            counts.ticks[0].load(Ordering::Relaxed)
        );
    }
}

fn watch_and_record() {
    let verdict = watch();
    record("watch", verdict);
}

fn handler(_line: interrupts::Line) {
    let counts = &COUNTS[cpu()];
    let interrupt = gic::acknowledge();
    for (place, (timer, period)) in PERIODS.into_iter().enumerate() {
        if interrupt == timer.interrupt() {
            let due = timer.due();
            if timer.counter() < due {
                counts.early.fetch_add(1, Ordering::Relaxed);
            }
            timer.set_due(due + us(period));
            counts.ticks[place].fetch_add(1, Ordering::Relaxed);
        }
    }
    match interrupt {
        sgi @ 0..16 => {
            counts.sgis[sgi as usize].fetch_add(1, Ordering::Release);
        }
        27 | 30 => {}
        _ => {
            counts.other.fetch_add(1, Ordering::Relaxed);
        }
    }
    if interrupt != SPURIOUS {
        gic::end(interrupt);
    }
}

fn watch() -> Verdict {
    gic::start_cpu();
    let duration = us(bootargs::number_or("ms", 1000) * 1000);
    let sleeps = bootargs::number_or("sleep", 0) != 0;
    let seed = bootargs::number_or("seed", 0) << 8 | cpu() as u64;
    let words = own_words();
    let mut random = Random::new(seed);
    words.fill_with(|| random.next());
    let patterns: [u64; 64] = core::array::from_fn(|_| random.next());
    let registers = Registers::set(&mut random);

    let start = now();
    let mut duration = duration;
    let verdict = with_handler(handler, || {
        for (timer, period) in PERIODS {
            timer.start_us(period);
        }
        let verdict = look_until(start + duration, sleeps, seed, words, &patterns, &registers);
        duration = duration.min(now() - start);
        // A CPU that did not run has missed ticks, which it now handles.
        let counts = &COUNTS[cpu()];
        unmask();
        time::wait(|| {
            let ticks = |place: usize| counts.ticks[place].load(Ordering::Relaxed);
            let wanted = |place: usize| duration / us(PERIODS[place].1);
            ticks(0) >= wanted(0) && ticks(1) >= wanted(1)
        });
        mask();
        for (timer, _) in PERIODS {
            timer.stop();
        }
        verdict
    });
    verdict?;
    let counts = &COUNTS[cpu()];
    check_eq!(
        counts.early.load(Ordering::Relaxed),
        0,
        "timers that expired early"
    );
    check_eq!(
        counts.other.load(Ordering::Relaxed),
        0,
        "interrupts of others"
    );
    for (place, (timer, period)) in PERIODS.into_iter().enumerate() {
        let ticks = counts.ticks[place].load(Ordering::Relaxed);
        let wanted = duration / us(period);
        check!(ticks >= wanted, "{ticks} of {wanted} ticks of {timer:?}");
    }
    Ok(())
}

fn own_words() -> &'static mut [u64] {
    let [.., last] = memory::free();
    let start = last.start + (cpu() * WORDS * 8) as u64;
    let end = start + (WORDS * 8) as u64;
    if end > last.end {
        panic!("not enough memory");
    }
    Part { start, end }.words()
}

fn look_until(
    end: u64,
    sleeps: bool,
    seed: u64,
    words: &[u64],
    patterns: &[u64; 64],
    registers: &Registers,
) -> Verdict {
    let counts = &COUNTS[cpu()];
    let next = (cpu() + 1) % cpus::count();
    let mut at = 0;
    let mut random = Random::new(seed);
    // Each CPU has its own page at this virtual address.
    let alias = alias::show(words.as_ptr() as u64);
    let slice = bootargs::number_or("slice", SLICE) as usize;
    let has_link = bootargs::number_or("link", 0) != 0;
    let mut peer_was_there = false;
    while now() < end {
        if has_link {
            match link::peer() {
                0 if peer_was_there => break,
                peer => peer_was_there |= peer != 0,
            }
        }
        // Floating point registers keep their values through all that happens in between.
        set_vectors(patterns);
        gic::send_sgi(SGI_SELF, 1 << cpu());
        gic::send_sgi(SGI_NEXT, 1 << next);
        unmask();
        for (offset, word) in words[at..at + slice].iter().enumerate() {
            let wanted = random.next();
            if *word != wanted {
                mask();
                return Err(Failure::new(format_args!(
                    "word {} is {word:#x}, not {wanted:#x}",
                    at + offset
                )));
            }
        }
        mask();
        if sleeps {
            wfi();
            unmask();
            mask();
        }
        check!(
            vectors_are(patterns),
            "a floating point register has changed"
        );
        registers.check()?;
        let shown = mmio::read64(alias);
        check_eq!(shown, words[0], "what an address shows on this CPU");
        at += slice;
        if at + slice > words.len() {
            at = 0;
            random = Random::new(seed);
        }
        let looks = counts.looks.fetch_add(1, Ordering::Relaxed) + 1;
        let own = counts.sgis[SGI_SELF as usize].load(Ordering::Relaxed);
        check_eq!(own, looks, "SGIs to itself");
    }
    Ok(())
}

macro_rules! registers {
    ($($name:ident: $mask:expr),* $(,)?) => {
        /// Registers that only this program changes, and the bits that it may set.
        #[allow(non_snake_case)]
        struct Registers {
            $($name: u64,)*
        }

        impl Registers {
            /// Sets them to patterns.
            #[allow(non_snake_case)]
            fn set(random: &mut Random) -> Self {
                $(
                    let $name = random.next() & $mask;
                    msr!($name, $name);
                )*
                Self { $($name,)* }
            }

            /// Checks that they have kept their patterns.
            fn check(&self) -> Verdict {
                $(check_eq!(mrs!($name), self.$name, stringify!($name));)*
                Ok(())
            }
        }
    };
}

registers! {
    TPIDR_EL0: !0,
    TPIDRRO_EL0: !0,
    TPIDR_EL1: !0,
    CONTEXTIDR_EL1: 0xFFFF_FFFF,
    FAR_EL1: !0,
    SP_EL0: !0xF,
    TTBR1_EL1: 0xFFFF_FFFF_F000,
    CSSELR_EL1: 0x1,
    CNTKCTL_EL1: 0x3,
}

global_asm!(
    ".pushsection .text, \"ax\"",
    ".arch_extension fp",
    // Loads q0 to q31 from x0: 64 words, of which each register takes two.
    ".global load_vectors",
    "load_vectors:",
    "ldp q0, q1, [x0]",
    "ldp q2, q3, [x0, #32]",
    "ldp q4, q5, [x0, #64]",
    "ldp q6, q7, [x0, #96]",
    "ldp q8, q9, [x0, #128]",
    "ldp q10, q11, [x0, #160]",
    "ldp q12, q13, [x0, #192]",
    "ldp q14, q15, [x0, #224]",
    "ldp q16, q17, [x0, #256]",
    "ldp q18, q19, [x0, #288]",
    "ldp q20, q21, [x0, #320]",
    "ldp q22, q23, [x0, #352]",
    "ldp q24, q25, [x0, #384]",
    "ldp q26, q27, [x0, #416]",
    "ldp q28, q29, [x0, #448]",
    "ldp q30, q31, [x0, #480]",
    "ret",
    // Stores them at x0.
    ".global store_vectors",
    "store_vectors:",
    "stp q0, q1, [x0]",
    "stp q2, q3, [x0, #32]",
    "stp q4, q5, [x0, #64]",
    "stp q6, q7, [x0, #96]",
    "stp q8, q9, [x0, #128]",
    "stp q10, q11, [x0, #160]",
    "stp q12, q13, [x0, #192]",
    "stp q14, q15, [x0, #224]",
    "stp q16, q17, [x0, #256]",
    "stp q18, q19, [x0, #288]",
    "stp q20, q21, [x0, #320]",
    "stp q22, q23, [x0, #352]",
    "stp q24, q25, [x0, #384]",
    "stp q26, q27, [x0, #416]",
    "stp q28, q29, [x0, #448]",
    "stp q30, q31, [x0, #480]",
    "ret",
    ".popsection",
);

unsafe extern "C" {
    fn load_vectors(from: *const u64);
    fn store_vectors(to: *mut u64);
}

/// Rounding mode and flush-to-zero: bits of `FPCR` that are kept.
const FPCR: u64 = 0b11 << 22 | 1 << 24;
/// Saturation and exceptions: bits of `FPSR` that are kept.
const FPSR: u64 = 1 << 27 | 0b11111;

pub(super) fn set_vectors(patterns: &[u64; 64]) {
    // SAFETY: this program has no floating point code of its own, so the registers are free; they
    // are loaded from as many words as there are.
    unsafe {
        load_vectors(patterns.as_ptr());
        // FPCR and FPSR by encoding: the assembler of this target does not accept their names.
        asm!("msr s3_3_c4_c4_0, {}", in(reg) patterns[0] & FPCR);
        asm!("msr s3_3_c4_c4_1, {}", in(reg) patterns[1] & FPSR);
    }
}

pub(super) fn vectors_are(patterns: &[u64; 64]) -> bool {
    let mut found = [0; 64];
    let (control, status): (u64, u64);
    // SAFETY: stores into as many words as there are.
    unsafe {
        store_vectors(found.as_mut_ptr());
        asm!("mrs {}, s3_3_c4_c4_0", out(reg) control);
        asm!("mrs {}, s3_3_c4_c4_1", out(reg) status);
    }
    found == *patterns && control == patterns[0] & FPCR && status == patterns[1] & FPSR
}
