// SPDX-License-Identifier: MIT OR Apache-2.0
//! A KVM host that runs two Linux guests, each in a QEMU of its own, on one bridge; or one that talks to the host over sockets
//! (`guests/kvm/pair`).

use crate::linux::{LINUX_MEMORY_MIB, Linux};
use crate::role::{Flavour, Role};

/// Size in MiB of the pages that the guests' memory is made of.
const HUGE_PAGE_MIB: u32 = 2;

/// A KVM host with one or two Linux guests. The kernel is the stock kernel everywhere.
#[derive(Clone, Debug, PartialEq)]
pub struct KvmPair {
    /// Cores of the host.
    pub cores: u32,
    /// The guest whose result counts.
    pub linux: Linux,
    /// The other one; `None`: the host itself serves sockets.
    pub peer: Option<Linux>,
}

impl KvmPair {
    /// The command line of the host's kernel. `guests/kvm/pair` takes the guests' own parts from it.
    pub fn bootargs(&self) -> String {
        let (cpus, peer) = match &self.peer {
            // As the first guest's own parts: the scenario, then its arguments.
            Some(peer) => {
                let arguments = peer.arguments.iter().map(|it| it.replace(' ', ","));
                let words: Vec<_> = [peer.scenario.clone()]
                    .into_iter()
                    .chain(arguments)
                    .collect();
                (peer.cpus, words.join(","))
            }
            None => (0, "host".into()),
        };
        format!(
            "{} hugepages={} spumone.cpus={},{cpus} spumone.peer={peer}",
            self.linux.bootargs(),
            2 * LINUX_MEMORY_MIB / HUGE_PAGE_MIB,
            self.linux.cpus,
        )
    }

    /// The host's kernel.
    pub fn kernel(&self) -> Role {
        Role::Kernel(Flavour::Cloud)
    }

    /// The host's initial file system, with both guests.
    pub fn initrd(&self) -> Role {
        Role::KvmPair
    }

    /// The files that it is started with, and the list of the functions of the kernel.
    pub fn files(&self) -> Vec<Role> {
        let names = Role::KernelNames(Flavour::Cloud);
        vec![self.kernel(), names, self.initrd()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_is_told_of_both_guests() {
        let mut pair = KvmPair {
            cores: 2,
            linux: Linux::new(2, "iperf", &["role=server", "runs=3"]),
            peer: Some(Linux::new(1, "iperf", &["role=client mib=4"])),
        };
        assert_eq!(
            pair.bootargs(),
            "console=ttyAMA0 quiet cryptomgr.notests spumone.run=iperf spumone.args=role=server,runs=3 hugepages=512 \
             spumone.cpus=2,1 spumone.peer=iperf,role=client,mib=4"
        );
        pair.peer = None;
        assert!(
            pair.bootargs()
                .ends_with(" spumone.cpus=2,0 spumone.peer=host")
        );
        let files: Vec<_> = pair.files().iter().map(Role::to_string).collect();
        assert_eq!(files, ["Image", "Image.map", "kvm-pair.cpio"]);
    }

    /// The host's script has the size of the guests' memory in QEMU's command lines.
    #[test]
    fn there_are_pages_for_the_memory_of_both_guests() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../guests/kvm/pair");
        let script = std::fs::read_to_string(path).unwrap();
        assert!(script.contains(&format!(" -m {LINUX_MEMORY_MIB} ")));
    }
}
