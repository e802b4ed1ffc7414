// SPDX-License-Identifier: MIT OR Apache-2.0
//! What one run boots, and QEMU's arguments for it. No I/O.

use crate::clock::MARK_DONE;
use crate::kvm::Kvm;
use crate::kvm_pair::KvmPair;
use crate::linux::{LINUX_MEMORY_MIB, Linux};
use crate::qemu::{self, Arguments, Console};
use crate::role::Role;
use crate::system::System;
use crate::xen::XenSystem;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::time::Duration;

/// Memory of every machine with a hypervisor or with FreeRTOS alone, in MiB; guests get parts of it.
pub const MEMORY_MIB: u64 = 2048;

/// What is booted.
#[derive(Clone, Debug, PartialEq)]
pub enum Machine {
    /// Linux without a hypervisor.
    BareLinux(Linux),
    /// FreeRTOS without a hypervisor, with these arguments.
    BareRt(String),
    /// A Spumone system.
    Spumone(System),
    /// A Xen system.
    Xen(XenSystem),
    /// A KVM host with its guests.
    Kvm(Kvm),
    /// A KVM host with two Linux guests.
    KvmPair(KvmPair),
}

impl Machine {
    /// Number of cores.
    pub fn cores(&self) -> u32 {
        match self {
            Self::BareLinux(linux) => linux.cpus,
            Self::BareRt(_) => 1,
            Self::Spumone(system) => system.cores,
            Self::Xen(system) => system.cores,
            Self::Kvm(kvm) => kvm.cores,
            Self::KvmPair(pair) => pair.cores,
        }
    }

    /// Linux, if there is one.
    pub fn linux(&self) -> Option<&Linux> {
        match self {
            Self::BareLinux(linux) => Some(linux),
            Self::BareRt(_) => None,
            Self::Spumone(system) => system.linux.as_ref(),
            Self::Xen(system) => Some(&system.linux),
            Self::Kvm(kvm) => Some(&kvm.linux),
            Self::KvmPair(pair) => Some(&pair.linux),
        }
    }

    /// Whether it has a real-time guest.
    pub fn has_rt(&self) -> bool {
        match self {
            Self::BareLinux(_) | Self::KvmPair(_) => false,
            Self::BareRt(_) | Self::Xen(_) | Self::Kvm(_) => true,
            Self::Spumone(system) => !system.rt.is_empty(),
        }
    }

    /// How many probes it has.
    pub fn probe_count(&self) -> usize {
        match self {
            Self::Spumone(system) => system.probe.iter().chain(&system.probe_peer).count(),
            _ => 0,
        }
    }

    /// The files that it is started with, without those that each run makes.
    pub fn files(&self) -> Vec<Role> {
        match self {
            Self::BareLinux(linux) => linux.files(),
            Self::BareRt(_) => vec![Role::Rt],
            Self::Spumone(System {
                linux: Some(linux), ..
            }) => vec![Role::System, Role::KernelNames(linux.flavour)],
            Self::Spumone(_) => vec![Role::System],
            Self::Xen(system) => [vec![Role::System], system.files()].concat(),
            Self::Kvm(kvm) => kvm.files(),
            Self::KvmPair(pair) => pair.files(),
        }
    }
}

/// Settings of the exact clock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockSettings {
    /// The quantum: instructions that a core executes in its turn.
    pub quantum: u32,
    /// Instructions in a virtual microsecond.
    pub ipus: u32,
    /// Selects one of the possible runs of the same system.
    pub seed: u32,
    /// Virtual time at which the run ends, if guests do not end by themselves.
    pub end_us: Option<u64>,
    /// The kind of exits to EL2 of which the clock records the executed code: the argument of `testbed/run --trails`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trails: Option<String>,
}

/// Which guest must give its result first, since the other one is there to disturb it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// There is one guest, or the order does not matter.
    Any,
    /// The real-time guest must end its measurement while Linux is still busy.
    RtFirst,
    /// Linux, or the probe, must end its measurement while the real-time guest still runs. Judged by the clock, since console
    /// output may be late.
    LinuxFirst {
        /// The real-time guest runs at least until this virtual time, in nanoseconds.
        rt_until: u64,
    },
}

/// One run of an experiment, without its seed.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// Its label within the experiment, which is also a file name.
    pub label: String,
    /// What is booted.
    pub machine: Machine,
    /// Size of a blank disk, in MiB; 0: no disk.
    pub disk_mib: u32,
    /// Clock.
    pub clock: ClockSettings,
    /// The guest that must give its result first.
    pub order: Order,
}

impl Run {
    /// The mark that ends the run: after Linux's results, the real-time guest is not needed. A KVM host shows them only
    /// after that, and ends by itself.
    pub fn end_mark(&self) -> Option<u32> {
        let linux_first = matches!(self.order, Order::LinuxFirst { .. });
        let shows_at_once = !matches!(self.machine, Machine::Kvm(_) | Machine::KvmPair(_));
        (linux_first && shows_at_once && self.machine.linux().is_some()).then_some(MARK_DONE as u32)
    }
}

/// Host time after which a run is killed, since it hangs. No result depends on it.
pub const LIMIT: Duration = Duration::from_secs(1800);

/// QEMU's arguments; `file` gives the path of each file.
pub fn arguments(run: &Run, file: impl Fn(Role) -> PathBuf) -> Vec<String> {
    let machine = match run.machine {
        Machine::Spumone(_) | Machine::Xen(_) | Machine::Kvm(_) | Machine::KvmPair(_) => {
            qemu::WITH_EL2
        }
        Machine::BareLinux(_) | Machine::BareRt(_) => qemu::BARE,
    };
    let memory_mib = match run.machine {
        Machine::BareLinux(_) => LINUX_MEMORY_MIB.into(),
        Machine::BareRt(_)
        | Machine::Spumone(_)
        | Machine::Xen(_)
        | Machine::Kvm(_)
        | Machine::KvmPair(_) => MEMORY_MIB,
    };
    let mut args = Arguments::new(&qemu::Machine {
        machine,
        cpu: qemu::CPU,
        cores: run.machine.cores().into(),
        memory_mib,
    })
    .console(Console::Stdio)
    .with(["-no-reboot"]);
    args = match &run.machine {
        Machine::BareLinux(linux) => args
            .kernel(&file(linux.kernel()))
            .initrd(&file(linux.initrd()))
            .append(&linux.bootargs()),
        Machine::BareRt(bootargs) => args.kernel(&file(Role::Rt)).append(bootargs),
        Machine::Spumone(_) => args.kernel(&file(Role::System)),
        Machine::Xen(system) => system.boot(args, &file),
        Machine::Kvm(kvm) => args
            .kernel(&file(kvm.kernel()))
            .initrd(&file(kvm.initrd()))
            .append(&kvm.bootargs()),
        Machine::KvmPair(pair) => args
            .kernel(&file(pair.kernel()))
            .initrd(&file(pair.initrd()))
            .append(&pair.bootargs()),
    };
    if run.disk_mib > 0 {
        args = args.modern_virtio().disk(&file(Role::Disk));
    }
    if matches!(&run.machine, Machine::Spumone(system) if system.has_cable()) {
        args = args.modern_virtio().cable();
    }
    let words = args.into_vec().into_iter();
    words
        .map(|word| word.to_string_lossy().into_owned())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(machine: Machine, disk_mib: u32) -> Run {
        Run {
            label: "a".into(),
            machine,
            disk_mib,
            clock: ClockSettings {
                quantum: 500,
                ipus: 250,
                seed: 0,
                end_us: None,
                trails: None,
            },
            order: Order::Any,
        }
    }

    fn text(run: &Run) -> String {
        arguments(run, |role| format!("{{{role}}}").into()).join(" ")
    }

    #[test]
    fn bare_linux_has_no_el2_and_its_own_command_line() {
        let linux = Linux::new(3, "hackbench", &["-g 1", "runs=2"]);
        assert_eq!(
            text(&run(Machine::BareLinux(linux), 0)),
            "-M virt,gic-version=3 -cpu cortex-a76 -smp 3 -m 512M -display none -nodefaults \
             -serial stdio -no-reboot -kernel {Image} -initrd {initrd.cpio} -append \
             console=ttyAMA0 quiet cryptomgr.notests spumone.run=hackbench spumone.args=-g,1,runs=2"
        );
    }

    #[test]
    fn linux_is_read_from_its_command_line() {
        for linux in [
            Linux::new(4, "hackbench", &["-g", "1", "runs=2"]),
            Linux::new(1, "idle", &[]),
        ] {
            let read = Linux::from_bootargs(linux.cpus, &linux.bootargs());
            assert_eq!(read, Some(linux));
        }
        for other in [
            "console=ttyAMA0 quiet spumone.run=hackbench",
            "console=ttyAMA0 quiet cryptomgr.notests spumone.run=idle spumone.args=",
        ] {
            assert_eq!(Linux::from_bootargs(1, other), None);
        }
    }

    #[test]
    fn bare_freertos_has_one_core() {
        let text = text(&run(Machine::BareRt("period=1ms".into()), 0));
        assert!(
            text.contains("-smp 1 ") && text.ends_with("-kernel {freertos.elf} -append period=1ms")
        );
    }

    #[test]
    fn a_disk_is_a_device_of_the_machine() {
        let text = text(&run(Machine::BareLinux(Linux::new(1, "disk", &[])), 16));
        assert!(text.ends_with("file={disk.img} -device virtio-blk-device,drive=disk"));
    }
}
