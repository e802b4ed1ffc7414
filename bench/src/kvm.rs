// SPDX-License-Identifier: MIT OR Apache-2.0
//! A KVM host, which runs FreeRTOS above Linux, each in a QEMU of its own (`guests/kvm/`).

use crate::linux::{ISOLATED, LINUX_MEMORY_MIB, Linux};
use crate::role::{Flavour, Role};

/// Memory of the FreeRTOS guest in MiB.
const RT_MEMORY_MIB: u32 = 64;
/// Memory of both guests in MiB.
pub const GUESTS_MIB: u32 = LINUX_MEMORY_MIB + RT_MEMORY_MIB;
/// Size in MiB of the pages that the guests' memory is made of.
const HUGE_PAGE_MIB: u32 = 2;
/// Keeps interrupts of devices off the core of FreeRTOS (Linux, `Documentation/admin-guide/kernel-parameters.txt`).
const SHARED: &[&str] = &["irqaffinity=0-2"];
/// A guest's WFI executes natively (the same file). Where no core has more than one vCPU, no other vCPU waits for the core.
const NATIVE_WFI: &str = "kvm-arm.wfi_trap_policy=notrap";

/// What the machine waits for, and ends with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// Linux measures.
    Linux,
    /// FreeRTOS measures.
    Rt,
    /// FreeRTOS measures, and Linux may restart meanwhile.
    LinuxRestarts,
    /// FreeRTOS restarts itself, until it has had a few lives.
    RtRestarts,
}

impl Until {
    fn name(self) -> &'static str {
        match self {
            Self::Linux => "linux",
            Self::Rt => "rt",
            Self::LinuxRestarts => "linux-restarts",
            Self::RtRestarts => "rt-restarts",
        }
    }
}

/// Where the vCPUs of Linux run. FreeRTOS is on the last core: the host boots on core 0, and cannot isolate that one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// Each vCPU of Linux is pinned to a core. The last one shares the last core with FreeRTOS.
    Pinned,
    /// The host's scheduler may run each vCPU of Linux on any core.
    Floating,
    /// FreeRTOS has the last core alone. Linux has a vCPU less, each pinned to one of the other cores.
    Isolated,
}

impl Placement {
    /// The number of Linux's vCPUs, on a host with so many cores.
    pub fn linux_vcpus(self, cores: u32) -> u32 {
        match self {
            Self::Pinned | Self::Floating => cores,
            Self::Isolated => cores - 1,
        }
    }

    /// The cores of each vCPU of Linux.
    fn linux_cores(self, cores: u32) -> Vec<String> {
        let cores_of = |vcpu: u32| match self {
            Self::Pinned | Self::Isolated => vcpu.to_string(),
            Self::Floating => format!("0-{}", cores - 1),
        };
        (0..self.linux_vcpus(cores)).map(cores_of).collect()
    }

    /// Options of the host's kernel.
    fn options(self) -> Vec<&'static str> {
        match self {
            Self::Pinned | Self::Floating => SHARED.to_vec(),
            Self::Isolated => [ISOLATED, &[NATIVE_WFI]].concat(),
        }
    }
}

/// How a KVM host is set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setup {
    /// The host's kernel.
    pub host: Flavour,
    /// Where the guests' vCPUs run.
    pub placement: Placement,
}

/// A KVM host with its two guests.
#[derive(Clone, Debug, PartialEq)]
pub struct Kvm {
    /// How it is set up.
    pub setup: Setup,
    /// Cores of the host.
    pub cores: u32,
    /// The Linux guest. Its kernel is the stock kernel.
    pub linux: Linux,
    /// The parameters of the FreeRTOS guest, which is above Linux.
    pub rt: String,
    /// What the machine waits for.
    pub until: Until,
}

impl Kvm {
    /// The command line of the host's kernel. `guests/kvm/init` takes the guests' own parts from it.
    pub fn bootargs(&self) -> String {
        let placement = self.setup.placement;
        format!(
            "{} hugepages={} {} spumone.core={} spumone.vcpus={} spumone.rt={} spumone.until={}",
            self.linux.bootargs(),
            GUESTS_MIB / HUGE_PAGE_MIB,
            placement.options().join(" "),
            self.cores - 1,
            placement.linux_cores(self.cores).join(","),
            self.rt.replace(' ', ","),
            self.until.name(),
        )
    }

    /// The host's kernel.
    pub fn kernel(&self) -> Role {
        Role::Kernel(self.setup.host)
    }

    /// The host's initial file system, with both guests.
    pub fn initrd(&self) -> Role {
        Role::KvmHost(self.setup.host)
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

    fn kvm(placement: Placement) -> Kvm {
        Kvm {
            setup: Setup {
                host: Flavour::Rt,
                placement,
            },
            cores: 4,
            linux: Linux::new(placement.linux_vcpus(4), "hackbench", &["-g 1", "runs=2"]),
            rt: "period=1ms load=50%".into(),
            until: Until::Linux,
        }
    }

    #[test]
    fn the_host_is_told_of_both_guests() {
        let kvm = kvm(Placement::Pinned);
        assert_eq!(
            kvm.bootargs(),
            "console=ttyAMA0 quiet cryptomgr.notests spumone.run=hackbench spumone.args=-g,1,runs=2 hugepages=288 \
             irqaffinity=0-2 spumone.core=3 spumone.vcpus=0,1,2,3 spumone.rt=period=1ms,load=50% spumone.until=linux"
        );
        let files: Vec<_> = kvm.files().iter().map(Role::to_string).collect();
        assert_eq!(files, ["Image-rt", "Image.map", "kvm-rt.cpio"]);
    }

    #[test]
    fn vcpus_that_float_may_run_on_all_cores() {
        let text = kvm(Placement::Floating).bootargs();
        assert!(
            text.contains(" irqaffinity=0-2 spumone.core=3 spumone.vcpus=0-3,0-3,0-3,0-3 "),
            "{text}"
        );
    }

    #[test]
    fn an_isolated_core_is_freertos_own() {
        let text = kvm(Placement::Isolated).bootargs();
        assert!(
            text.contains(
                " isolcpus=managed_irq,domain,3 nohz_full=3 rcu_nocbs=3 irqaffinity=0-2 \
                 kvm-arm.wfi_trap_policy=notrap spumone.core=3 spumone.vcpus=0,1,2 "
            ),
            "{text}"
        );
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
