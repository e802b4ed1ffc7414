// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of migration: one core on a model of the machine, all interleavings of few steps, all states of few cores.

#[cfg(not(loom))]
mod exhaustive;
#[cfg(loom)]
mod loom;
#[cfg(not(loom))]
mod model;
#[cfg(not(loom))]
mod one_core;
