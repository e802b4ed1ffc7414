// SPDX-License-Identifier: MIT OR Apache-2.0
//! The suites.

mod aborts;
mod attack;
mod devices;
mod dma;
mod echo;
mod ends;
mod fault;
mod flips;
mod flood;
mod gic;
mod hidden;
mod hostile;
mod instructions;
mod ipi;
mod link_attacks;
mod lives;
mod modes;
mod power;
mod psci;
mod registers;
mod spin;
mod stolen;
mod storm;
mod timer;
mod watch;
mod watchdog;
mod words;

use crate::machine::bootargs;

/// Whether the guest is to begin anew after a panic, because the suite may break this program.
pub fn is_restarted() -> bool {
    bootargs::text("suite") == Some("instructions")
}

/// The suite of this name.
pub fn find(name: &str) -> Option<fn()> {
    Some(match name {
        "aborts" => aborts::run,
        "attack" => attack::run,
        "devices" => devices::run,
        "dma" => dma::run,
        "echo" => echo::run,
        "ends" => ends::run,
        "fault" => fault::run,
        "flips" => flips::run,
        "flood" => flood::run,
        "gic" => gic::run,
        "hidden" => hidden::run,
        "hostile" => hostile::run,
        "instructions" => instructions::run,
        "ipi" => ipi::run,
        "lives" => lives::run,
        "modes" => modes::run,
        "off" => psci::all_off,
        "power" => power::run,
        "psci" => psci::run,
        "registers" => registers::run,
        "spin" => spin::run,
        "stolen" => stolen::run,
        "storm" => storm::run,
        "timer" => timer::run,
        "victim" => dma::be_attacked,
        "watch" => watch::run,
        "watchdog" => watchdog::run,
        "words" => words::run,
        _ => return None,
    })
}
