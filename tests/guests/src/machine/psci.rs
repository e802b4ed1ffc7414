// SPDX-License-Identifier: MIT OR Apache-2.0
//! Calls of the firmware: SMCCC, PSCI, TRNG (DEN0028, DEN0022, DEN0098).

use core::arch::asm;

/// Function identifiers.
pub mod function {
    /// SMCCC_VERSION.
    pub const SMCCC_VERSION: u64 = 0x8000_0000;
    /// SMCCC_ARCH_FEATURES.
    pub const ARCH_FEATURES: u64 = 0x8000_0001;
    /// PSCI_VERSION.
    pub const PSCI_VERSION: u64 = 0x8400_0000;
    /// CPU_SUSPEND, 64-bit.
    pub const CPU_SUSPEND: u64 = 0xC400_0001;
    /// CPU_OFF.
    pub const CPU_OFF: u64 = 0x8400_0002;
    /// CPU_ON, 32-bit.
    pub const CPU_ON_32: u64 = 0x8400_0003;
    /// CPU_ON, 64-bit.
    pub const CPU_ON: u64 = 0xC400_0003;
    /// AFFINITY_INFO, 32-bit.
    pub const AFFINITY_INFO_32: u64 = 0x8400_0004;
    /// AFFINITY_INFO, 64-bit.
    pub const AFFINITY_INFO: u64 = 0xC400_0004;
    /// MIGRATE_INFO_TYPE.
    pub const MIGRATE_INFO_TYPE: u64 = 0x8400_0006;
    /// SYSTEM_OFF.
    pub const SYSTEM_OFF: u64 = 0x8400_0008;
    /// SYSTEM_RESET.
    pub const SYSTEM_RESET: u64 = 0x8400_0009;
    /// PSCI_FEATURES.
    pub const PSCI_FEATURES: u64 = 0x8400_000A;
    /// TRNG_VERSION.
    pub const TRNG_VERSION: u64 = 0x8400_0050;
    /// TRNG_FEATURES.
    pub const TRNG_FEATURES: u64 = 0x8400_0051;
    /// TRNG_GET_UUID.
    pub const TRNG_GET_UUID: u64 = 0x8400_0052;
    /// TRNG_RND32.
    pub const TRNG_RND32: u64 = 0x8400_0053;
    /// TRNG_RND64.
    pub const TRNG_RND64: u64 = 0xC400_0053;
}

/// Return codes.
pub mod code {
    /// Done.
    pub const SUCCESS: i64 = 0;
    /// No such call.
    pub const NOT_SUPPORTED: i64 = -1;
    /// An argument is wrong.
    pub const INVALID_PARAMETERS: i64 = -2;
    /// The CPU is already on.
    pub const ALREADY_ON: i64 = -4;
    /// The CPU is being started.
    pub const ON_PENDING: i64 = -5;
    /// No CPU can start at this address.
    pub const INVALID_ADDRESS: i64 = -9;
}

/// States that AFFINITY_INFO returns.
pub mod power {
    /// On.
    pub const ON: i64 = 0;
    /// Off.
    pub const OFF: i64 = 1;
}

/// How the firmware is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Conduit {
    /// By HVC.
    Hvc,
    /// By SMC.
    Smc,
}

/// Makes a call; returns x0 to x3. The call must not change other registers: the compiler relies on
/// that (SMCCC 1.1).
pub fn call_by(conduit: Conduit, arguments: [u64; 4]) -> [u64; 4] {
    let [mut x0, mut x1, mut x2, mut x3] = arguments;
    // SAFETY: firmware changes x0 to x3 only; calls that do not return end this program.
    unsafe {
        match conduit {
            Conduit::Hvc => {
                asm!("hvc #0", inout("x0") x0, inout("x1") x1, inout("x2") x2, inout("x3") x3)
            }
            Conduit::Smc => {
                asm!("smc #0", inout("x0") x0, inout("x1") x1, inout("x2") x2, inout("x3") x3)
            }
        }
    }
    [x0, x1, x2, x3]
}

/// Makes a call by HVC; returns x0 as a signed number.
pub fn call(function: u64, arguments: [u64; 3]) -> i64 {
    let [a, b, c] = arguments;
    let [x0, ..] = call_by(Conduit::Hvc, [function, a, b, c]);
    // PSCI's return values are 32 bits wide unless stated otherwise.
    i64::from(x0 as i32)
}

/// The power state of a CPU.
pub fn affinity_info(cpu: usize) -> i64 {
    call(function::AFFINITY_INFO, [cpu as u64, 0, 0])
}

/// Turns the machine off.
pub fn system_off() -> ! {
    call(function::SYSTEM_OFF, [0; 3]);
    panic!("SYSTEM_OFF returned");
}

/// Resets the machine.
pub fn system_reset() -> ! {
    call(function::SYSTEM_RESET, [0; 3]);
    panic!("SYSTEM_RESET returned");
}
