// SPDX-License-Identifier: MIT OR Apache-2.0
//! The call by which a guest sets the mode, or asks for it.

use crate::smccc::CallError;
use spumone_config::packed::PowerMode;

/// Asks for the mode.
const ASK: u32 = 3;

/// The modes by the numbers that guests know.
const MODES: [PowerMode; 3] = [
    PowerMode::Performance,
    PowerMode::Balanced,
    PowerMode::Saving,
];

/// Answers a call: `command` is the number of the mode to set, or [`ASK`]. `may_set`: whether the guest's description allows it; if not, the guest gets the
/// same answer as for a call that does not exist. `set` changes the mode and returns the one before, and `mode` is the present one; `None`: all cores stay on in
/// this system. Returns x0.
pub fn call(
    command: u32,
    may_set: bool,
    mode: Option<PowerMode>,
    set: impl FnOnce(PowerMode) -> Option<PowerMode>,
) -> u64 {
    let Some(mode) = mode.filter(|_| may_set) else {
        return CallError::NotSupported.to_register();
    };
    let wanted = MODES.get(command as usize);
    let answer = match wanted {
        Some(&wanted) => set(wanted),
        None if command == ASK => Some(mode),
        None => return CallError::InvalidParameters.to_register(),
    };
    let number = |mode| MODES.iter().position(|it| *it == mode);
    match answer.and_then(number) {
        Some(number) => number as u64,
        None => CallError::NotSupported.to_register(),
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    const BEFORE: PowerMode = PowerMode::Saving;

    fn answer(command: u32, may_set: bool, mode: Option<PowerMode>) -> (i64, Option<PowerMode>) {
        let mut now = None;
        let x0 = call(command, may_set, mode, |it| {
            now = Some(it);
            mode
        });
        (x0.cast_signed(), now)
    }

    #[test]
    fn a_guest_that_may_sets_the_mode_and_gets_the_one_before() {
        for (command, mode) in (0..).zip(MODES) {
            assert_eq!(answer(command, true, Some(BEFORE)), (2, Some(mode)));
        }
        assert_eq!(answer(ASK, true, Some(BEFORE)), (2, None));
        for command in [4, 5, u32::MAX] {
            assert_eq!(answer(command, true, Some(BEFORE)), (-2, None));
        }
    }

    #[test]
    fn a_guest_that_may_not_learns_nothing() {
        for command in [0, 1, 2, 3, 4, u32::MAX] {
            assert_eq!(answer(command, false, Some(BEFORE)), (-1, None));
            assert_eq!(answer(command, true, None), (-1, None));
        }
    }
}
