// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sizes in bytes that are known before a run: of the files, and of what a Spumone system takes.

use std::collections::BTreeMap;

/// Sizes of what runs are started with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sizes {
    /// Of each file that is the same for all runs, by its name.
    pub files: BTreeMap<String, u64>,
    /// Of each Spumone system, by the label of its run.
    pub systems: BTreeMap<String, SystemSize>,
}

/// What a Spumone system takes, as its build knows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SystemSize {
    /// Memory that is no guest's and cannot be given to one: the hypervisor with the bundle.
    pub memory: u64,
    /// The guests' files in it.
    pub files: u64,
    /// What is loaded of the hypervisor's program: code, constants, and data that is not zero at the start.
    pub program: u64,
}
