// SPDX-License-Identifier: MIT OR Apache-2.0
//! The Spumone systems that experiments boot, as system descriptions (`docs/system-description.md`).

use crate::console::FIRST_RT;
use crate::description::{Board, Description, Guest, Link, Power, Priority, Protect, Scheduler};
use crate::linux::{LINUX_MEMORY_MIB, Linux};
use std::path::Path;

/// Priority of real-time guests.
pub const RT_PRIORITY: u8 = 200;
/// Priority of Linux, where each of its vCPUs has the same, and of the probe.
pub const LINUX_PRIORITY: u8 = 100;

/// The name of Linux.
pub const LINUX: &str = "linux";
/// The name of the second Linux.
pub const PEER: &str = "peer";

/// The name of the probe.
pub const PROBE: &str = "probe";
/// The name of the second probe.
pub const PROBE_PEER: &str = "probe-peer";

/// A system: real-time guests, at most one Linux with a peer, and at most one probe with a peer.
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
    /// The mode of `[power]`; `None`: no such table.
    pub power: Option<String>,
    /// Real-time guests; [`rt_name`] gives the name of each.
    pub rt: Vec<Rt>,
    /// Linux, if there is one.
    pub linux: Option<Linux>,
    /// Whether Linux gets the first virtio device.
    pub disk: bool,
    /// A second Linux, with the name [`PEER`]. Unless there are links, it and the first one have a network card each, on one cable; then
    /// the first virtio device is such a card.
    pub peer: Option<Box<Linux>>,
    /// Links between guests.
    pub links: Vec<Link>,
    /// The probe, if there is one.
    pub probe: Option<Probe>,
    /// A second probe, with the name [`PROBE_PEER`].
    pub probe_peer: Option<Probe>,
}

/// A real-time guest.
#[derive(Clone, Debug, PartialEq)]
pub struct Rt {
    /// Its arguments.
    pub bootargs: String,
    /// Its home core.
    pub core: u32,
    /// Further cores that it may move to.
    pub cores: Vec<u32>,
    /// How early it is woken, as in a description; `None`: as the default says.
    pub wake_early: Option<String>,
    /// Its priority; `None`: that of all real-time guests.
    pub priority: Option<u8>,
    /// How what it must not change is protected, if it is.
    pub protected: Option<Protected>,
    /// Its memory.
    pub memory: String,
}

/// How a real-time guest is protected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Protected {
    /// Its code and constants are checked once in this time, as "20ms".
    Checked(String),
    /// It runs from so much local memory, as "256KiB".
    Local(String),
}

impl Protected {
    fn described(&self) -> Protect {
        let (by, round, memory) = match self {
            Self::Checked(round) => ("hash", round.clone(), String::new()),
            Self::Local(memory) => ("local", String::new(), memory.clone()),
        };
        Protect {
            by: by.into(),
            ranges: Vec::new(),
            round,
            memory,
        }
    }
}

impl Rt {
    /// On core 0, where it stays: as most figures have it.
    pub fn new(bootargs: impl Into<String>) -> Self {
        Self {
            bootargs: bootargs.into(),
            core: 0,
            cores: Vec::new(),
            wake_early: None,
            priority: None,
            protected: None,
            memory: "16MiB".into(),
        }
    }
}

/// The name of a real-time guest of a system, by its place in the list: `rt`, `rt2`, …
pub fn rt_name(place: usize) -> String {
    match place {
        0 => FIRST_RT.into(),
        _ => format!("{FIRST_RT}{}", place + 1),
    }
}

/// The bare-metal guest of the project's tests (`tests/guests/`), with a suite that measures.
#[derive(Clone, Debug, PartialEq)]
pub struct Probe {
    /// Home core of each vCPU.
    pub homes: Vec<u32>,
    /// Its arguments.
    pub bootargs: String,
    /// Whether it may set the mode of `[power]`.
    pub sets_power: bool,
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
    /// Whether the two Linux guests have cards of the machine, on a cable.
    pub fn has_cable(&self) -> bool {
        self.peer.is_some() && self.links.is_empty()
    }

    /// The description, with the random seeds fixed.
    ///
    /// # Errors
    ///
    /// As [`Description::to_toml`].
    pub fn description(&self, files: &Files<'_>) -> Result<String, String> {
        let rt = self.rt.iter().enumerate().map(|(place, rt)| Guest {
            name: rt_name(place),
            kind: "elf".into(),
            image: path(files.rt),
            memory: rt.memory.clone(),
            vcpus: vec![rt.core],
            cores: (!rt.cores.is_empty()).then(|| rt.cores.clone()),
            priority: Some(Priority::All(rt.priority.unwrap_or(RT_PRIORITY))),
            wake_early: rt.wake_early.clone(),
            protect: rt.protected.as_ref().map(Protected::described),
            bootargs: rt.bootargs.clone(),
            ..Guest::default()
        });
        let has_cable = self.has_cable();
        let has_device = self.disk || has_cable;
        let linux = self
            .linux
            .iter()
            .map(|it| (it, LINUX, has_device.then_some("virtio0")));
        // Its card is in another page of the board's devices than the first one.
        let peer = self
            .peer
            .iter()
            .map(|it| (it.as_ref(), PEER, has_cable.then_some("virtio8")));
        let linux = linux.chain(peer).map(|(linux, name, device)| Guest {
            name: name.into(),
            kind: "linux".into(),
            image: path(files.kernel),
            initrd: Some(path(files.initrd)),
            memory: format!("{LINUX_MEMORY_MIB}MiB"),
            identity: true,
            trusted_dma: device.is_some(),
            vcpus: match linux.homes.is_empty() {
                true => (0..linux.cpus).collect(),
                false => linux.homes.clone(),
            },
            priority: Some(match linux.priorities.is_empty() {
                true => Priority::All(LINUX_PRIORITY),
                false => Priority::PerVcpu(linux.priorities.clone()),
            }),
            bootargs: linux.bootargs(),
            devices: device.map(Into::into).into_iter().collect(),
            ..Guest::default()
        });
        let probe = self.probe.iter().map(|it| (it, PROBE));
        let probe_peer = self.probe_peer.iter().map(|it| (it, PROBE_PEER));
        let probes = probe.chain(probe_peer).map(|(probe, name)| Guest {
            name: name.into(),
            kind: "elf".into(),
            image: path(files.probe),
            memory: "64MiB".into(),
            vcpus: probe.homes.clone(),
            priority: Some(Priority::All(LINUX_PRIORITY)),
            bootargs: probe.bootargs.clone(),
            sets_power: probe.sets_power,
            ..Guest::default()
        });
        let description = Description {
            links: self.links.clone(),
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
            power: self.power.clone().map(|mode| Power {
                mode,
                cores_on: None,
            }),
            guests: rt.chain(linux).chain(probes).collect(),
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
            power: None,
            rt: vec![Rt::new("period=1ms")],
            linux: Some(linux),
            disk: true,
            peer: None,
            links: Vec::new(),
            probe: Some(Probe {
                homes: vec![1, 0],
                bootargs: "suite=ipi".into(),
                sets_power: false,
            }),
            probe_peer: None,
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
trusted-dma = true
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
        assert_eq!(system.description(&files()).unwrap(), expected);
    }

    #[test]
    fn two_linux_guests_on_a_cable_have_a_card_each() {
        let mut peer = Linux::new(2, "iperf", &["role=client"]);
        peer.homes = vec![2, 3];
        let system = System {
            cores: 4,
            policy: "steal".into(),
            linux: Some(Linux::new(2, "iperf", &["role=server"])),
            peer: Some(Box::new(peer)),
            ..System::default()
        };
        let text = system.description(&files()).unwrap();
        let lines = text.lines();
        let said: Vec<_> = lines
            .filter(|it| {
                it.starts_with("name") || it.starts_with("vcpus") || it.starts_with("devices")
            })
            .collect();
        let expected = [
            "name = \"qemu-virt\"",
            "name = \"linux\"",
            "vcpus = [0, 1]",
            "devices = [\"virtio0\"]",
            "name = \"peer\"",
            "vcpus = [2, 3]",
            "devices = [\"virtio8\"]",
        ];
        assert_eq!(said, expected);
    }

    #[test]
    fn two_linux_guests_with_a_link_need_no_device() {
        let system = System {
            cores: 2,
            policy: "steal".into(),
            linux: Some(Linux::new(2, "sockets", &["other=4"])),
            peer: Some(Box::new(Linux::new(2, "sockets", &["seconds=9"]))),
            links: vec![Link {
                kind: "vsock".into(),
                between: [LINUX.into(), PEER.into()],
                offloads: None,
            }],
            ..System::default()
        };
        let text = system.description(&files()).unwrap();
        assert!(!text.contains("devices"), "{text}");
        let link = "[[link]]\nkind = \"vsock\"\nbetween = [\"linux\", \"peer\"]\n";
        assert!(text.ends_with(link), "{text}");
    }

    #[test]
    fn two_probes_have_names_of_their_own() {
        let probe = |bootargs: &str| Probe {
            homes: vec![0],
            bootargs: bootargs.into(),
            sets_power: false,
        };
        let system = System {
            cores: 2,
            policy: "steal".into(),
            probe: Some(probe("suite=attack kind=frames")),
            probe_peer: Some(probe("suite=attack kind=spin")),
            links: vec![Link {
                kind: "network".into(),
                between: [PROBE.into(), PROBE_PEER.into()],
                offloads: Some(true),
            }],
            ..System::default()
        };
        let text = system.description(&files()).unwrap();
        let at = |line: &str| text.find(line).unwrap_or_else(|| panic!("{text}"));
        assert!(at("kind=frames") < at("name = \"probe-peer\""));
        assert!(at("name = \"probe-peer\"") < at("kind=spin"));
        let link = "between = [\"probe\", \"probe-peer\"]\noffloads = true\n";
        assert!(text.ends_with(link), "{text}");
    }

    fn files() -> Files<'static> {
        Files {
            kernel: Path::new("/g/Image"),
            initrd: Path::new("/g/initrd.cpio"),
            rt: Path::new("/g/rt.elf"),
            probe: Path::new("/g/probe"),
        }
    }

    #[test]
    fn real_time_guests_have_names_of_their_own_and_vcpus_of_linux_priorities() {
        let mut linux = Linux::new(2, "hackbench", &[]);
        linux.priorities = vec![250, LINUX_PRIORITY];
        let system = System {
            cores: 2,
            policy: "steal".into(),
            rt: vec![
                Rt {
                    cores: vec![0, 1],
                    wake_early: Some("8us".into()),
                    ..Rt::new("period=1ms")
                },
                Rt {
                    core: 1,
                    ..Rt::new("period=2ms")
                },
            ],
            linux: Some(linux),
            ..System::default()
        };
        let text = system.description(&files()).unwrap();
        let names: Vec<_> = text.lines().filter(|it| it.starts_with("name")).collect();
        let expected = [
            "name = \"qemu-virt\"",
            "name = \"rt\"",
            "name = \"rt2\"",
            "name = \"linux\"",
        ];
        assert_eq!(names, expected);
        let places: Vec<_> = text
            .lines()
            .filter(|it| {
                ["vcpus", "cores = [", "priority", "wake-early"]
                    .iter()
                    .any(|key| it.starts_with(key))
            })
            .collect();
        let expected = [
            "vcpus = [0]",
            "cores = [0, 1]",
            "priority = 200",
            "wake-early = \"8us\"",
            "vcpus = [1]",
            "priority = 200",
            "vcpus = [0, 1]",
            "priority = [250, 100]",
        ];
        assert_eq!(places, expected);
    }
}
