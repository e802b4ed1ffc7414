// SPDX-License-Identifier: MIT OR Apache-2.0
//! A driver that has broken the rules.

use super::memory::End;
use super::queue::Broken;

/// The driver, and what it has broken.
pub(super) type Fault = (End, Broken);
