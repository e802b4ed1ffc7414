// SPDX-License-Identifier: MIT OR Apache-2.0
//! Decodes the SMC and HVC calls by which a guest calls its firmware.
//!
//! Sources: SMC Calling Convention (DEN0028), PSCI 1.1 (DEN0022), TRNG firmware interface 1.0 (DEN0098),
//! Paravirtualized Time (DEN0057). All calls that
//! are implemented are fast calls that take at most three arguments and change no register but x0, or x0 to x3; so they
//! conform to versions 1.0 and 1.1 of the calling convention.
//!
//! A call is identified by w0 alone. Only the lower halves of the arguments of a 32-bit call are used.

use crate::mitigation::Workaround;
use spumone_config::types::GuestAddr;

/// A decoded call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// `SMCCC_VERSION`.
    SmcccVersion,
    /// `SMCCC_ARCH_FEATURES`: whether an architecture call is implemented.
    ArchFeatures(FunctionId),
    /// `SMCCC_ARCH_WORKAROUND_1`, `_2` or `_3`.
    Workaround(Workaround),
    /// `PSCI_VERSION`.
    PsciVersion,
    /// `CPU_SUSPEND`.
    CpuSuspend {
        /// Which state, in the original format.
        power_state: u32,
        /// Where to resume if the state loses the context.
        entry: GuestAddr,
        /// x0 at that entry.
        context: u64,
    },
    /// `CPU_OFF`.
    CpuOff,
    /// `CPU_ON`.
    CpuOn {
        /// Affinity fields of the target's `MPIDR_EL1`.
        target: u64,
        /// Where it starts.
        entry: GuestAddr,
        /// x0 at start.
        context: u64,
    },
    /// `AFFINITY_INFO`.
    AffinityInfo {
        /// Affinity fields of the target's `MPIDR_EL1`.
        target: u64,
        /// Affinity fields below this level are to be ignored.
        lowest_level: u32,
    },
    /// `MIGRATE_INFO_TYPE`.
    MigrateInfoType,
    /// `SYSTEM_OFF`.
    SystemOff,
    /// `SYSTEM_RESET`.
    SystemReset,
    /// `PSCI_FEATURES`: whether a PSCI call is implemented.
    PsciFeatures(FunctionId),
    /// `TRNG_VERSION`.
    TrngVersion,
    /// `TRNG_FEATURES`: whether a TRNG call is implemented.
    TrngFeatures(FunctionId),
    /// `TRNG_GET_UUID`.
    TrngUuid,
    /// `TRNG_RND`.
    TrngRandom {
        /// Number of bits wanted, not checked.
        bits: u64,
        /// How they are returned.
        width: RandomWidth,
    },
    /// `PV_TIME_FEATURES`: whether a call of paravirtualized time is implemented.
    PvTimeFeatures(FunctionId),
    /// `PV_TIME_ST`: where the calling vCPU reads its stolen time.
    PvTimeStolen,
    /// The call of the watchdog, in the registers of [`Watchdog::call`](crate::watchdog::Watchdog::call).
    Watchdog {
        /// What it is to do.
        command: u32,
        /// The argument of that.
        argument: u32,
    },
    /// The call by which a guest sets or asks for the mode of `[power]`.
    PowerMode {
        /// What it is to do.
        command: u32,
    },
    /// Anything else.
    Unknown(FunctionId),
}

/// Which of the two `TRNG_RND` calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RandomWidth {
    /// `TRNG_RND32`: up to 96 bits in w1 to w3.
    Bits32,
    /// `TRNG_RND64`: up to 192 bits in x1 to x3.
    Bits64,
}

impl RandomWidth {
    /// The largest number of bits that one call returns.
    pub const fn most_bits(self) -> u32 {
        match self {
            Self::Bits32 => 3 * 32,
            Self::Bits64 => 3 * 64,
        }
    }
}

/// The number of a call, in w0 (DEN0028, "Function Identifiers").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FunctionId(pub u32);

impl FunctionId {
    /// Set in calls with 64-bit arguments.
    const SMC64: u32 = 1 << 30;

    /// `SMCCC_VERSION`.
    pub const SMCCC_VERSION: Self = Self(0x8000_0000);
    /// `SMCCC_ARCH_FEATURES`.
    pub const SMCCC_ARCH_FEATURES: Self = Self(0x8000_0001);
    /// `SMCCC_ARCH_WORKAROUND_1`.
    pub const SMCCC_ARCH_WORKAROUND_1: Self = Self(0x8000_8000);
    /// `SMCCC_ARCH_WORKAROUND_2`.
    pub const SMCCC_ARCH_WORKAROUND_2: Self = Self(0x8000_7fff);
    /// `SMCCC_ARCH_WORKAROUND_3`.
    pub const SMCCC_ARCH_WORKAROUND_3: Self = Self(0x8000_3fff);
    /// `PSCI_VERSION`.
    pub const PSCI_VERSION: Self = Self(0x8400_0000);
    /// `CPU_SUSPEND`, 32-bit.
    pub const CPU_SUSPEND: Self = Self(0x8400_0001);
    /// `CPU_OFF`.
    pub const CPU_OFF: Self = Self(0x8400_0002);
    /// `CPU_ON`, 32-bit.
    pub const CPU_ON: Self = Self(0x8400_0003);
    /// `AFFINITY_INFO`, 32-bit.
    pub const AFFINITY_INFO: Self = Self(0x8400_0004);
    /// `MIGRATE_INFO_TYPE`.
    pub const MIGRATE_INFO_TYPE: Self = Self(0x8400_0006);
    /// `SYSTEM_OFF`.
    pub const SYSTEM_OFF: Self = Self(0x8400_0008);
    /// `SYSTEM_RESET`.
    pub const SYSTEM_RESET: Self = Self(0x8400_0009);
    /// `PSCI_FEATURES`.
    pub const PSCI_FEATURES: Self = Self(0x8400_000a);
    /// `TRNG_VERSION`.
    pub const TRNG_VERSION: Self = Self(0x8400_0050);
    /// `TRNG_FEATURES`.
    pub const TRNG_FEATURES: Self = Self(0x8400_0051);
    /// `TRNG_GET_UUID`.
    pub const TRNG_GET_UUID: Self = Self(0x8400_0052);
    /// `TRNG_RND32`.
    pub const TRNG_RND32: Self = Self(0x8400_0053);
    /// `TRNG_RND64`.
    pub const TRNG_RND64: Self = Self(Self::TRNG_RND32.0 | Self::SMC64);
    /// `CPU_SUSPEND`, 64-bit.
    pub const CPU_SUSPEND_64: Self = Self(Self::CPU_SUSPEND.0 | Self::SMC64);
    /// `CPU_ON`, 64-bit.
    pub const CPU_ON_64: Self = Self(Self::CPU_ON.0 | Self::SMC64);
    /// `AFFINITY_INFO`, 64-bit.
    pub const AFFINITY_INFO_64: Self = Self(Self::AFFINITY_INFO.0 | Self::SMC64);

    /// `PV_TIME_FEATURES` (DEN0057).
    pub const PV_TIME_FEATURES: Self = Self(0xc500_0020);
    /// `PV_TIME_ST` (DEN0057).
    pub const PV_TIME_ST: Self = Self(0xc500_0021);
    /// The call of `arm,smc-wdt` (Linux, drivers/watchdog/arm_smc_wdt.c), with the number that a device tree without `arm,smc-id` means.
    pub const WATCHDOG: Self = Self(spumone_config::calls::WATCHDOG);
    /// The call that sets or returns the mode of `[power]`.
    pub const POWER_MODE: Self = Self(spumone_config::calls::POWER_MODE);

    /// The workaround that this calls; `None`: none.
    pub const fn workaround(self) -> Option<Workaround> {
        match self {
            Self::SMCCC_ARCH_WORKAROUND_1 => Some(Workaround::One),
            Self::SMCCC_ARCH_WORKAROUND_2 => Some(Workaround::Two),
            Self::SMCCC_ARCH_WORKAROUND_3 => Some(Workaround::Three),
            _ => None,
        }
    }

    /// The call of this workaround.
    pub const fn of_workaround(workaround: Workaround) -> Self {
        match workaround {
            Workaround::One => Self::SMCCC_ARCH_WORKAROUND_1,
            Workaround::Two => Self::SMCCC_ARCH_WORKAROUND_2,
            Workaround::Three => Self::SMCCC_ARCH_WORKAROUND_3,
        }
    }

    const fn is_64_bit(self) -> bool {
        self.0 & Self::SMC64 != 0
    }
}

impl Call {
    /// Decodes a call from x0 to x3.
    pub const fn decode(registers: [u64; 4]) -> Self {
        let [x0, x1, x2, x3] = registers;
        let id = FunctionId(x0 as u32);
        let (x1, x2, x3) = if id.is_64_bit() {
            (x1, x2, x3)
        } else {
            (x1 as u32 as u64, x2 as u32 as u64, x3 as u32 as u64)
        };
        match id {
            FunctionId::SMCCC_VERSION => Self::SmcccVersion,
            FunctionId::SMCCC_ARCH_FEATURES => Self::ArchFeatures(FunctionId(x1 as u32)),
            FunctionId::PSCI_VERSION => Self::PsciVersion,
            FunctionId::CPU_SUSPEND | FunctionId::CPU_SUSPEND_64 => Self::CpuSuspend {
                power_state: x1 as u32,
                entry: GuestAddr(x2),
                context: x3,
            },
            FunctionId::CPU_OFF => Self::CpuOff,
            FunctionId::CPU_ON | FunctionId::CPU_ON_64 => Self::CpuOn {
                target: x1,
                entry: GuestAddr(x2),
                context: x3,
            },
            FunctionId::AFFINITY_INFO | FunctionId::AFFINITY_INFO_64 => Self::AffinityInfo {
                target: x1,
                lowest_level: x2 as u32,
            },
            FunctionId::MIGRATE_INFO_TYPE => Self::MigrateInfoType,
            FunctionId::SYSTEM_OFF => Self::SystemOff,
            FunctionId::SYSTEM_RESET => Self::SystemReset,
            FunctionId::PSCI_FEATURES => Self::PsciFeatures(FunctionId(x1 as u32)),
            FunctionId::TRNG_VERSION => Self::TrngVersion,
            FunctionId::TRNG_FEATURES => Self::TrngFeatures(FunctionId(x1 as u32)),
            FunctionId::TRNG_GET_UUID => Self::TrngUuid,
            FunctionId::TRNG_RND32 => Self::TrngRandom {
                bits: x1,
                width: RandomWidth::Bits32,
            },
            FunctionId::TRNG_RND64 => Self::TrngRandom {
                bits: x1,
                width: RandomWidth::Bits64,
            },
            FunctionId::PV_TIME_FEATURES => Self::PvTimeFeatures(FunctionId(x1 as u32)),
            FunctionId::PV_TIME_ST => Self::PvTimeStolen,
            FunctionId::WATCHDOG => Self::Watchdog {
                command: x1 as u32,
                argument: x2 as u32,
            },
            FunctionId::POWER_MODE => Self::PowerMode { command: x1 as u32 },
            _ => match id.workaround() {
                Some(workaround) => Self::Workaround(workaround),
                None => Self::Unknown(id),
            },
        }
    }
}

/// The value of a call's x0 that means success.
pub const SUCCESS: u64 = 0;

/// Why a call is refused: the codes of PSCI (DEN0022, "Return error codes"). The other interfaces use the same codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum CallError {
    /// There is no such call, or it is not implemented.
    NotSupported = -1,
    /// An argument is out of its range.
    InvalidParameters = -2,
    /// The target runs already.
    AlreadyOn = -4,
    /// The target is being started already.
    OnPending = -5,
    /// What the call is about is turned off.
    Disabled = -8,
    /// The entry point is not in the guest's memory.
    InvalidAddress = -9,
}

impl CallError {
    /// The value for x0: negative both as 32-bit and as 64-bit number, so it is right for either
    /// kind of call.
    pub const fn to_register(self) -> u64 {
        self as i32 as i64 as u64
    }
}

/// `SMCCC_VERSION`: 1.1. Later versions add argument registers and rules for SVE, which no call implemented here needs.
pub const SMCCC_VERSION_1_1: u64 = 0x1_0001;

/// `TRNG_VERSION`: 1.0.
pub const TRNG_VERSION_1_0: u64 = 0x1_0000;

/// `TRNG_GET_UUID` for w0 to w3: identifies the hypervisor's source of entropy.
pub const TRNG_UUID: [u64; 4] = [0x5d6c_8a31, 0x4e92_1f07, 0xc3ab_7e98, 0x2b14_d06f];

/// Registers x0 to x3 after a `TRNG_RND` that was given entropy (DEN0098, "TRNG_RND").
///
/// Of `entropy` the lowest `bits` bits are used, at most as many as `width` has; word 0 is the
/// lowest. The rest of the registers is zero.
pub const fn random_registers(entropy: [u64; 3], bits: u32, width: RandomWidth) -> [u64; 4] {
    let bits = if bits > width.most_bits() {
        width.most_bits()
    } else {
        bits
    };
    let low = entropy[0] & low_bits(bits);
    let middle = entropy[1] & low_bits(bits.saturating_sub(64));
    let high = entropy[2] & low_bits(bits.saturating_sub(128));
    match width {
        RandomWidth::Bits32 => [SUCCESS, middle, low >> 32, low & low_bits(32)],
        RandomWidth::Bits64 => [SUCCESS, high, middle, low],
    }
}

/// A word whose lowest `count` bits are set; all of them from 64 on.
const fn low_bits(count: u32) -> u64 {
    match u64::MAX.checked_shl(count) {
        Some(rest) => !rest,
        None => u64::MAX,
    }
}

/// Registers x0 to x3 after a `TRNG_RND` when there is no entropy to give: `NO_ENTROPY`.
pub const NO_ENTROPY: [u64; 4] = [-3_i64 as u64, 0, 0, 0];

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HIGH: u64 = 0xdead_beef_0000_0000;

    #[test]
    fn calls_are_identified_by_w0_alone() {
        assert_eq!(Call::decode([0x8400_0000, 0, 0, 0]), Call::PsciVersion);
        assert_eq!(
            Call::decode([HIGH | 0x8400_0000, 0, 0, 0]),
            Call::PsciVersion
        );
        assert_eq!(
            Call::decode([0xc400_0000, 0, 0, 0]),
            Call::Unknown(FunctionId(0xc400_0000))
        );
    }

    #[test]
    fn arguments_of_a_32_bit_call_are_32_bits_wide() {
        let arguments = [HIGH | 3, HIGH | 0x4000_0000, HIGH | 7];
        let call = |id| Call::decode([id, arguments[0], arguments[1], arguments[2]]);
        assert_eq!(
            call(0x8400_0003),
            Call::CpuOn {
                target: 3,
                entry: GuestAddr(0x4000_0000),
                context: 7
            }
        );
        assert_eq!(
            call(0xc400_0003),
            Call::CpuOn {
                target: HIGH | 3,
                entry: GuestAddr(HIGH | 0x4000_0000),
                context: HIGH | 7
            }
        );
        assert_eq!(
            call(0x8400_0053),
            Call::TrngRandom {
                bits: 3,
                width: RandomWidth::Bits32
            }
        );
        assert_eq!(
            call(0xc400_0053),
            Call::TrngRandom {
                bits: HIGH | 3,
                width: RandomWidth::Bits64
            }
        );
        // These arguments are 32 bits wide in both forms.
        assert_eq!(
            call(0xc400_0004),
            Call::AffinityInfo {
                target: HIGH | 3,
                lowest_level: 0x4000_0000
            }
        );
        assert_eq!(
            call(0xc400_0001),
            Call::CpuSuspend {
                power_state: 3,
                entry: GuestAddr(HIGH | 0x4000_0000),
                context: HIGH | 7
            }
        );
    }

    #[test]
    fn every_function_id_is_that_of_its_specification() {
        let decoded = |id| Call::decode([id, 0, 0, 0]);
        assert_eq!(decoded(0x8000_0000), Call::SmcccVersion);
        assert_eq!(decoded(0x8000_0001), Call::ArchFeatures(FunctionId(0)));
        assert!(matches!(decoded(0x8400_0001), Call::CpuSuspend { .. }));
        assert_eq!(decoded(0x8400_0002), Call::CpuOff);
        assert!(matches!(decoded(0x8400_0004), Call::AffinityInfo { .. }));
        assert_eq!(decoded(0x8400_0006), Call::MigrateInfoType);
        assert_eq!(decoded(0x8400_0008), Call::SystemOff);
        assert_eq!(decoded(0x8400_0009), Call::SystemReset);
        assert_eq!(decoded(0x8400_000a), Call::PsciFeatures(FunctionId(0)));
        assert_eq!(decoded(0x8400_0050), Call::TrngVersion);
        assert_eq!(decoded(0x8400_0051), Call::TrngFeatures(FunctionId(0)));
        assert_eq!(decoded(0x8400_0052), Call::TrngUuid);
        assert_eq!(decoded(0xc500_0020), Call::PvTimeFeatures(FunctionId(0)));
        assert_eq!(decoded(0xc500_0021), Call::PvTimeStolen);
        assert!(matches!(decoded(0x8200_3d06), Call::Watchdog { .. }));
        let workarounds = [
            (0x8000_8000, Workaround::One),
            (0x8000_7fff, Workaround::Two),
            (0x8000_3fff, Workaround::Three),
        ];
        for (id, workaround) in workarounds {
            assert_eq!(decoded(id), Call::Workaround(workaround));
            assert_eq!(FunctionId::of_workaround(workaround).0, id as u32);
        }
        // MIGRATE, SYSTEM_SUSPEND, SYSTEM_RESET2, ARCH_SOC_ID, a yielding call.
        for id in [0x8400_0005, 0xc400_000e, 0xc400_0012, 0x8000_0002, 0x4] {
            assert_eq!(decoded(id), Call::Unknown(FunctionId(id as u32)));
        }
    }

    #[test]
    fn errors_are_negative_in_both_widths() {
        for (error, code) in [
            (CallError::NotSupported, -1),
            (CallError::InvalidParameters, -2),
            (CallError::AlreadyOn, -4),
            (CallError::OnPending, -5),
            (CallError::Disabled, -8),
            (CallError::InvalidAddress, -9),
        ] {
            assert_eq!(error.to_register() as i64, code);
            assert_eq!(i64::from(error.to_register() as i32), code);
        }
    }

    #[test]
    fn random_bits_are_returned_with_the_last_word_first() {
        let entropy = [0x1111_1111_2222_2222, 0x3333_3333_4444_4444, u64::MAX];
        let wide = |bits| random_registers(entropy, bits, RandomWidth::Bits64);
        let narrow = |bits| random_registers(entropy, bits, RandomWidth::Bits32);
        assert_eq!(wide(192), [0, entropy[2], entropy[1], entropy[0]]);
        assert_eq!(wide(65), [0, 0, 0, entropy[0]]);
        assert_eq!(wide(67), [0, 0, 4, entropy[0]]);
        assert_eq!(wide(2), [0, 0, 0, 2]);
        assert_eq!(narrow(96), [0, 0x4444_4444, 0x1111_1111, 0x2222_2222]);
        assert_eq!(narrow(33), [0, 0, 1, 0x2222_2222]);
        assert_eq!(narrow(192), narrow(96));
    }

    proptest! {
        #[test]
        fn random_registers_have_exactly_the_requested_bits(
            entropy: [u64; 3],
            bits in 1_u32..=192,
            narrow: bool,
        ) {
            let width = if narrow { RandomWidth::Bits32 } else { RandomWidth::Bits64 };
            let bits = bits.min(width.most_bits());
            let [status, high, middle, low] = random_registers(entropy, bits, width);
            let size = width.most_bits() / 3;
            prop_assert_eq!(status, SUCCESS);
            for bit in 0..192 {
                let word = [low, middle, high].get((bit / size) as usize).copied().unwrap_or(0);
                let returned = word >> (bit % size) & 1;
                let given = entropy[(bit / 64) as usize] >> (bit % 64) & 1;
                prop_assert_eq!(returned, if bit < bits { given } else { 0 }, "bit {}", bit);
            }
        }
    }
}
