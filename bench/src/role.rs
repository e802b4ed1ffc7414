// SPDX-License-Identifier: MIT OR Apache-2.0
//! The roles of the files with which a machine is started.

use std::fmt;

/// Debian's flavours of the kernel (`guests/linux/build.sh`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Flavour {
    /// The stock kernel, as cloud images have it.
    #[default]
    Cloud,
    /// The kernel with PREEMPT_RT.
    Rt,
}

impl Flavour {
    /// What the names of its files have behind those of the stock kernel.
    fn suffix(self) -> &'static str {
        match self {
            Self::Cloud => "",
            Self::Rt => "-rt",
        }
    }
}

/// A file that a machine is started with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// The Linux kernel.
    Kernel(Flavour),
    /// The list of its functions.
    KernelNames(Flavour),
    /// Linux's initial file system, with this kernel's modules.
    Initrd(Flavour),
    /// The same with the yardsticks.
    BenchInitrd(Flavour),
    /// The initial file system of the stock kernel with the drivers for sharing devices, and for sockets between guests.
    ShareInitrd,
    /// The KVM host's initial file system, with this kernel's modules and the guests.
    KvmHost(Flavour),
    /// The same of the KVM host with two Linux guests, for the stock kernel.
    KvmPair,
    /// The FreeRTOS guest.
    Rt,
    /// The same as a flat file in the arm64 Image format.
    RtFlat,
    /// Xen.
    Xen,
    /// Its control domain.
    XenControl,
    /// The archive that seeds the random generator of its Linux.
    XenSeed,
    /// The guest of the project's tests.
    Probe,
    /// What is made of a system for each run: Spumone's image, or Xen's device tree.
    System,
    /// A blank disk.
    Disk,
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kernel(it) => write!(f, "Image{}", it.suffix()),
            Self::KernelNames(it) => write!(f, "Image{}.map", it.suffix()),
            Self::Initrd(it) => write!(f, "initrd{}.cpio", it.suffix()),
            Self::BenchInitrd(it) => write!(f, "initrd{}-bench.cpio", it.suffix()),
            Self::ShareInitrd => f.write_str("initrd-share.cpio"),
            Self::KvmHost(it) => write!(f, "kvm{}.cpio", it.suffix()),
            Self::KvmPair => f.write_str("kvm-pair.cpio"),
            Self::Rt => f.write_str("freertos.elf"),
            Self::RtFlat => f.write_str("freertos.bin"),
            Self::Xen => f.write_str("xen"),
            Self::XenControl => f.write_str("setup.bin"),
            Self::XenSeed => f.write_str("seed.cpio"),
            Self::Probe => f.write_str("probe"),
            Self::System => f.write_str("system.img"),
            Self::Disk => f.write_str("disk.img"),
        }
    }
}
