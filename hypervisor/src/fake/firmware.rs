// SPDX-License-Identifier: MIT OR Apache-2.0
//! Start, sleep and halt of cores, and what the firmware does about speculation. Functions that do not return to the hypervisor's code unwind its stack.

use super::{Machine, with};
use crate::core_loop::CoreLoop;
use spumone_core::mitigation::Workaround;
use spumone_core::smccc::FunctionId;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// The firmware of a core, as far as speculation goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Firmware {
    /// Its versions of PSCI and SMCCC.
    pub versions: (i32, i32),
    /// What it answers about workarounds 1, 2 and 3.
    pub workarounds: [i32; 3],
    /// Whether it turns the core off, and on again.
    pub turns_off: bool,
    pub turns_on: bool,
}

/// Whether a core is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CorePower {
    /// It is on.
    On,
    /// The firmware has turned it off.
    Off,
    /// The firmware turns it on: the next iteration of the core's loop begins with that.
    Starts,
}

/// What the firmware says to `CPU_ON`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TurnOn {
    /// The core starts.
    Begins,
    /// The core is still on, or starts already.
    IsOn,
    /// It cannot be turned on.
    Fails,
}

impl Firmware {
    /// It answers so.
    pub const fn new(workarounds: [i32; 3]) -> Self {
        Self {
            versions: (0x1_0001, 0x1_0002),
            workarounds,
            turns_off: true,
            turns_on: true,
        }
    }
}

/// Asks the firmware of the core. A question that it cannot know stops the test.
pub fn ask_firmware(question: FunctionId, subject: u32) -> i32 {
    with(|machine| {
        let firmware = &machine.core().firmware;
        let (psci, smccc) = firmware.versions;
        match question {
            FunctionId::PSCI_VERSION => psci,
            FunctionId::PSCI_FEATURES => {
                assert!(psci >= 0x1_0000);
                assert_eq!(subject, FunctionId::SMCCC_VERSION.0);
                if smccc > 0x1_0000 { 0 } else { -1 }
            }
            FunctionId::SMCCC_VERSION => smccc,
            FunctionId::SMCCC_ARCH_FEATURES => {
                assert!(smccc > 0x1_0000);
                let workaround = FunctionId(subject).workaround();
                workaround.map_or(-1, |it| firmware.workarounds[it as usize])
            }
            _ => panic!("{question:?} is no question"),
        }
    })
}

/// Notes that the core calls this workaround. One that it cannot call stops the test.
pub fn mitigate(workaround: Workaround) {
    with(|machine| {
        let core = machine.core();
        assert!(core.firmware.workarounds[workaround as usize] >= 0);
        core.mitigations.push(workaround);
    });
}

/// Why the code on a core has unwound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The core's loop is in [`Machine::running`]: the test runs its iterations from now on.
    Started,
    /// The core has halted: the machine is off, or the hypervisor has died.
    Halted,
    /// The firmware has turned the core off. When it is on again, the test calls `Instance::comes_on`.
    TurnedOff,
}

/// Runs code of the hypervisor on `core` until it ends; `None` if it returns.
pub fn until_it_ends<R>(core: usize, run: impl FnOnce() -> R) -> Result<R, Ended> {
    let before = with(|machine| std::mem::replace(&mut machine.current, core));
    let result = catch_unwind(AssertUnwindSafe(run));
    with(|machine| machine.current = before);
    result.map_err(|payload| match payload.downcast::<Ended>() {
        Ok(ended) => *ended,
        // A test has failed.
        Err(payload) => resume_unwind(payload),
    })
}

/// Starts the core with this affinity and index.
pub fn start_core(
    index: usize,
    mpidr: u64,
    run: impl FnOnce() + Send + 'static,
) -> Result<(), &'static str> {
    let is_it = |machine: &mut Machine| {
        let core = machine.cores.get(index);
        core.is_some_and(|core| core.get(super::Register::MPIDR_EL1) == mpidr)
    };
    if !with(is_it) {
        return Err("there is no such core");
    }
    match until_it_ends(index, run) {
        Err(Ended::Started) => Ok(()),
        Err(ended) => resume_unwind(Box::new(ended)),
        Ok(()) => Err("it has come back"),
    }
}

/// Hands the loop over to the test, which runs its iterations.
pub fn run_for_ever(mut it: impl CoreLoop) -> ! {
    it.prepare();
    with(|machine| {
        let core = machine.current;
        machine.running[core] = Some(Box::new(it));
    });
    resume_unwind(Box::new(Ended::Started))
}

/// Turns the calling core off.
pub fn turn_off(core: usize) -> Result<(), i32> {
    const DENIED: i32 = -3;
    let is_off = with(|machine| {
        assert_eq!(machine.current, core);
        let turns_off = machine.core().firmware.turns_off;
        if turns_off {
            machine.core().lose_power();
        }
        turns_off
    });
    match is_off {
        true => resume_unwind(Box::new(Ended::TurnedOff)),
        false => Err(DENIED),
    }
}

/// Turns a core on.
pub fn turn_on(core: usize, mpidr: u64) -> TurnOn {
    with(|machine| {
        let core = &mut machine.cores[core];
        assert_eq!(core.get(super::Register::MPIDR_EL1), mpidr);
        match core.power {
            CorePower::Off if !core.firmware.turns_on => TurnOn::Fails,
            CorePower::Off => {
                core.power = CorePower::Starts;
                TurnOn::Begins
            }
            CorePower::On | CorePower::Starts => TurnOn::IsOn,
        }
    })
}

/// Turns the machine off.
pub fn system_off() {
    with(|machine| machine.is_off = true);
}

/// Halts the core.
pub fn halt() -> ! {
    resume_unwind(Box::new(Ended::Halted))
}

/// Sleeps until an interrupt is pending, or for a limited time: a WFI may end at any time.
pub fn wait_for_interrupt() {
    /// The longest sleep in ticks.
    const NAP: u64 = 1_000;
    with(|machine| {
        let current = machine.current;
        machine.core().sleeps += 1;
        if machine.signalled(current).is_none() {
            machine.clock += NAP;
        }
    });
}
