// SPDX-License-Identifier: MIT OR Apache-2.0
//! `suite=watchdog`: checks the calls of the watchdog (`arm,smc-wdt`), turns it on with `timeout=` seconds (default 1), pets it
//! `pets=` times (default 0), each after a half of the timeout, and hangs: `hang=spin` (default) with interrupts masked, `hang=wfi` asleep, or
//! `hang=off` turns the watchdog off again, waits for longer than the timeout, and ends. `all=1`: the other CPUs spin too.
//! When a `q` was typed in the life before it hangs, it ends.

use crate::machine::psci::{Conduit, call_by};
use crate::machine::sysreg::{mask, mrs, wfi};
use crate::machine::time::{delay_us, now};
use crate::machine::uart::{CONSOLE, say};
use crate::machine::{bootargs, cpus, gic};
use crate::report::{Verdict, check_eq, record};

/// The call, and what it is to do.
const CALL: u64 = 0x8200_3D06;
pub mod command {
    pub const INIT: u64 = 0;
    pub const SET_TIMEOUT: u64 = 1;
    pub const ENABLE: u64 = 2;
    pub const PET: u64 = 3;
    pub const GET_TIMELEFT: u64 = 4;
}

const INVALID: i64 = -2;
const NOT_SUPPORTED: i64 = -1;
const DISABLED: i64 = -8;
const SECOND_US: u64 = 1_000_000;

/// Calls the watchdog; returns the status, and x1 and x2.
pub fn watchdog(command: u64, argument: u64) -> (i64, u64, u64) {
    let [status, first, second, _] = call_by(Conduit::Smc, [CALL, command, argument, 0]);
    (i64::from(status as i32), first, second)
}

/// Runs the suite.
pub fn run() {
    gic::start_distributor();
    gic::start_cpu();
    let timeout = bootargs::number_or("timeout", 1);
    record("calls", calls(timeout));
    if CONSOLE.receive() == Some(b'q') {
        record("watchdog", Ok(()));
        return;
    }
    if bootargs::number_or("all", 0) != 0 {
        let count = cpus::start_all();
        for cpu in 1..count {
            cpus::begin(cpu, spin);
        }
    }
    watchdog(command::ENABLE, 1);
    for _ in 0..bootargs::number_or("pets", 0) {
        delay_us(timeout * SECOND_US / 2);
        watchdog(command::PET, 0);
    }
    match bootargs::text("hang").unwrap_or("spin") {
        "off" => {
            watchdog(command::ENABLE, 0);
            delay_us(timeout * SECOND_US * 3 / 2);
            record("watchdog", Ok(()));
        }
        how => {
            // The line takes some time itself.
            say!("watchdog-hangs how={how}");
            mask();
            watchdog(command::PET, 0);
            say!(
                "watchdog-petted us={}",
                now() * SECOND_US / mrs!(CNTFRQ_EL0)
            );
            if how == "spin" {
                spin();
            }
            loop {
                wfi();
            }
        }
    }
}

fn spin() {
    mask();
    loop {
        core::hint::spin_loop();
    }
}

/// In each life the watchdog is off, and its calls answer as they should.
fn calls(timeout: u64) -> Verdict {
    let (status, shortest, longest) = watchdog(command::INIT, 0);
    check_eq!(status, 0, "status of INIT");
    check_eq!(shortest, 1, "the shortest timeout");
    check_eq!(
        watchdog(command::GET_TIMELEFT, 0).0,
        DISABLED,
        "GET_TIMELEFT"
    );
    check_eq!(watchdog(command::PET, 0).0, DISABLED, "PET");
    for seconds in [0, longest + 1] {
        let status = watchdog(command::SET_TIMEOUT, seconds).0;
        check_eq!(status, INVALID, "SET_TIMEOUT {seconds}");
    }
    check_eq!(watchdog(command::ENABLE, 2).0, INVALID, "ENABLE 2");
    check_eq!(watchdog(5, 0).0, NOT_SUPPORTED, "command 5");
    check_eq!(watchdog(command::ENABLE, 1).0, 0, "ENABLE 1");
    let (status, left, _) = watchdog(command::GET_TIMELEFT, 0);
    check_eq!(status, 0, "status of GET_TIMELEFT");
    check_eq!(left <= longest, true, "{left} of {longest} seconds left");
    check_eq!(watchdog(command::ENABLE, 0).0, 0, "ENABLE 0");
    check_eq!(watchdog(command::SET_TIMEOUT, timeout).0, 0, "SET_TIMEOUT");
    Ok(())
}
