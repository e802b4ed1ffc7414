// SPDX-License-Identifier: MIT OR Apache-2.0
//! The Spumone systems that experiments boot, as system descriptions (`docs/system-description.md`).

use crate::description::{Board, Description, Guest, Scheduler};
use crate::linux::{LINUX_MEMORY_MIB, Linux};
use std::path::Path;

/// Core that the real-time guest shares with Linux.
pub const RT_CORE: u32 = 0;

/// A system: at most one real-time guest, one Linux and one probe.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct System {
    /// Number of cores.
    pub cores: u32,
    /// The policy against lock-holder preemption.
    pub policy: String,
    /// Mechanisms of the policy that are turned off.
    pub without: Vec<String>,
    /// How interrupts' priorities follow those of the vCPUs; `None`: the default.
    pub interrupt_priorities: Option<String>,
    /// Arguments of the real-time guest on core 0, if there is one.
    pub rt: Option<String>,
    /// Linux, if there is one.
    pub linux: Option<Linux>,
    /// Whether Linux gets the first virtio device.
    pub disk: bool,
    /// The probe, if there is one.
    pub probe: Option<Probe>,
}

/// The bare-metal guest of the project's tests (`tests/guests/`), with a suite that measures.
#[derive(Clone, Debug, PartialEq)]
pub struct Probe {
    /// Home core of each vCPU.
    pub homes: Vec<u32>,
    /// Its arguments.
    pub bootargs: String,
}

/// The files that a description names.
pub struct Files<'a> {
    /// The Linux kernel.
    pub kernel: &'a Path,
    /// Linux's initial file system.
    pub initrd: &'a Path,
    /// The FreeRTOS guest.
    pub rt: &'a Path,
    /// The probe.
    pub probe: &'a Path,
}

impl System {
    /// The description, with the random seeds fixed.
    ///
    /// # Errors
    ///
    /// As [`Description::to_toml`].
    pub fn description(&self, files: &Files<'_>) -> Result<String, String> {
        let rt = self.rt.iter().map(|bootargs| Guest {
            name: "rt".into(),
            kind: "elf".into(),
            image: path(files.rt),
            memory: "16MiB".into(),
            vcpus: vec![RT_CORE],
            priority: Some(200),
            bootargs: bootargs.clone(),
            ..Guest::default()
        });
        let linux = self.linux.iter().map(|linux| Guest {
            name: "linux".into(),
            kind: "linux".into(),
            image: path(files.kernel),
            initrd: Some(path(files.initrd)),
            memory: format!("{LINUX_MEMORY_MIB}MiB"),
            identity: true,
            vcpus: match linux.homes.is_empty() {
                true => (0..linux.cpus).collect(),
                false => linux.homes.clone(),
            },
            priority: Some(100),
            bootargs: linux.bootargs(),
            devices: self.disk.then(|| "virtio0".into()).into_iter().collect(),
            ..Guest::default()
        });
        let probe = self.probe.iter().map(|probe| Guest {
            name: "probe".into(),
            kind: "elf".into(),
            image: path(files.probe),
            memory: "64MiB".into(),
            vcpus: probe.homes.clone(),
            priority: Some(100),
            bootargs: probe.bootargs.clone(),
            ..Guest::default()
        });
        let description = Description {
            seed: Some(1),
            board: Board {
                name: "qemu-virt".into(),
                cores: self.cores,
                memory: "2GiB".into(),
            },
            scheduler: Scheduler {
                policy: self.policy.clone(),
                quantum: "2ms".into(),
                without: self.without.clone(),
                interrupt_priorities: self.interrupt_priorities.clone(),
                ..Scheduler::default()
            },
            guests: rt.chain(linux).chain(probe).collect(),
        };
        description.to_toml("`spm bench`")
    }
}

fn path(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_description_says_what_the_system_is() {
        let mut linux = Linux::new(4, "hackbench", &["-g 1"]);
        linux.homes = vec![1, 2, 3, 0];
        let system = System {
            cores: 4,
            policy: "steal".into(),
            without: vec!["grace".into(), "patience".into()],
            interrupt_priorities: Some("flat".into()),
            rt: Some("period=1ms".into()),
            linux: Some(linux),
            disk: true,
            probe: Some(Probe {
                homes: vec![1, 0],
                bootargs: "suite=ipi".into(),
            }),
        };
        let files = Files {
            kernel: Path::new("/g/Image"),
            initrd: Path::new("/g/initrd.cpio"),
            rt: Path::new("/g/rt.elf"),
            probe: Path::new("/g/probe"),
        };
        let expected = r#"# Written by `spm bench`.
seed = 1

[board]
name = "qemu-virt"
cores = 4
memory = "2GiB"

[scheduler]
policy = "steal"
quantum = "2ms"
without = ["grace", "patience"]
interrupt-priorities = "flat"

[[guest]]
name = "rt"
kind = "elf"
image = "/g/rt.elf"
memory = "16MiB"
vcpus = [0]
priority = 200
bootargs = "period=1ms"

[[guest]]
name = "linux"
kind = "linux"
image = "/g/Image"
initrd = "/g/initrd.cpio"
memory = "512MiB"
identity = true
vcpus = [1, 2, 3, 0]
priority = 100
bootargs = "console=ttyAMA0 quiet cryptomgr.notests spumone.run=hackbench spumone.args=-g,1"
devices = ["virtio0"]

[[guest]]
name = "probe"
kind = "elf"
image = "/g/probe"
memory = "64MiB"
vcpus = [1, 0]
priority = 100
bootargs = "suite=ipi"
"#;
        assert_eq!(system.description(&files).unwrap(), expected);
    }
}
