// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of EL2 on a host: whole systems on the fake machine, with guests that are scripts of exits.
//!
//! | file | what is tested |
//! | --- | --- |
//! | `boot` | start from reset until guests run |
//! | `exits` | each class of exit |
//! | `registers` | registers that trap, and exceptions that EL2 has a guest take |
//! | `interrupts` | interrupts of devices and timers, SGIs, kicks |
//! | `switching` | which vCPU runs, and that a switch saves and loads all its registers |
//! | `migration` | vCPUs that migrate |
//! | `lives` | guests that fault, stop and restart |
//! | `watchdog` | watchdogs of guests |
//! | `verify` | bundles that are damaged, unsigned or old |
//! | `mutations` | bundles that were changed at random |
//! | `mitigation` | workarounds for speculation |
//! | `protect`, `local` | guests whose memory is checked, and guests that run from local memory |
//! | `operator` | keyboard input, commands and console output |
//! | `fuzz` | guests that do random things; checks that EL2 survives and other guests are not affected |
//!
//! `systems` makes system descriptions, `bench` runs them, `guest` is a running vCPU, `invariants` has the checks after
//! each iteration.

mod bench;
mod boot;
mod cards;
mod early;
mod exits;
mod fuzz;
mod guest;
mod interrupts;
mod invariants;
mod links;
mod lives;
mod local;
mod migration;
mod mitigation;
mod mutations;
mod operator;
mod power;
mod protect;
mod registers;
mod switching;
mod systems;
mod timers;
mod verify;
mod watchdog;
