// SPDX-License-Identifier: MIT OR Apache-2.0
//! The system description: which guests share which cores of which board.
//!
//! There are two forms. The *description* is what a user writes in TOML; it is parsed and
//! checked on the host only (`description` feature). The *packed form* is what the hypervisor
//! reads: every address is decided, so EL2 has nothing to parse or to refuse.

#![cfg_attr(not(feature = "std"), no_std)]
#![forbid(unsafe_code)]

pub mod packed;
pub mod types;

#[cfg(feature = "description")]
pub mod board;
#[cfg(feature = "description")]
pub mod check;
#[cfg(feature = "description")]
pub mod description;
#[cfg(feature = "description")]
pub mod image;
#[cfg(feature = "description")]
pub mod layout;
#[cfg(feature = "description")]
pub mod problem;
#[cfg(feature = "description")]
mod reader;
#[cfg(feature = "description")]
pub mod units;

pub use types::{GuestAddr, GuestId, HypAddr, IntId, PcpuId, PhysAddr, Priority, VcpuId};
