// SPDX-License-Identifier: MIT OR Apache-2.0
//! `suite=attack kind=KIND ms=N`: all CPUs do the same thing without end, for `ms=` milliseconds (default 1000): something that costs
//! the hypervisor time, or that might confuse it. A guest of a higher priority on the same cores must not notice.

use super::link_attacks::{self, Attack};
use crate::machine::gic::{GICD, GICR, REDISTRIBUTOR_SIZE};
use crate::machine::interrupts::take_pending;
use crate::machine::mmio;
use crate::machine::psci::{Conduit, call, call_by, function, power};
use crate::machine::random::Random;
use crate::machine::sysreg::{cpu, mask, mrs, msr, wfi};
use crate::machine::time::{ENABLE, Timer, now, us};
use crate::machine::uart::{CONSOLE, register as uart};
use crate::machine::{bootargs, cpus, gic, interrupts, psci, traps};
use crate::report::{Verdict, check, record};
use core::arch::{asm, global_asm};
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use gic::register;
use spumone_config::gic::SGI_FRAME;

global_asm!(
    ".pushsection .text, \"ax\"",
    // Where a CPU starts that turns itself off at once: PSCI CPU_OFF.
    "attack_off: movz x0, #0x0002",
    "movk x0, #0x8400, lsl #16",
    "hvc #0",
    "b attack_off",
    // Where a CPU starts that suspends itself to powerdown (CPU_SUSPEND, 64-bit), and resumes here, until the time that is
    // its context.
    "attack_suspend: mrs x1, cntvct_el0",
    "cmp x1, x0",
    "b.hs attack_off",
    "mov x3, x0",
    "movz x0, #0x0001",
    "movk x0, #0xC400, lsl #16",
    "movz x1, #1, lsl #16",
    "adr x2, attack_suspend",
    "hvc #0",
    "mov x0, x3",
    "b attack_suspend",
    ".popsection",
);

unsafe extern "C" {
    fn attack_off();
    fn attack_suspend();
}

/// The end of the attack.
static END: AtomicU64 = AtomicU64::new(0);
/// Which attack the CPUs run.
static KIND: AtomicUsize = AtomicUsize::new(0);
/// How often any CPU has done it.
static ROUNDS: AtomicU64 = AtomicU64::new(0);

/// SGIs of this suite.
const SGI: u32 = 3;
/// A higher priority than the usual one.
const HIGH: u8 = 0x20;
/// Priority registers of SGIs and PPIs, of 32 bits each.
const PRIORITY_WORDS: u32 = 8;
/// The bytes that `DC` instructions go over, from the start of this program on.
const MEMORY: u64 = 0x4000_0000;
const LINE: u64 = 64;

/// The attacks by name. The figure `hostile` runs them (`bench/src/experiments/hostile.rs`).
const ATTACKS: &[(&str, Attack)] = &[
    ("spin", |_| core::hint::spin_loop()),
    // Sleep and its ends.
    ("wfe", |_| wfe()),
    ("wfi", |_| {
        Timer::Virtual.set_due(0);
        Timer::Virtual.set_control(ENABLE);
        wfi();
    }),
    ("short-sleep", |_| {
        Timer::Virtual.start_us(2);
        wfi();
        Timer::Virtual.stop();
    }),
    // All SGIs and PPIs are pending and masked, but its timer.
    ("sleep-masked", |_| {
        let frame = gic::redistributor(cpu()) + SGI_FRAME;
        mmio::write32(frame + register::ISENABLER, !0);
        mmio::write32(frame + register::ISPENDR, !0);
        gic::set_priority(Timer::Physical.interrupt(), HIGH);
        msr!(ICC_PMR_EL1, u64::from(gic::USUAL));
        Timer::Physical.start_us(7);
        wfi();
        Timer::Physical.stop();
    }),
    ("suspend", |_| {
        Timer::Physical.start_us(1);
        call(function::CPU_SUSPEND, [0; 3]);
        Timer::Physical.stop();
    }),
    // Timers and interrupts.
    ("timers-past", |_| {
        for timer in [Timer::Virtual, Timer::Physical] {
            timer.set_due(0);
            timer.set_control(ENABLE);
        }
        take_pending();
    }),
    ("timers", |random| {
        Timer::Virtual.set_left(random.below(300) as i32);
        Timer::Virtual.set_control(ENABLE);
        Timer::Physical.set_left(random.next() as i32);
        Timer::Physical.set_control(ENABLE);
        take_pending();
    }),
    ("sgi-self", |_| {
        gic::send_sgi(SGI, 1 << cpu());
        take_pending();
    }),
    ("sgi-all", |random| {
        gic::send_sgi(random.below(16) as u32, 0xFF);
        take_pending();
    }),
    ("sgi-group-0", |random| {
        gic::send_sgi_group_0(random.below(16) as u32, 0xFF);
        take_pending();
    }),
    ("sgi-anywhere", |random| {
        msr!(ICC_SGI1R_EL1, random.next());
        msr!(ICC_ASGI1R_EL1, random.next());
    }),
    ("sgi-and-sleep", |_| {
        gic::send_sgi_to_others(SGI);
        Timer::Virtual.start_us(20);
        wfi();
        take_pending();
    }),
    // The CPU interface.
    ("priority-mask", |random| {
        msr!(ICC_PMR_EL1, random.below(256));
        take_pending();
    }),
    ("groups", |random| {
        msr!(ICC_IGRPEN1_EL1, random.below(2));
        msr!(ICC_IGRPEN0_EL1, random.below(2));
        gic::send_sgi(SGI, 1 << cpu());
        take_pending();
    }),
    ("end-anything", |random| {
        msr!(ICC_CTLR_EL1, random.below(2) << 1);
        msr!(ICC_EOIR1_EL1, random.below(1024));
        msr!(ICC_EOIR0_EL1, random.below(1024));
        msr!(ICC_DIR_EL1, random.below(1024));
    }),
    // The distributor and the redistributors.
    ("gicd-read", |_| {
        mmio::read32(GICD + register::TYPER);
    }),
    ("gicd-control", |random| {
        mmio::write32(GICD + register::CTLR, random.below(4) as u32);
    }),
    ("gicd-anywhere", |random| {
        anywhere(random, GICD, 0x1_0000);
    }),
    ("gicr-anywhere", |random| {
        let all = REDISTRIBUTOR_SIZE * cpus::count() as u64;
        anywhere(random, GICR, all);
    }),
    ("gicr-pend", |_| {
        let frame = gic::redistributor(cpu()) + SGI_FRAME;
        mmio::write32(frame + register::ISPENDR, !0);
        mmio::write32(frame + register::ISACTIVER, !0);
        mmio::write32(frame + register::ICACTIVER, !0);
    }),
    ("gicr-priority", |random| {
        let frame = gic::redistributor(cpu()) + SGI_FRAME;
        let word = 4 * random.below(PRIORITY_WORDS.into());
        gic::send_sgi(SGI, 1 << cpu());
        mmio::write32(frame + register::IPRIORITYR + word, random.next() as u32);
        take_pending();
    }),
    ("gicr-sleep", |random| {
        let waker = gic::redistributor(cpu()) + register::WAKER;
        mmio::write32(waker, random.next() as u32);
    }),
    // The firmware.
    ("psci-version", |_| {
        call(function::PSCI_VERSION, [0; 3]);
    }),
    ("smccc-anything", smccc),
    ("trng", |_| {
        call_by(Conduit::Smc, [function::TRNG_RND64, 192, 0, 0]);
    }),
    ("cpu-on-refused", |random| {
        let all = cpus::count() as u64;
        call(function::CPU_ON, [random.below(all), random.next(), 0]);
    }),
    ("affinity", |random| {
        call(function::AFFINITY_INFO, [random.below(16), 0, 0]);
    }),
    // The UART.
    ("print", |_| CONSOLE.write(uart::DR, u32::from(b'x'))),
    ("uart-interrupts", |random| {
        CONSOLE.write(uart::IMSC, random.next() as u32 & 0x7FF);
        CONSOLE.write(uart::ICR, 0x7FF);
    }),
    // Registers that trap, and exceptions of its own.
    ("id-registers", |_| {
        let _ = mrs!(ID_AA64PFR0_EL1) | mrs!(ID_AA64MMFR0_EL1) | mrs!(ID_AA64ISAR1_EL1);
    }),
    ("debug-registers", |random| {
        msr!(DBGBVR0_EL1, random.next());
        msr!(DBGWVR0_EL1, random.next());
        msr!(MDSCR_EL1, random.next() & 0x1000);
        msr!(OSLAR_EL1, random.below(2));
    }),
    ("performance-monitors", |random| {
        msr!(PMCR_EL0, random.next());
        let _ = mrs!(PMCR_EL0) | mrs!(PMCCNTR_EL0);
    }),
    ("undefined", |_| {
        // SAFETY: the exception is caught.
        unsafe { asm!("udf #0", options(nostack)) };
    }),
    ("unaligned", |_| {
        // With the MMU off, all memory is device memory: not aligned, an access faults.
        // SAFETY: the exception is caught; else it would read this program's code.
        unsafe { asm!("ldr xzr, [{}]", in(reg) MEMORY + 1, options(nostack, readonly)) };
    }),
    ("random-instructions", random_instruction),
    // Caches and translations.
    ("tlbi", |random| {
        let value = random.next();
        // SAFETY: the MMU is off: no translation is in use.
        unsafe {
            asm!(
                "tlbi vmalle1is", "tlbi vae1is, {}", "tlbi aside1is, {}", "dsb ish", "isb",
                in(reg) value, in(reg) value, options(nostack)
            )
        };
    }),
    ("set-way", |random| {
        let way = random.next() & 0xFFF_FFFE;
        // SAFETY: cleans and invalidates caches by set and way, which changes no memory.
        unsafe { asm!("dc cisw, {}", in(reg) way, options(nostack)) };
    }),
    ("caches", |random| {
        let line = MEMORY + LINE * random.below(1 << 12);
        // SAFETY: cleans and invalidates this program's memory, which changes none.
        unsafe {
            asm!("dc civac, {}", "ic ialluis", "ic ivau, {}", "dsb ish", "isb",
                in(reg) line, in(reg) line, options(nostack))
        };
    }),
    ("translate", |random| {
        let address = random.next();
        // SAFETY: writes PAR_EL1 only.
        unsafe {
            asm!("at s1e1r, {}", "at s1e0w, {}", in(reg) address, in(reg) address, options(nostack))
        };
    }),
];

/// Attacks of CPU 0, during which the other CPUs are on for a short time only.
const STARTS: &[(&str, fn())] = &[("cpu-on-off", start_and_stop), ("powerdown", power_down)];

/// All attacks that all CPUs do.
fn attacks() -> impl Iterator<Item = &'static (&'static str, Attack)> {
    ATTACKS.iter().chain(link_attacks::ATTACKS)
}

/// Runs the suite.
pub fn run() {
    gic::start_distributor();
    gic::start_cpu();
    let length = us(bootargs::number_or("ms", 1000) * 1000);
    END.store(now() + length, Ordering::Relaxed);
    let kind = bootargs::text("kind").unwrap_or("spin");
    record("attack", attack(kind));
}

fn attack(kind: &str) -> Verdict {
    if let Some((_, start)) = STARTS.iter().find(|(name, _)| *name == kind) {
        start();
    } else {
        let index = attacks().position(|(name, _)| *name == kind);
        check!(index.is_some(), "there is no attack {kind}");
        KIND.store(index.unwrap_or_default(), Ordering::Relaxed);
        link_attacks::prepare();
        let count = cpus::start_all();
        for cpu in 1..count {
            cpus::begin(cpu, work);
        }
        work();
        for cpu in 1..count {
            cpus::finish(cpu);
        }
    }
    let rounds = ROUNDS.load(Ordering::Relaxed);
    check!(rounds > 0, "nothing was done");
    check!(
        link_attacks::has_effect(kind),
        "nothing was received over the link"
    );
    Ok(())
}

fn is_over() -> bool {
    now() >= END.load(Ordering::Relaxed)
}

fn work() {
    let Some((_, attack)) = attacks().nth(KIND.load(Ordering::Relaxed)) else {
        return;
    };
    let mut random = Random::new(now() << 8 | cpu() as u64);
    interrupts::with_handler(end_at_once, || {
        while !is_over() {
            traps::catch(|| attack(&mut random));
            ROUNDS.fetch_add(1, Ordering::Relaxed);
        }
        mask();
    });
    for timer in [Timer::Virtual, Timer::Physical] {
        timer.stop();
    }
    // What the end of the suite needs.
    gic::start_cpu();
    CONSOLE.write(uart::IMSC, 0);
}

fn end_at_once(_line: interrupts::Line) {
    let interrupt = gic::acknowledge();
    let other = mrs!(ICC_IAR0_EL1);
    for timer in [Timer::Virtual, Timer::Physical] {
        timer.stop();
    }
    link_attacks::acknowledge();
    msr!(ICC_EOIR0_EL1, other);
    gic::end(interrupt);
}

fn wfe() {
    // SAFETY: WFE changes no state.
    unsafe { asm!("wfe", options(nostack, preserves_flags)) };
}

/// Reads or writes any register in a window.
fn anywhere(random: &mut Random, base: u64, size: u64) {
    let address = base + (random.below(size) & !3);
    match random.below(2) {
        0 => {
            mmio::read32(address);
        }
        _ => mmio::write32(address, random.next() as u32),
    }
}

/// Any call but those that end this guest, suspend a CPU or turn it off.
fn smccc(random: &mut Random) {
    let id = match random.below(3) {
        0 => random.next() & 0xFFFF_FFFF,
        1 => 0x8400_0000 | random.below(0x100),
        _ => 0xC400_0000 | random.below(0x100),
    };
    let ends = [
        function::CPU_SUSPEND,
        function::CPU_SUSPEND & !(1 << 30),
        function::CPU_OFF,
        function::SYSTEM_OFF,
        function::SYSTEM_RESET,
    ];
    if !ends.contains(&id) {
        call_by(
            Conduit::Hvc,
            [id, random.next(), random.next(), random.next()],
        );
    }
}

/// A word that is no branch, no memory access and no system instruction: those have suites of their own, or would end this program.
fn random_instruction(random: &mut Random) {
    static CODE: [[AtomicUsize; 8]; crate::machine::MAX_CPUS] =
        [const { [const { AtomicUsize::new(0) }; 8] }; crate::machine::MAX_CPUS];
    /// RET.
    const RET: u64 = 0xD65F_03C0;
    /// Bits 28 to 25: data processing with floating point and vectors.
    const VECTORS: u64 = 0b0111 << 25;
    /// Bits that select the class, and the highest bit of the destination: not the link register.
    const FIXED: u64 = 0b1111 << 25 | 1 << 4;
    let word = random.next() & 0xFFFF_FFFF & !FIXED | VECTORS;
    let code = &CODE[cpu()];
    code[0].store((RET << 32 | word) as usize, Ordering::Relaxed);
    let at = code.as_ptr() as u64;
    // SAFETY: the code consists of one instruction, which changes a vector or general register that a function may change, and RET. If
    // it is undefined, the exception is caught.
    unsafe {
        asm!(
            "dc cvau, {at}", "dsb ish", "ic ivau, {at}", "dsb ish", "isb",
            "blr {at}",
            at = in(reg) at, clobber_abi("C"),
        )
    };
}

/// Turns the other CPUs on, each of which turns itself off.
fn start_and_stop() {
    while !is_over() {
        for cpu in 1..cpus::count() as u64 {
            call(function::CPU_ON, [cpu, attack_off as *const () as u64, 0]);
            ROUNDS.fetch_add(1, Ordering::Relaxed);
        }
    }
    wait_until_all_are_off();
}

/// The other CPUs suspend themselves to powerdown without end. An interrupt that is pending wakes them at once.
fn power_down() {
    for cpu in 1..cpus::count() {
        let frame = gic::redistributor(cpu) + SGI_FRAME;
        mmio::write32(frame + register::ISENABLER, 1 << SGI);
        mmio::write32(frame + register::ISPENDR, 1 << SGI);
        let entry = attack_suspend as *const () as u64;
        call(
            function::CPU_ON,
            [cpu as u64, entry, END.load(Ordering::Relaxed)],
        );
        ROUNDS.fetch_add(1, Ordering::Relaxed);
    }
    while !is_over() {
        gic::send_sgi_to_others(SGI);
    }
    wait_until_all_are_off();
}

fn wait_until_all_are_off() {
    for cpu in 1..cpus::count() {
        while psci::affinity_info(cpu) != power::OFF {
            gic::send_sgi_to_others(SGI);
        }
    }
}
