// SPDX-License-Identifier: MIT OR Apache-2.0
//! The roles of the files with which a machine is started.

use serde::{Deserialize, Serialize};
use std::fmt;

/// A file that a machine is started with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// The Linux kernel.
    Kernel,
    /// The list of its functions.
    KernelNames,
    /// Linux's initial file system.
    Initrd,
    /// The same with the yardsticks.
    BenchInitrd,
    /// The FreeRTOS guest.
    Rt,
    /// The guest of the project's tests.
    Probe,
    /// The image that `spm` builds of a system.
    System,
    /// A blank disk.
    Disk,
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Kernel => "Image",
            Self::KernelNames => "Image.map",
            Self::Initrd => "initrd.cpio",
            Self::BenchInitrd => "initrd-bench.cpio",
            Self::Rt => "freertos.elf",
            Self::Probe => "probe",
            Self::System => "system.img",
            Self::Disk => "disk.img",
        })
    }
}
