//! `suite=psci`: the firmware's calls (SMCCC DEN0028, PSCI 1.1 DEN0022, TRNG DEN0098), as the
//! hypervisor's documentation promises them. QEMU's own firmware is laxer in places.

use crate::machine::psci::{Conduit, affinity_info, call, call_by, code, function, power};
use crate::machine::sysreg::{cpu, mrs};
use crate::machine::time::{self, Timer};
use crate::machine::{MAX_CPUS, bootargs, cpus, entry, gic, interrupts, traps};
use crate::report::{Verdict, check, check_eq, test, test_everywhere};
use core::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering};

/// Runs the suite.
pub fn run() {
    gic::start_distributor();
    gic::start_cpu();
    test("first-entry", first_entry);
    let cpus = cpus::count();
    if cpus > 1 {
        test("off-before-on", off_before_on);
        for _ in 0..bootargs::number_or("repeat", 10) {
            test("cpu-on-by-all", cpu_on_by_all);
        }
        test("cpu-on-state", cpu_on_state);
        test("cpu-on-refused", cpu_on_refused);
        test("cpu-on-32", cpu_on_32);
        test("cpu-off-and-on", cpu_off_and_on);
        test("cpu-off-keeps-sgis", sgi_while_off);
        for cpu in 1..cpus {
            if affinity_info(cpu) == power::OFF && cpus::start(cpu).is_err() {
                panic!("CPU {cpu} does not start");
            }
        }
    }
    test_everywhere("versions", cpus, versions);
    test_everywhere("features", cpus, features);
    test_everywhere("unknown-calls", cpus, unknown_calls);
    test_everywhere("registers-kept", cpus, registers_kept);
    test_everywhere("affinity-info", cpus, affinity);
    test_everywhere("suspend-standby", cpus, standby);
    test_everywhere("suspend-refused", cpus, suspend_refused);
    test_everywhere("trng", cpus, random_numbers);
    test("suspend-powerdown", powerdown_first);
    if cpus > 1 {
        test("suspend-powerdown-others", powerdown_others);
    }
    test("undefined-instructions", undefined);
}

/// `SCTLR_EL1`: MMU, data and instruction cache.
const MMU_AND_CACHES: u64 = 1 << 0 | 1 << 2 | 1 << 12;
/// `CurrentEL` of EL1.
const EL1: u64 = 1 << 2;
/// All of `DAIF`.
const DAIF: u64 = 0xF << 6;

/// What DEN0022 section 6.4 promises of a CPU that starts.
fn entered_rightly(cpu: usize) -> Verdict {
    let found = entry::at_entry(cpu);
    check_eq!(found.el, EL1, "CurrentEL of CPU {cpu}");
    check_eq!(found.spsel, 1, "SPSel of CPU {cpu}");
    check_eq!(found.daif, DAIF, "DAIF of CPU {cpu}");
    check_eq!(
        found.sctlr & MMU_AND_CACHES,
        0,
        "MMU and caches of CPU {cpu}"
    );
    Ok(())
}

/// The same for a CPU that was off: its timers are off as well. Those of one that was suspended run
/// on, for they are `always-on` (devicetree binding of the timer).
fn entered_afresh(cpu: usize) -> Verdict {
    entered_rightly(cpu)?;
    let found = entry::at_entry(cpu);
    check_eq!(found.timers, 0, "timer controls of CPU {cpu}");
    Ok(())
}

fn first_entry() -> Verdict {
    entered_afresh(0)?;
    check_eq!(
        mrs!(MPIDR_EL1) & 0xFF_00FF_FFFF,
        0,
        "affinity of the first CPU"
    );
    check_eq!(
        affinity_info(0),
        power::ON,
        "AFFINITY_INFO of the first CPU"
    );
    Ok(())
}

fn off_before_on() -> Verdict {
    for cpu in 1..cpus::count() {
        check_eq!(affinity_info(cpu), power::OFF, "AFFINITY_INFO of CPU {cpu}");
    }
    Ok(())
}

fn versions() -> Verdict {
    check_eq!(
        call(function::PSCI_VERSION, [0; 3]),
        0x1_0001,
        "PSCI_VERSION"
    );
    let smccc = call(function::SMCCC_VERSION, [0; 3]);
    check!(smccc >= 0x1_0001, "SMCCC_VERSION {smccc:#x}");
    check_eq!(
        call(function::TRNG_VERSION, [0; 3]) >> 16,
        1,
        "TRNG_VERSION"
    );
    // 2: no migration is needed, or there is no such call.
    let migrate = call(function::MIGRATE_INFO_TYPE, [0; 3]);
    check!(
        migrate == 2 || migrate == code::NOT_SUPPORTED,
        "MIGRATE_INFO_TYPE {migrate}"
    );
    let by_smc = call_by(Conduit::Smc, [function::PSCI_VERSION, 0, 0, 0])[0];
    check_eq!(by_smc, 0x1_0001, "PSCI_VERSION by SMC");
    Ok(())
}

fn features() -> Verdict {
    let has = |id| call(function::PSCI_FEATURES, [id, 0, 0]);
    for id in [
        function::PSCI_VERSION,
        function::CPU_SUSPEND,
        function::CPU_OFF,
        function::CPU_ON_32,
        function::CPU_ON,
        function::AFFINITY_INFO_32,
        function::AFFINITY_INFO,
        function::SYSTEM_OFF,
        function::SYSTEM_RESET,
        function::PSCI_FEATURES,
        function::SMCCC_VERSION,
    ] {
        check_eq!(has(id), code::SUCCESS, "PSCI_FEATURES of {id:#x}");
    }
    // MEM_PROTECT, an id of nothing, an id of the TRNG.
    for id in [
        0x8400_0013,
        0x8400_00FF,
        0xC400_00FF,
        0x1234,
        function::TRNG_RND64,
    ] {
        check_eq!(has(id), code::NOT_SUPPORTED, "PSCI_FEATURES of {id:#x}");
    }
    let arch = |id| call(function::ARCH_FEATURES, [id, 0, 0]);
    check_eq!(
        arch(function::ARCH_FEATURES),
        code::SUCCESS,
        "ARCH_FEATURES of itself"
    );
    check_eq!(
        arch(0x8000_7FFE),
        code::NOT_SUPPORTED,
        "ARCH_FEATURES of nothing"
    );
    Ok(())
}

fn unknown_calls() -> Verdict {
    for id in [
        0,
        0x1234,
        0x8400_00FF,
        0xC400_00FF,
        0x8200_0000,
        0xC600_0001,
        0xFFFF_FFFF,
    ] {
        for conduit in [Conduit::Hvc, Conduit::Smc] {
            let x0 = call_by(conduit, [id, 1, 2, 3])[0];
            check_eq!(x0 as i64, code::NOT_SUPPORTED, "{conduit:?} {id:#x}");
        }
    }
    Ok(())
}

/// A call changes no register that is not a result (SMCCC 1.1): x4 to x17 here, the rest is the
/// compiler's to notice.
fn registers_kept() -> Verdict {
    for conduit in [Conduit::Hvc, Conduit::Smc] {
        let [_, x1, x2, x3] = call_by(conduit, [function::PSCI_VERSION, 11, 12, 13]);
        check_eq!([x1, x2, x3], [11, 12, 13], "x1 to x3 after {conduit:?}");
    }
    let mut sum: u64;
    // SAFETY: the call changes x0 to x3 alone, which is what is tested.
    unsafe {
        core::arch::asm!(
            "mov x4, #4",
            "mov x5, #5",
            "mov x6, #6",
            "mov x7, #7",
            "mov x8, #8",
            "mov x16, #16",
            "mov x17, #17",
            "hvc #0",
            "add x4, x4, x5",
            "add x6, x6, x7",
            "add x8, x8, x16",
            "add x4, x4, x6",
            "add x8, x8, x17",
            "add x4, x4, x8",
            inout("x0") function::PSCI_VERSION => _,
            out("x1") _, out("x2") _, out("x3") _,
            out("x4") sum,
            out("x5") _, out("x6") _, out("x7") _, out("x8") _, out("x16") _, out("x17") _,
        );
    }
    check_eq!(
        sum,
        4 + 5 + 6 + 7 + 8 + 16 + 17,
        "x4 to x8, x16, x17 together"
    );
    Ok(())
}

fn affinity() -> Verdict {
    let count = cpus::count() as u64;
    let info = |target, level| call(function::AFFINITY_INFO, [target, level, 0]);
    for cpu in 0..count {
        check_eq!(info(cpu, 0), power::ON, "CPU {cpu}");
        let by_32 = call(function::AFFINITY_INFO_32, [cpu, 0, 0]);
        check_eq!(by_32, power::ON, "CPU {cpu}, 32-bit call");
    }
    check_eq!(info(0, 1), power::ON, "level 1");
    for (target, level) in [
        (count, 0),
        (0x100, 0),
        (1 << 32, 0),
        (1 << 24, 0),
        (0, 4),
        (0, 0xFFFF),
    ] {
        let found = info(target, level);
        check_eq!(
            found,
            code::INVALID_PARAMETERS,
            "CPU {target:#x}, level {level}"
        );
    }
    Ok(())
}

static RESULTS: [AtomicI64; MAX_CPUS] = [const { AtomicI64::new(0) }; MAX_CPUS];
static GATE: AtomicUsize = AtomicUsize::new(0);
static CONTEXT: AtomicU64 = AtomicU64::new(0);

/// Turns this CPU off, after which another may see that it is.
fn turn_off() {
    let result = call(function::CPU_OFF, [0; 3]);
    panic!("CPU_OFF returned {result}");
}

/// Has a CPU turn itself off, and waits until it is.
fn turn_off_and_wait(cpu: usize) -> Verdict {
    cpus::begin(cpu, turn_off);
    let off = time::wait(|| affinity_info(cpu) == power::OFF);
    check!(off, "CPU {cpu} is not off: {}", affinity_info(cpu));
    cpus::forget_work(cpu);
    Ok(())
}

fn start(cpu: usize) -> Verdict {
    match cpus::start(cpu) {
        Ok(()) => Ok(()),
        Err(error) => Err(crate::report::Failure::new(format_args!(
            "CPU {cpu} does not start: {error}"
        ))),
    }
}

fn turn_last_on() {
    let last = cpus::count() - 1;
    GATE.fetch_add(1, Ordering::AcqRel);
    while GATE.load(Ordering::Acquire) < last {
        core::hint::spin_loop();
    }
    let arguments = [last as u64, entry::secondary_entry(), 0];
    RESULTS[cpu()].store(call(function::CPU_ON, arguments), Ordering::Release);
}

/// All CPUs turn the last one on at once: one has success, it runs once.
fn cpu_on_by_all() -> Verdict {
    let count = cpus::count();
    let last = count - 1;
    for cpu in 1..last {
        if affinity_info(cpu) == power::OFF {
            start(cpu)?;
        }
    }
    if affinity_info(last) == power::ON {
        turn_off_and_wait(last)?;
    }
    let entries = entry::at_entry(last).entries;
    GATE.store(0, Ordering::Release);
    for cpu in 1..last {
        cpus::begin(cpu, turn_last_on);
    }
    turn_last_on();
    for cpu in 1..last {
        cpus::finish(cpu);
    }
    let mut successes = 0;
    for (cpu, result) in RESULTS.iter().enumerate().take(last) {
        match result.load(Ordering::Acquire) {
            code::SUCCESS => successes += 1,
            code::ALREADY_ON | code::ON_PENDING => {}
            result => check!(false, "CPU {cpu} got {result}"),
        }
    }
    check_eq!(successes, 1, "CPUs that turned CPU {last} on");
    check!(
        time::wait(|| entry::at_entry(last).entries > entries),
        "CPU {last} does not run"
    );
    check!(
        time::wait(|| affinity_info(last) == power::ON),
        "CPU {last} is not on"
    );
    time::delay_us(500);
    check_eq!(
        entry::at_entry(last).entries,
        entries + 1,
        "entries of CPU {last}"
    );
    let again = call(function::CPU_ON, [last as u64, entry::secondary_entry(), 0]);
    check_eq!(again, code::ALREADY_ON, "CPU_ON of a CPU that is on");
    Ok(())
}

fn cpu_on_state() -> Verdict {
    for cpu in 1..cpus::count() {
        if affinity_info(cpu) == power::ON {
            turn_off_and_wait(cpu)?;
        }
        let context = 0xC0FF_EE00_1234_5600 + cpu as u64;
        let arguments = [cpu as u64, entry::secondary_entry(), context];
        let entries = entry::at_entry(cpu).entries;
        check_eq!(
            call(function::CPU_ON, arguments),
            code::SUCCESS,
            "CPU_ON of {cpu}"
        );
        check!(
            time::wait(|| entry::at_entry(cpu).entries > entries),
            "CPU {cpu} does not run"
        );
        check_eq!(entry::at_entry(cpu).x0, context, "context of CPU {cpu}");
        entered_afresh(cpu)?;
        cpus::run(cpu, || {
            CONTEXT.store(mrs!(MPIDR_EL1) & 0xFF_00FF_FFFF, Ordering::Release)
        });
        check_eq!(
            CONTEXT.load(Ordering::Acquire),
            cpu as u64,
            "affinity of CPU {cpu}"
        );
    }
    Ok(())
}

fn cpu_on_refused() -> Verdict {
    let count = cpus::count() as u64;
    let entry = entry::secondary_entry();
    let on = |target, entry| call(function::CPU_ON, [target, entry, 0]);
    check_eq!(on(0, entry), code::ALREADY_ON, "of itself");
    for target in [
        count,
        0xFF,
        0x100,
        0x1_0000,
        1 << 24,
        1 << 31,
        1 << 32,
        u64::MAX,
    ] {
        check_eq!(
            on(target, entry),
            code::INVALID_PARAMETERS,
            "of CPU {target:#x}"
        );
    }
    turn_off_and_wait(1)?;
    // No memory there: devices, nothing, the end of the address space.
    for address in [
        0,
        0x0900_0000,
        0x0800_0000,
        0x3FFF_FFFC,
        0xFF_FFFF_F000,
        u64::MAX - 3,
    ] {
        check_eq!(on(1, address), code::INVALID_ADDRESS, "at {address:#x}");
    }
    check_eq!(
        affinity_info(1),
        power::OFF,
        "AFFINITY_INFO after what was refused"
    );
    start(1)
}

/// The 32-bit call takes 32 bits of each argument.
fn cpu_on_32() -> Verdict {
    turn_off_and_wait(1)?;
    let entries = entry::at_entry(1).entries;
    let upper = 0xDEAD << 32;
    let arguments = [1 | upper, entry::secondary_entry() | upper, 0x1234 | upper];
    check_eq!(
        call(function::CPU_ON_32, arguments),
        code::SUCCESS,
        "CPU_ON, 32-bit"
    );
    check!(
        time::wait(|| entry::at_entry(1).entries > entries),
        "CPU 1 does not run"
    );
    check_eq!(entry::at_entry(1).x0, 0x1234, "context of CPU 1");
    cpus::run(1, || {});
    Ok(())
}

fn cpu_off_and_on() -> Verdict {
    for round in 0..5 {
        for cpu in 1..cpus::count() {
            turn_off_and_wait(cpu)?;
        }
        let before: [u64; MAX_CPUS] = core::array::from_fn(|cpu| entry::at_entry(cpu).entries);
        time::delay_us(500);
        for cpu in 1..cpus::count() {
            check_eq!(affinity_info(cpu), power::OFF, "AFFINITY_INFO of CPU {cpu}");
            let entries = entry::at_entry(cpu).entries;
            check_eq!(
                entries,
                before[cpu],
                "entries of CPU {cpu} while off, round {round}"
            );
            start(cpu)?;
            let entries = entry::at_entry(cpu).entries;
            check_eq!(
                entries,
                before[cpu] + 1,
                "entries of CPU {cpu}, round {round}"
            );
        }
    }
    Ok(())
}

fn take_one() {
    gic::start_cpu();
    interrupts::take_what_is_there();
}

/// An SGI does not turn a CPU on that is off.
fn sgi_while_off() -> Verdict {
    turn_off_and_wait(1)?;
    let entries = entry::at_entry(1).entries;
    gic::send_sgi(3, 1 << 1);
    time::delay_us(1000);
    check_eq!(affinity_info(1), power::OFF, "AFFINITY_INFO after an SGI");
    check_eq!(entry::at_entry(1).entries, entries, "entries after an SGI");
    start(1)?;
    cpus::run(1, take_one);
    interrupts::forget(1);
    Ok(())
}

const POWERDOWN: u64 = 1 << 16;

fn suspend_refused() -> Verdict {
    let suspend = |state, entry| call(function::CPU_SUSPEND, [state, entry, 0]);
    let entry = entry::secondary_entry();
    // Reserved bits; a level above the core's.
    for state in [1 << 17, 1 << 31, 1 << 24, 3 << 24] {
        check_eq!(
            suspend(state, entry),
            code::INVALID_PARAMETERS,
            "state {state:#x}"
        );
    }
    for address in [0, 0x0900_0000, entry + 1] {
        let result = suspend(POWERDOWN, address);
        check_eq!(result, code::INVALID_ADDRESS, "powerdown to {address:#x}");
    }
    Ok(())
}

fn standby() -> Verdict {
    gic::start_cpu();
    interrupts::forget(cpu());
    for _ in 0..5 {
        let due = Timer::Virtual.start_us(500);
        let before = interrupts::count(cpu());
        // As WFI, it may end early.
        while Timer::Virtual.control() & time::ISTATUS == 0 {
            let result = call(function::CPU_SUSPEND, [0, 0, 0]);
            check_eq!(result, code::SUCCESS, "CPU_SUSPEND to standby");
        }
        check!(
            Timer::Virtual.counter() >= due,
            "awake before the timer was due"
        );
        check!(interrupts::take(before + 1), "the timer does not come");
        Timer::Virtual.stop();
    }
    // With an interrupt pending it returns at once.
    gic::send_sgi(2, 1 << cpu());
    check_eq!(
        call(function::CPU_SUSPEND, [0, 0, 0]),
        code::SUCCESS,
        "CPU_SUSPEND"
    );
    interrupts::take_what_is_there();
    interrupts::forget(cpu());
    Ok(())
}

static RESUMED: [AtomicU64; MAX_CPUS] = [const { AtomicU64::new(0) }; MAX_CPUS];
/// Where the first CPU goes on when it has resumed: its callee-saved registers and stack pointer.
static FIRST: [AtomicU64; 13] = [const { AtomicU64::new(0) }; 13];

core::arch::global_asm!(
    ".pushsection .text, \"ax\"",
    // Saves what a function must keep in the area at x0, then calls CPU_SUSPEND to powerdown with
    // the entry point in x1. Returns 0 in x0 after the resume, else the error.
    ".global suspend_first",
    "suspend_first:",
    "stp x19, x20, [x0]",
    "stp x21, x22, [x0, #16]",
    "stp x23, x24, [x0, #32]",
    "stp x25, x26, [x0, #48]",
    "stp x27, x28, [x0, #64]",
    "stp x29, x30, [x0, #80]",
    "mov x2, sp",
    "str x2, [x0, #96]",
    "mov x2, x1",
    "mov x3, x0",
    "ldr x0, =0xC4000001",
    "mov x1, #0x10000",
    "hvc #0",
    "ret",
    // Called when the CPU has come by its entry point: goes back to where it was suspended.
    ".global resume_first",
    "resume_first:",
    "ldp x19, x20, [x0]",
    "ldp x21, x22, [x0, #16]",
    "ldp x23, x24, [x0, #32]",
    "ldp x25, x26, [x0, #48]",
    "ldp x27, x28, [x0, #64]",
    "ldp x29, x30, [x0, #80]",
    "ldr x2, [x0, #96]",
    "mov sp, x2",
    "mov x0, #0",
    "ret",
    ".popsection",
);

/// Goes on where the first CPU was suspended.
fn back_to_first() {
    unsafe extern "C" {
        fn resume_first(area: *const AtomicU64) -> !;
    }
    // SAFETY: `suspend_first` has saved there, and nothing has touched that stack since: a CPU
    // that comes by its entry point again has another one.
    unsafe { resume_first(FIRST.as_ptr()) }
}

/// The first CPU powers down and resumes by its timer.
fn powerdown_first() -> Verdict {
    unsafe extern "C" {
        fn suspend_first(area: *const AtomicU64, entry: u64) -> i64;
    }
    let entries = entry::at_entry(0).entries;
    for round in 0..3 {
        // The interface loses its state each time, and an interrupt that it holds back wakes nobody.
        gic::start_cpu();
        Timer::Virtual.start_us(2000);
        cpus::on_entry(0, back_to_first);
        // SAFETY: the area is large enough; the stack stays as it is.
        let result = unsafe { suspend_first(FIRST.as_ptr(), entry::secondary_entry()) };
        Timer::Virtual.stop();
        check_eq!(result, 0, "CPU_SUSPEND to powerdown, round {round}");
        let found = entry::at_entry(0).entries;
        check_eq!(found, entries + round + 1, "entries of the first CPU");
        entered_rightly(0)?;
    }
    gic::start_cpu();
    Ok(())
}

/// Powers down until an interrupt comes; resumes at the usual entry point.
fn power_down() {
    gic::start_cpu();
    RESUMED[cpu()].fetch_add(1, Ordering::Release);
    let context = 0xFEED_0000 + cpu() as u64;
    let arguments = [POWERDOWN, entry::secondary_entry(), context];
    let result = call(function::CPU_SUSPEND, arguments);
    panic!("CPU_SUSPEND to powerdown returned {result}");
}

fn powerdown_others() -> Verdict {
    for cpu in 1..cpus::count() {
        let entries = entry::at_entry(cpu).entries;
        RESUMED[cpu].store(0, Ordering::Release);
        cpus::begin(cpu, power_down);
        let suspending = time::wait(|| RESUMED[cpu].load(Ordering::Acquire) == 1);
        check!(suspending, "CPU {cpu} does not suspend");
        time::delay_us(1000);
        check_eq!(
            affinity_info(cpu),
            power::ON,
            "AFFINITY_INFO of CPU {cpu}, suspended"
        );
        let on = call(function::CPU_ON, [cpu as u64, entry::secondary_entry(), 0]);
        check_eq!(on, code::ALREADY_ON, "CPU_ON of CPU {cpu}, suspended");
        check_eq!(
            entry::at_entry(cpu).entries,
            entries,
            "entries of CPU {cpu}, suspended"
        );
        // It will wait for new work.
        cpus::forget_work(cpu);
        gic::send_sgi(5, 1 << cpu);
        let awake = time::wait(|| entry::at_entry(cpu).entries > entries);
        check!(awake, "an SGI does not wake CPU {cpu}");
        check_eq!(
            entry::at_entry(cpu).x0,
            0xFEED_0000 + cpu as u64,
            "context of CPU {cpu}"
        );
        entered_afresh(cpu)?;
        cpus::run(cpu, take_one);
        interrupts::forget(cpu);
    }
    Ok(())
}

fn random_numbers() -> Verdict {
    for id in [
        function::TRNG_VERSION,
        function::TRNG_FEATURES,
        function::TRNG_RND64,
    ] {
        check_eq!(
            call(function::TRNG_FEATURES, [id, 0, 0]),
            code::SUCCESS,
            "of {id:#x}"
        );
    }
    let uuid = call_by(Conduit::Hvc, [function::TRNG_GET_UUID, 0, 0, 0]);
    check!(uuid[0] as i32 != -1, "TRNG_GET_UUID is not supported");
    let mut last = [0; 3];
    let mut ever = [0; 3];
    for round in 0..16 {
        let [status, numbers @ ..] = call_by(Conduit::Hvc, [function::TRNG_RND64, 192, 0, 0]);
        check_eq!(status, 0, "TRNG_RND64");
        for place in 0..3 {
            check!(
                numbers[place] != last[place],
                "round {round}: {:#x} twice",
                last[place]
            );
            ever[place] |= numbers[place];
        }
        last = numbers;
    }
    check!(
        ever.iter().all(|bits| bits.count_ones() > 56),
        "bits never set: {ever:x?}"
    );
    let rnd64 = |bits| call_by(Conduit::Hvc, [function::TRNG_RND64, bits, 0, 0]);
    let [status, high, middle, low] = rnd64(8);
    check!(
        status == 0 && high == 0 && middle == 0 && low < 256,
        "8 bits: {low:#x}"
    );
    for bits in [0, 193, 1 << 32] {
        let status = rnd64(bits)[0] as i64;
        check_eq!(
            status,
            code::INVALID_PARAMETERS,
            "TRNG_RND64 of {bits} bits"
        );
    }
    let rnd32 = |bits| call_by(Conduit::Hvc, [function::TRNG_RND32, bits, 0, 0]);
    let [status, numbers @ ..] = rnd32(96);
    check_eq!(status, 0, "TRNG_RND32");
    check!(
        numbers.iter().all(|&number| number >> 32 == 0),
        "more than 32 bits: {numbers:x?}"
    );
    check_eq!(rnd32(97)[0] as i32, -2, "TRNG_RND32 of 97 bits");
    Ok(())
}

/// What EL1 does not have comes back to EL1 as undefined.
fn undefined() -> Verdict {
    let class = traps::catch(|| {
        // A register of EL2.
        let _ = mrs!(HCR_EL2);
    });
    check_eq!(class, Some(traps::class::UNDEFINED), "MRS of HCR_EL2");
    let class = traps::catch(|| {
        // A register of EL3.
        let _ = mrs!(SCR_EL3);
    });
    check_eq!(class, Some(traps::class::UNDEFINED), "MRS of SCR_EL3");
    let class = traps::catch(|| {
        // SAFETY: permanently undefined, and skipped.
        unsafe { core::arch::asm!("udf #0") };
    });
    check_eq!(class, Some(traps::class::UNDEFINED), "UDF");
    Ok(())
}
