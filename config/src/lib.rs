// SPDX-License-Identifier: MIT OR Apache-2.0
//! The system description: which guests share which cores of which board.
//!
//! There are two forms. The *description* is what a user writes in TOML; it is parsed and
//! checked on the host only (`description` feature). The *packed form* is what the hypervisor
//! reads. It has all decisions that can be made without the machine, from bands to the guests' stage 2
//! tables, so EL2 does not parse or refuse what a user wrote.

#![cfg_attr(not(feature = "std"), no_std)]
#![forbid(unsafe_code)]

pub mod calls;
pub mod gic;
pub mod isolation;
pub mod packed;
pub mod types;

#[cfg(feature = "std")]
pub mod bands;
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
#[cfg(feature = "std")]
mod policy;
#[cfg(feature = "description")]
pub mod problem;
#[cfg(feature = "description")]
mod reader;
#[cfg(feature = "std")]
pub mod roles;
#[cfg(feature = "std")]
pub mod seal;
#[cfg(feature = "description")]
mod sink;
#[cfg(feature = "std")]
pub mod stage2;
#[cfg(feature = "description")]
pub mod units;

pub use types::{Band, GuestAddr, GuestId, IntId, PcpuId, PhysAddr, Priority, VcpuId};
