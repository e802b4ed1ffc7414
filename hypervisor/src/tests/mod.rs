// SPDX-License-Identifier: MIT OR Apache-2.0
//! EL2 on a host: whole systems on a fake machine, guests by their exits.
//!
//! | file | what is tested |
//! | --- | --- |
//! | `boot` | from reset to guests that run |
//! | `exits` | each class of exit |
//! | `interrupts` | devices, timers, SGIs, and what cores send each other |
//! | `switching` | which vCPU has the core, and what it finds there |
//! | `migration` | vCPUs that change cores |
//! | `lives` | guests that fail, stop and start again |
//! | `operator` | what is typed, and what is printed |
//! | `fuzz` | guests that do anything, and what holds all the same |
//!
//! `systems` describes systems, `bench` runs them, `guest` is a guest on a core, `invariants` is what holds after each turn.

mod bench;
mod boot;
mod exits;
mod fuzz;
mod guest;
mod interrupts;
mod invariants;
mod lives;
mod migration;
mod operator;
mod switching;
mod systems;
