// SPDX-License-Identifier: MIT OR Apache-2.0
//! A KVM host, which runs FreeRTOS above Linux, each in a QEMU of its own (`guests/kvm/`).

use crate::linux::{LINUX_MEMORY_MIB, Linux};
use crate::role::{Flavour, Role};

/// Memory of the FreeRTOS guest in MiB.
const RT_MEMORY_MIB: u32 = 64;
/// Size in MiB of the pages that the guests' memory is made of.
const HUGE_PAGE_MIB: u32 = 2;
/// Keeps interrupts of devices off core 0, which FreeRTOS shares (Linux, `Documentation/admin-guide/kernel-parameters.txt`).
const IRQ_AFFINITY: &str = "irqaffinity=1-3";

/// The guest that measures. The machine ends with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// Linux.
    Linux,
    /// FreeRTOS.
    Rt,
}

impl Until {
    fn name(self) -> &'static str {
        match self {
            Self::Linux => "linux",
            Self::Rt => "rt",
        }
    }
}

/// A KVM host with its two guests.
#[derive(Clone, Debug, PartialEq)]
pub struct Kvm {
    /// The host's kernel.
    pub host: Flavour,
    /// The Linux guest: four vCPUs, one on each core, the last one on core 0. Its kernel is the stock kernel.
    pub linux: Linux,
    /// The parameters of the FreeRTOS guest, on core 0 and above Linux.
    pub rt: String,
    /// The guest that measures.
    pub until: Until,
}

impl Kvm {
    /// The command line of the host's kernel. `guests/kvm/init` takes the guests' own parts from it.
    pub fn bootargs(&self) -> String {
        format!(
            "{} hugepages={} {IRQ_AFFINITY} spumone.rt={} spumone.until={}",
            self.linux.bootargs(),
            (LINUX_MEMORY_MIB + RT_MEMORY_MIB) / HUGE_PAGE_MIB,
            self.rt.replace(' ', ","),
            self.until.name(),
        )
    }

    /// The host's kernel.
    pub fn kernel(&self) -> Role {
        Role::Kernel(self.host)
    }

    /// The host's initial file system, with both guests.
    pub fn initrd(&self) -> Role {
        Role::KvmHost(self.host)
    }

    /// The files that it is started with, and the list of the functions of the Linux guest's kernel.
    pub fn files(&self) -> Vec<Role> {
        let names = Role::KernelNames(self.linux.flavour);
        vec![self.kernel(), names, self.initrd()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_is_told_of_both_guests() {
        let kvm = Kvm {
            host: Flavour::Rt,
            linux: Linux::new(4, "hackbench", &["-g 1", "runs=2"]),
            rt: "period=1ms load=50%".into(),
            until: Until::Linux,
        };
        assert_eq!(
            kvm.bootargs(),
            "console=ttyAMA0 quiet cryptomgr.notests spumone.run=hackbench spumone.args=-g,1,runs=2 hugepages=288 \
             irqaffinity=1-3 spumone.rt=period=1ms,load=50% spumone.until=linux"
        );
        let files: Vec<_> = kvm.files().iter().map(Role::to_string).collect();
        assert_eq!(files, ["Image-rt", "Image.map", "kvm-rt.cpio"]);
    }

    /// The host's script has the sizes of memory in QEMU's command lines.
    #[test]
    fn there_are_pages_for_the_memory_of_both_guests() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../guests/kvm/init");
        let script = std::fs::read_to_string(path).unwrap();
        for memory in [LINUX_MEMORY_MIB, RT_MEMORY_MIB] {
            assert!(script.contains(&format!(" -m {memory} ")), "{memory}");
        }
    }
}
