// SPDX-License-Identifier: MIT OR Apache-2.0
//! Guests of a boot, each as its table of the system description.

use crate::{files, flat};
use std::fmt::Write as _;
use std::path::Path;

/// A guest. The functions of this module make the usual ones.
#[derive(Clone)]
pub struct Guest {
    pub(crate) name: String,
    keys: Vec<(&'static str, String)>,
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

/// Debian's PREEMPT_RT kernel, else as [`linux()`], at a real-time guest's priority.
pub fn linux_rt(scenario: &str, arguments: &str, cores: &[usize]) -> Guest {
    debian("linux-rt", "-rt", scenario, arguments, cores).priority(200)
}

fn debian(name: &str, suffix: &str, scenario: &str, arguments: &str, cores: &[usize]) -> Guest {
    let image = files::guest(&format!("linux/Image{suffix}"));
    let initrd = files::guest(&format!("linux/initrd{suffix}.cpio"));
    Guest::new(name, "linux", &image)
        .set("initrd", quoted(&initrd.to_string_lossy()))
        .memory("256MiB")
        .cores(cores)
        .bootargs(&format!(
            "console=ttyAMA0 quiet cryptomgr.notests spumone.run={scenario} \
             spumone.args={arguments}"
        ))
}

/// The guest program of these tests (tests/guests): `suite` and its parameters, as its README
/// lists them. One vCPU for each of `cores`.
pub fn probe(name: &str, bootargs: &str, cores: &[usize]) -> Guest {
    Guest::new(name, "elf", &files::probe())
        .memory("16MiB")
        .cores(cores)
        .priority(100)
        .bootargs(bootargs)
}

/// As [`probe()`], from an image without structure, which is written to `folder`.
pub fn raw_probe(folder: &Path, name: &str, bootargs: &str, cores: &[usize]) -> Guest {
    let elf = std::fs::read(files::probe()).unwrap_or_default();
    let (address, memory) = flat::flatten(&elf).expect("the probe is an ELF file");
    let image = folder.join("probe.bin");
    std::fs::write(&image, memory)
        .unwrap_or_else(|error| panic!("cannot write {}: {error}", image.display()));
    probe(name, bootargs, cores)
        .set("kind", quoted("raw"))
        .set("image", quoted(&image.to_string_lossy()))
        .set("load", address.to_string())
}

impl Guest {
    fn new(name: &str, kind: &str, image: &Path) -> Self {
        Self {
            name: name.to_owned(),
            keys: Vec::new(),
        }
        .set("kind", quoted(kind))
        .set("image", quoted(&image.to_string_lossy()))
        .cores(&[0])
    }

    /// Another name.
    pub fn named(mut self, name: &str) -> Self {
        name.clone_into(&mut self.name);
        self
    }

    /// Memory, as "16MiB".
    pub fn memory(self, size: &str) -> Self {
        self.set("memory", quoted(size))
    }

    /// The home core of each vCPU.
    pub fn cores(self, cores: &[usize]) -> Self {
        self.set("vcpus", format!("{cores:?}"))
    }

    /// The priority of all vCPUs.
    pub fn priority(self, priority: u8) -> Self {
        self.set("priority", priority.to_string())
    }

    /// The command line.
    pub fn bootargs(self, bootargs: &str) -> Self {
        self.set("bootargs", quoted(bootargs))
    }

    /// Devices passed through; those that do DMA need `identity`.
    pub fn devices(self, devices: &[&str]) -> Self {
        self.set("devices", format!("{devices:?}"))
    }

    /// The guest sees its memory where it is on the machine.
    pub fn identity(self) -> Self {
        self.set("identity", "true".to_owned())
    }

    /// Any key of the description, its value as TOML. Replaces what was there.
    pub fn set(mut self, key: &'static str, value: String) -> Self {
        self.keys.retain(|(other, _)| *other != key);
        self.keys.push((key, value));
        self
    }

    pub(crate) fn table(&self) -> String {
        let mut table = format!("\n[[guest]]\nname = {}\n", quoted(&self.name));
        for (key, value) in &self.keys {
            // Writing to a string cannot fail.
            let _ = writeln!(table, "{key} = {value}");
        }
        table
    }
}

/// A string of TOML. What tests write needs no more than this.
fn quoted(text: &str) -> String {
    format!("{text:?}")
}
