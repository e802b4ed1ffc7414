// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where the parts of a build of the hypervisor are.

use crate::types::MAX_PCPUS;
use heapless::Vec;
use serde::{Deserialize, Serialize};

/// Pages that stay unmapped at most: one below each stack, and one below that of the boot core.
pub const MAX_GUARDS: usize = MAX_PCPUS + 1;

/// Where the parts of the hypervisor are, in bytes from its first one, where its code is. All are multiples of 4 KiB.
///
/// EL2's own tables are made for one build of the hypervisor. With those of another build, code may be data, or data executable.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sections {
    /// The constants.
    pub constants: u64,
    /// The data, up to the bundle.
    pub data: u64,
    /// Pages among the data that stay unmapped, by rising address: below each stack, so that an overflow faults.
    pub guards: Vec<u64, MAX_GUARDS>,
}
