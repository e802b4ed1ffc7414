// SPDX-License-Identifier: MIT OR Apache-2.0
//! Speculation: what the calling core needs of its firmware. `core/mitigation` decides what follows from that.

use crate::hardware::{ask_firmware, mitigate};
use crate::sysreg::mrs;
use spumone_core::mitigation::{Answer, Needs, Workaround};
use spumone_core::smccc::{FunctionId, SMCCC_VERSION_1_1};

/// Asks the firmware of the calling core what the core needs, and calls what it needs once.
pub fn set_up() -> Needs {
    let has_features = has_features();
    let needs = Needs::new(mrs!(ID_AA64PFR0_EL1), |workaround| {
        let function = FunctionId::of_workaround(workaround);
        match has_features {
            true => Answer::of(ask_firmware(FunctionId::SMCCC_ARCH_FEATURES, function.0)),
            false => Answer::Absent,
        }
    });
    begin(needs);
    needs
}

/// Calls what the calling core, which has just been turned on, needs once.
pub fn begin(needs: Needs) {
    if needs.at_start() {
        mitigate(Workaround::Two);
    }
}

/// Whether the firmware has `SMCCC_ARCH_FEATURES`: DEN0028, "Discovery". Firmware before PSCI 1.0 may not have the calls that tell.
fn has_features() -> bool {
    const PSCI_1_0: i32 = 0x1_0000;
    let version = FunctionId::SMCCC_VERSION;
    ask_firmware(FunctionId::PSCI_VERSION, 0) >= PSCI_1_0
        && ask_firmware(FunctionId::PSCI_FEATURES, version.0) >= 0
        && ask_firmware(version, 0) >= SMCCC_VERSION_1_1 as i32
}
