// SPDX-License-Identifier: MIT OR Apache-2.0
//! The project's figures: each experiment is a matrix of runs on the exact clock (`testbed/`), repeated
//! over several seeds, and ends in a page with a picture, a table and everything needed to repeat it.
//!
//! | module | |
//! | --- | --- |
//! | [`experiments`] | one file for each figure: which runs, and what they mean |
//! | [`machine`], [`system`] | what a run boots: bare Linux, bare FreeRTOS, or a Spumone system |
//! | [`qemu`], [`description`] | QEMU's command line and system descriptions, for `spm` and the boot tests, too |
//! | [`project`] | where the files are, their hashes, versions |
//! | [`campaign`] | the whole matrix: plan, run what has no result yet, collect |
//! | [`duration`] | about how long that takes |
//! | [`runner`], [`console`], [`clock`] | one run: QEMU, what guests printed, what the clock counted |
//! | [`demo`] | the runs and the table of the demo, which is no figure |
//! | [`code_names`] | functions of the hypervisor, for addresses |
//! | [`store`] | results on disk, so that a run is not repeated |
//! | [`stats`] | median and range |
//! | [`plot`], [`page`] | pictures and text |
//!
//! The crate does not build system images itself: `spm` hands in the function that does.

#![forbid(unsafe_code)]

pub mod campaign;
pub mod clock;
pub mod code_names;
pub mod console;
pub mod demo;
pub mod description;
pub mod duration;
pub mod experiments;
pub mod failure;
pub mod hash;
pub mod linux;
pub mod machine;
pub mod page;
pub mod plot;
pub mod project;
pub mod qemu;
pub mod results;
pub mod role;
pub mod runner;
pub mod stats;
pub mod store;
pub mod system;
