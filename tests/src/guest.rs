// SPDX-License-Identifier: MIT OR Apache-2.0
//! Guests of a boot, each as its table of the system description.

use crate::{files, flat};
use spumone_bench::description::{self, Restarts};
use std::path::Path;

/// A guest. The functions of this module make the common ones.
#[derive(Clone)]
pub struct Guest {
    pub(crate) table: description::Guest,
}

/// FreeRTOS with its periodic task; `parameters` as in guests/rt/README.md. One vCPU, on core 0.
pub fn rt(parameters: &str) -> Guest {
    Guest::new("rt", "elf", &files::guest("rt/freertos.elf"))
        .memory("16MiB")
        .priority(200)
        .bootargs(parameters)
}

/// Debian's cloud kernel, running a scenario of guests/linux/README.md with its arguments
/// (commas between them). One vCPU for each of `cores`.
pub fn linux(scenario: &str, arguments: &str, cores: &[usize]) -> Guest {
    debian("linux", "", scenario, arguments, cores).priority(100)
}

/// Debian's PREEMPT_RT kernel, otherwise as [`linux()`], with a real-time guest's priority.
pub fn linux_rt(scenario: &str, arguments: &str, cores: &[usize]) -> Guest {
    debian("linux-rt", "-rt", scenario, arguments, cores).priority(200)
}

fn debian(name: &str, suffix: &str, scenario: &str, arguments: &str, cores: &[usize]) -> Guest {
    let image = files::guest(&format!("linux/Image{suffix}"));
    let initrd = files::guest(&format!("linux/initrd{suffix}.cpio"));
    let mut guest = Guest::new(name, "linux", &image)
        .memory("256MiB")
        .homes(cores)
        .bootargs(&format!(
            "console=ttyAMA0 quiet cryptomgr.notests spumone.run={scenario} \
             spumone.args={arguments}"
        ));
    guest.table.initrd = Some(text(&initrd));
    guest
}

/// The guest program of these tests (tests/guests): `suite` and its parameters, as its README
/// lists them. One vCPU for each of `cores`.
pub fn probe(name: &str, bootargs: &str, cores: &[usize]) -> Guest {
    Guest::new(name, "elf", &files::probe())
        .memory("16MiB")
        .homes(cores)
        .priority(100)
        .bootargs(bootargs)
}

/// The guest program that the probe attacks (`tests/guests/src/victim.rs`): 14 pages that must not change, and 6 others. One vCPU, on core 0.
pub fn victim() -> Guest {
    Guest::new("victim", "elf", &files::victim())
        .memory("192KiB")
        .priority(200)
}

/// As [`probe()`], from a raw image, which is written to `folder`.
pub fn raw_probe(folder: &Path, name: &str, bootargs: &str, cores: &[usize]) -> Guest {
    let elf = std::fs::read(files::probe()).unwrap_or_default();
    let (address, memory) = flat::flatten(&elf).expect("the probe is an ELF file");
    let image = folder.join("probe.bin");
    std::fs::write(&image, memory)
        .unwrap_or_else(|error| panic!("cannot write {}: {error}", image.display()));
    let mut guest = probe(name, bootargs, cores);
    guest.table.kind = "raw".to_owned();
    guest.table.image = text(&image);
    guest.table.load = Some(address);
    guest
}

impl Guest {
    fn new(name: &str, kind: &str, image: &Path) -> Self {
        let table = description::Guest {
            name: name.to_owned(),
            kind: kind.to_owned(),
            image: text(image),
            ..description::Guest::default()
        };
        Self { table }.homes(&[0])
    }

    /// Another name.
    pub fn named(mut self, name: &str) -> Self {
        name.clone_into(&mut self.table.name);
        self
    }

    /// Memory, as "16MiB".
    pub fn memory(mut self, size: &str) -> Self {
        size.clone_into(&mut self.table.memory);
        self
    }

    /// The home core of each vCPU.
    pub fn homes(mut self, cores: &[usize]) -> Self {
        self.table.vcpus = numbers(cores);
        self
    }

    /// Further cores that its vCPUs may move to.
    pub fn may_move_to(mut self, cores: &[usize]) -> Self {
        self.table.cores = Some(numbers(cores));
        self
    }

    /// The priority of all vCPUs.
    pub fn priority(mut self, priority: u8) -> Self {
        self.table.priority = Some(description::Priority::All(priority));
        self
    }

    /// The command line.
    pub fn bootargs(mut self, bootargs: &str) -> Self {
        bootargs.clone_into(&mut self.table.bootargs);
        self
    }

    /// A Linux for many lives. It is at the same addresses in each life: at random ones, each life is new code for QEMU and for the exact clock,
    /// which remembers all of it. It leaves out the two initcalls that take longest, a quarter of its start.
    pub fn that_starts_often(mut self) -> Self {
        self.table
            .bootargs
            .push_str(" nokaslr norandmaps initcall_blacklist=jent_mod_init,trace_eval_init");
        self
    }

    /// Another initramfs for Linux, by its name in build/guests/linux.
    pub fn initrd(mut self, name: &str) -> Self {
        self.table.initrd = Some(text(&files::guest(&format!("linux/{name}"))));
        self
    }

    /// One more word on the command line.
    pub fn parameter(mut self, parameter: &str) -> Self {
        self.table.bootargs.push(' ');
        self.table.bootargs.push_str(parameter);
        self
    }

    /// Its core switches to it so long before its timer expires.
    pub fn wake_early(mut self, time: &str) -> Self {
        self.table.wake_early = Some(time.to_owned());
        self
    }

    /// An access where it has nothing is an external abort.
    pub fn takes_aborts(mut self) -> Self {
        self.table.on_fault = Some("abort".to_owned());
        self
    }

    /// What becomes of it when it has ended.
    pub fn on_stop(mut self, what: &str) -> Self {
        self.table.on_stop = Some(what.to_owned());
        self
    }

    /// Its image must not change while it runs; a round over it takes so long, as "1s". It starts again up to 255 times in ten seconds.
    pub fn protected(self, round: &str) -> Self {
        self.protected_with_limit(round, u8::MAX)
    }

    /// It runs from so much local memory, as "128KiB", and starts again up to 255 times in ten seconds.
    pub fn in_local_memory(self, memory: &str) -> Self {
        let mut guest = self.protected("");
        if let Some(protect) = &mut guest.table.protect {
            protect.by = "local".to_owned();
            protect.memory = memory.to_owned();
        }
        guest
    }

    /// The same, and it starts again up to so many times in ten seconds.
    pub fn protected_with_limit(mut self, round: &str, most: u8) -> Self {
        self.table.protect = Some(description::Protect {
            by: "hash".to_owned(),
            ranges: Vec::new(),
            round: round.to_owned(),
            memory: String::new(),
        });
        self.table.restarts = Some(description::Restarts {
            most,
            within: "10s".to_owned(),
        });
        self
    }

    /// It starts again as often as it likes, whatever has ended it.
    pub fn restarts_without_limit(mut self) -> Self {
        self.table.restarts = Some(Restarts {
            most: 255,
            within: "1us".to_owned(),
        });
        self.on_stop("restart")
    }

    /// Its memory is at this machine address.
    pub fn at(mut self, pa: u64) -> Self {
        self.table.pa = Some(pa);
        self
    }

    /// It can read the stolen time of its vCPUs.
    pub fn reads_stolen_time(mut self) -> Self {
        self.table.stolen_time = true;
        self
    }

    /// It may set the mode of `[power]`.
    pub fn sets_power(mut self) -> Self {
        self.table.sets_power = true;
        self
    }

    /// It has a watchdog with this longest timeout, and starts again as often as it likes.
    pub fn watched(mut self, longest: &str) -> Self {
        self.table.watchdog = Some(longest.to_owned());
        self.restarts_without_limit()
    }

    /// Devices passed through; those that do DMA need [`Self::trusted`].
    pub fn devices(mut self, devices: &[&str]) -> Self {
        self.table.devices = devices.iter().map(|&name| name.to_owned()).collect();
        self
    }

    /// It may have devices that do DMA: its addresses are the machine's.
    pub fn trusted(mut self) -> Self {
        self.table.identity = true;
        self.table.trusted_dma = true;
        self
    }
}

fn numbers(cores: &[usize]) -> Vec<u32> {
    cores.iter().map(|&core| core as u32).collect()
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}
