// SPDX-License-Identifier: MIT OR Apache-2.0
//! The virtual GIC on simulated cores.
//!
//! * `machine`: cores with list registers and a physical GIC, as far as the virtual one needs them.
//! * `registers`: each register's reset value, and which bits can be written.
//! * `scenarios`: single scenarios, call by call.
//! * `world`, `reference`, `steps`, `properties`: several vCPUs doing random things on several cores,
//!   compared with what the architecture says of each interrupt.
//! * `interleavings`: two or three cores at once, in every order of their accesses (loom).

#[cfg_attr(loom, expect(dead_code, reason = "interleavings need a part of it"))]
mod machine;

#[cfg(loom)]
mod interleavings;

#[cfg(not(loom))]
mod properties;
#[cfg(not(loom))]
mod reference;
#[cfg(not(loom))]
mod registers;
#[cfg(not(loom))]
mod scenarios;
#[cfg(not(loom))]
mod steps;
#[cfg(not(loom))]
mod world;
