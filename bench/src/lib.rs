// SPDX-License-Identifier: MIT OR Apache-2.0
//! The project's figures: each experiment is a matrix of runs on the exact clock (`testbed/`), repeated
//! over several seeds, and ends in a page with a picture, tables and what is needed to repeat it.
//!
//! | module | |
//! | --- | --- |
//! | [`experiments`] | one file for each figure: its runs and their evaluation |
//! | [`machine`], [`system`], [`xen`], [`kvm`], [`kvm_pair`] | what a run boots: bare Linux, bare FreeRTOS, a Spumone system, a Xen system, or a KVM host |
//! | [`qemu`], [`description`] | QEMU's command line and system descriptions, for `spm` and the boot tests, too |
//! | [`project`] | where the files are, their hashes, versions |
//! | [`campaign`] | all runs of an experiment: makes those without a stored result, collects |
//! | [`runner`], [`console`], [`clock`] | one run: QEMU, what guests printed, what the clock counted |
//! | [`demux`], [`transcript`] | the console's stream, taken apart into sources and lines |
//! | [`fault`] | the hypervisor's reports about faults, explained |
//! | [`demo`] | the runs and the table of the demo, which is not a figure |
//! | [`code_names`] | names of addresses in the hypervisor |
//! | [`store`] | results on disk, so that a run is not repeated |
//! | [`sizes`] | sizes of files, and of what a Spumone system takes |
//! | [`stats`] | median and range |
//! | [`plot`], [`page`] | pictures and text |
//!
//! The crate does not build system images itself: `spm` passes the function that does.

#![forbid(unsafe_code)]

pub mod campaign;
pub mod clock;
pub mod code_names;
pub mod console;
pub mod demo;
pub mod demux;
pub mod description;
pub mod experiments;
pub mod failure;
pub mod fault;
pub mod hash;
pub mod kvm;
pub mod kvm_pair;
pub mod linux;
pub mod machine;
pub mod page;
pub mod plot;
pub mod project;
pub mod qemu;
pub mod results;
pub mod role;
pub mod runner;
pub mod sizes;
pub mod stats;
pub mod store;
pub mod system;
pub mod trails;
pub mod transcript;
pub mod xen;
