// SPDX-License-Identifier: MIT OR Apache-2.0
//! Numbers of firmware calls that both EL2 and guests' device trees name.

/// The call of a guest's watchdog: the number that a node `arm,smc-wdt` without `arm,smc-id` means (Linux,
/// Documentation/devicetree/bindings/watchdog/arm-smc-wdt.yaml). A fast call of a SiP service with arguments of 32 bits (DEN0028).
pub const WATCHDOG: u32 = 0x8200_3d06;

/// The call by which a guest sets or asks for the mode of `[power]`: a fast call of a vendor-specific hypervisor service with arguments of 32 bits
/// (DEN0028). The number is this hypervisor's own.
pub const POWER_MODE: u32 = 0x8600_0040;
