// SPDX-License-Identifier: MIT OR Apache-2.0
//! The Xen systems that experiments boot: two domains that Xen makes itself from the device tree ("dom0less"), beside a
//! control domain that sets their weights and cores and then sleeps (`guests/xen/README.md`).

pub mod console;
mod tree;

use crate::linux::{LINUX_MEMORY_MIB, Linux};
use crate::qemu::Arguments;
use crate::role::Role;
use std::path::PathBuf;

/// Xen's command line from the console to the name of the scheduler. `docs/misc/xen-command-line.pandoc` of Xen has each:
/// the console is the first UART, and no domain's input is its own (`x`), so that each line of output has the name of
/// its domain; memory is not cleared at start; a vCPU that wakes may preempt another one at once (0 µs); timers may be late by
/// 1,000 ns, instead of 50 µs.
const BOOTARGS: &str = "console=dtuart dtuart=/pl011@9000000 conswitch=ax bootscrub=0 \
    sched_ratelimit_us=0 timer_slop=1000 sched=";
/// Memory of the real-time guest in MiB, as under Spumone.
const RT_MEMORY_MIB: u32 = 16;
/// Memory of the control domain in MiB. Xen needs 2 MiB each for its program and its device tree, and more than that together
/// (`place_modules` in `xen/arch/arm/kernel.c`).
pub const CONTROL_MEMORY_MIB: u32 = 8;
/// Memory of both guests in MiB.
pub const GUESTS_MIB: u32 = RT_MEMORY_MIB + LINUX_MEMORY_MIB;
/// What Linux runs first: a program that seeds its random generator (`guests/xen/seed.c`), and then `/init`.
const LINUX_OPTION: &str = "rdinit=/seed";

/// The schedulers of Debian's Xen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheduler {
    /// Xen's default since 4.12.
    Credit2,
    /// The default before that.
    Credit,
}

impl Scheduler {
    /// Xen's name of it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Credit2 => "credit2",
            Self::Credit => "credit",
        }
    }
}

/// Which cores the guests have (`guests/xen/setup.c`). The real-time guest is on the last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cores {
    /// Linux has a vCPU for each core. With credit2, each is on a core of its own; with credit, all float.
    Shared,
    /// The real-time guest has its core alone, and Linux has a vCPU on each other one. So WFI need not trap.
    Partitioned,
}

impl Cores {
    /// The number of Linux's vCPUs, on so many cores. The control domain pins them by it.
    pub fn linux_vcpus(self, cores: u32) -> u32 {
        match self {
            Self::Shared => cores,
            Self::Partitioned => cores - 1,
        }
    }
}

/// How Xen is set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setup {
    /// Its scheduler.
    pub scheduler: Scheduler,
    /// Which cores the guests have.
    pub cores: Cores,
}

/// A system: a real-time guest and a Linux.
#[derive(Clone, Debug, PartialEq)]
pub struct XenSystem {
    /// How Xen is set up.
    pub setup: Setup,
    /// Cores of the machine.
    pub cores: u32,
    /// Arguments of the real-time guest.
    pub rt: String,
    /// Linux.
    pub linux: Linux,
}

/// A file that QEMU places in memory, since Xen expects it where the device tree says.
#[derive(Clone, Copy)]
struct Module {
    role: Role,
    address: u64,
}

/// Size in bytes of the archive with the seed (`guests/xen/build.sh`); the initial file system follows it.
const SEED_SIZE: u64 = 1 << 20;
/// Machine addresses of the modules: Linux's kernel, the seed and what follows it, FreeRTOS, the control domain's program.
const KERNEL: u64 = 0x6000_0000;
const SEED: u64 = 0x6800_0000;
const RT: u64 = 0x7000_0000;
const CONTROL: u64 = 0x7100_0000;

impl XenSystem {
    /// The files that it is started with, without the device tree.
    pub fn files(&self) -> Vec<Role> {
        let own = [Role::Xen, Role::KernelNames(self.linux.flavour)];
        let modules = self.modules().into_iter().map(|it| it.role);
        own.into_iter().chain(modules).collect()
    }

    fn modules(&self) -> [Module; 5] {
        let module = |role, address| Module { role, address };
        [
            module(Role::XenControl, CONTROL),
            module(Role::RtFlat, RT),
            module(self.linux.kernel(), KERNEL),
            module(Role::XenSeed, SEED),
            module(self.linux.initrd(), SEED + SEED_SIZE),
        ]
    }

    fn bootargs(&self) -> String {
        let scheduler = self.setup.scheduler;
        let more = match scheduler {
            Scheduler::Credit2 => "credit2_runqueue=cpu",
            Scheduler::Credit => "sched_credit_tslice_ms=1",
        };
        let wfi = match self.setup.cores {
            Cores::Shared => "vwfi=trap",
            Cores::Partitioned => "vwfi=native",
        };
        format!(
            "dom0_mem={CONTROL_MEMORY_MIB}M {BOOTARGS}{} {more} {wfi}",
            scheduler.name()
        )
    }

    fn linux_bootargs(&self) -> String {
        format!("{} {LINUX_OPTION}", self.linux.bootargs())
    }

    /// Adds what is booted to QEMU's arguments.
    pub fn boot(&self, arguments: Arguments, file: impl Fn(Role) -> PathBuf) -> Arguments {
        let arguments = arguments
            .kernel(&file(Role::Xen))
            .device_tree(&file(Role::System));
        self.modules().iter().fold(arguments, |arguments, it| {
            arguments.loaded(&file(it.role), it.address)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::qemu::{Machine, WITH_EL2};

    pub(super) fn system() -> XenSystem {
        XenSystem {
            setup: Setup {
                scheduler: Scheduler::Credit2,
                cores: Cores::Shared,
            },
            cores: 4,
            rt: "period=1ms".into(),
            linux: Linux::new(4, "hackbench", &["-g 1"]),
        }
    }

    #[test]
    fn all_modules_are_where_the_tree_says() {
        let machine = Machine {
            machine: WITH_EL2,
            cpu: "cortex-a76",
            cores: 4,
            memory_mib: 2048,
        };
        let file = |role: Role| PathBuf::from(format!("{{{role}}}"));
        let words = system().boot(Arguments::new(&machine), file).into_vec();
        let words: Vec<_> = words.iter().map(|it| it.to_string_lossy()).collect();
        let text = words.join(" ");
        assert!(text.contains(" -kernel {xen} -dtb {system.img} -device loader"));
        assert!(text.ends_with(
            "-device loader,file={seed.cpio},addr=0x68000000,force-raw=on \
             -device loader,file={initrd.cpio},addr=0x68100000,force-raw=on"
        ));
    }

    #[test]
    fn wfi_is_native_where_each_vcpu_has_a_core() {
        let mut system = system();
        assert!(system.bootargs().ends_with(" vwfi=trap"));
        system.setup.cores = Cores::Partitioned;
        assert!(system.bootargs().ends_with(" vwfi=native"));
    }

    #[test]
    fn linux_is_seeded_first() {
        assert!(
            system()
                .linux_bootargs()
                .ends_with("spumone.args=-g,1 rdinit=/seed")
        );
    }
}
