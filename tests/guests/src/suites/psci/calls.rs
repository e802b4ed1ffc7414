// SPDX-License-Identifier: MIT OR Apache-2.0
//! Calls that do not change the state of CPUs.

use crate::machine::psci::{Conduit, call, call_by, code, function, power};
use crate::machine::sysreg::mrs;
use crate::machine::{cpus, traps};
use crate::report::{Verdict, check, check_eq, test, test_everywhere};

pub fn run(cpus: usize) {
    test_everywhere("versions", cpus, versions);
    test_everywhere("features", cpus, features);
    test_everywhere("unknown-calls", cpus, unknown_calls);
    test_everywhere("registers-kept", cpus, registers_kept);
    test_everywhere("affinity-info", cpus, affinity);
    test("undefined-instructions", undefined);
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
    // 2: no migration is needed; or the call does not exist.
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
    // MEM_PROTECT, an id without a function, an id of the TRNG.
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
    // Nothing, then the workarounds for speculation, which QEMU's firmware does not have.
    for id in [0x8000_7FFE, 0x8000_8000, 0x8000_7FFF, 0x8000_3FFF] {
        check_eq!(arch(id), code::NOT_SUPPORTED, "ARCH_FEATURES of {id:#x}");
    }
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
        // Workarounds, which are not offered.
        0x8000_8000,
        0x8000_7FFF,
        0x8000_3FFF,
    ] {
        for conduit in [Conduit::Hvc, Conduit::Smc] {
            let x0 = call_by(conduit, [id, 1, 2, 3])[0];
            check_eq!(x0 as i64, code::NOT_SUPPORTED, "{conduit:?} {id:#x}");
        }
    }
    Ok(())
}

/// A call changes no register except its results (SMCCC 1.1): x4 to x17 are checked here; for the others the
/// compiler relies on it.
fn registers_kept() -> Verdict {
    for conduit in [Conduit::Hvc, Conduit::Smc] {
        let [_, x1, x2, x3] = call_by(conduit, [function::PSCI_VERSION, 11, 12, 13]);
        check_eq!([x1, x2, x3], [11, 12, 13], "x1 to x3 after {conduit:?}");
    }
    let mut sum: u64;
    // SAFETY: the call changes x0 to x3 only, which is what is tested.
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

/// Instructions that EL1 does not have are taken to EL1 as undefined.
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
