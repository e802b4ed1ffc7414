// SPDX-License-Identifier: MIT OR Apache-2.0
//! The measured Linux: the same on the bare machine and as a guest.

use crate::role::{Flavour, Role};

/// Start of Linux's command line, up to the name of its scenario.
const BOOTARGS: &str = "console=ttyAMA0 quiet cryptomgr.notests spumone.run=";
/// Memory of Linux, the same bare and as a guest, so that its own decisions are the same.
pub const LINUX_MEMORY_MIB: u32 = 512;

/// Options of a kernel that keep all other work off the last of four cores (Linux,
/// `Documentation/admin-guide/kernel-parameters.txt`). A kernel cannot isolate core 0, where it boots: so early it knows no other
/// core, and ignores the option (`kernel/sched/isolation.c`).
pub const ISOLATED: &[&str] = &[
    "isolcpus=managed_irq,domain,3",
    "nohz_full=3",
    "rcu_nocbs=3",
    "irqaffinity=0-2",
];

/// Linux on the bare machine, or as a guest of any hypervisor.
#[derive(Clone, Debug, PartialEq)]
pub struct Linux {
    /// Number of CPUs.
    pub cpus: u32,
    /// Home core of each vCPU under Spumone; empty: CPU n on core n.
    pub homes: Vec<u32>,
    /// Priority of each vCPU under Spumone; empty: that of Linux in all systems.
    pub priorities: Vec<u8>,
    /// Its scenario, a file in `guests/linux/scenarios/`.
    pub scenario: String,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// Its kernel.
    pub flavour: Flavour,
    /// More options of the kernel's command line.
    pub options: Vec<String>,
    /// Which initial file system it has.
    pub programs: Programs,
}

/// What is in Linux's initial file system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Programs {
    /// What most scenarios need.
    #[default]
    Few,
    /// More: the yardsticks.
    Bench,
    /// More: the drivers for sharing devices, and for sockets between guests. Only the stock kernel has it.
    Share,
}

impl Linux {
    /// Linux with a scenario.
    pub fn new(cpus: u32, scenario: &str, arguments: &[&str]) -> Self {
        Self {
            cpus,
            homes: Vec::new(),
            priorities: Vec::new(),
            scenario: scenario.to_owned(),
            arguments: arguments.iter().map(|&it| it.to_owned()).collect(),
            flavour: Flavour::default(),
            options: Vec::new(),
            programs: Programs::default(),
        }
    }

    /// Linux with this number of CPUs and this command line, if it is one that [`Self::bootargs`] makes.
    pub fn from_bootargs(cpus: u32, bootargs: &str) -> Option<Self> {
        let rest = bootargs.strip_prefix(BOOTARGS)?;
        let (scenario, arguments) = rest.split_once(" spumone.args=").unwrap_or((rest, ""));
        let arguments: Vec<_> = arguments.split(',').filter(|it| !it.is_empty()).collect();
        let linux = Self::new(cpus, scenario, &arguments);
        (linux.bootargs() == bootargs).then_some(linux)
    }

    /// The kernel's command line, the same bare and as a guest of Spumone. Others add to it.
    pub fn bootargs(&self) -> String {
        let mut text = format!("{BOOTARGS}{}", self.scenario);
        if !self.arguments.is_empty() {
            // `/init` of the guest replaces commas by spaces.
            let words: Vec<_> = self.arguments.iter().flat_map(|it| it.split(' ')).collect();
            text += &format!(" spumone.args={}", words.join(","));
        }
        for option in &self.options {
            text = format!("{text} {option}");
        }
        text
    }

    /// Its initial file system.
    pub fn initrd(&self) -> Role {
        match self.programs {
            Programs::Few => Role::Initrd(self.flavour),
            Programs::Bench => Role::BenchInitrd(self.flavour),
            Programs::Share => Role::ShareInitrd,
        }
    }

    /// Its kernel.
    pub fn kernel(&self) -> Role {
        Role::Kernel(self.flavour)
    }

    /// The files that it is started with, and the list of its kernel's functions.
    pub fn files(&self) -> Vec<Role> {
        let names = Role::KernelNames(self.flavour);
        vec![self.kernel(), names, self.initrd()]
    }
}
