// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files that a user names, damaged at random: `spm` refuses or accepts each, and never panics.
//!
//! `SPUMONE_FUZZ_STEPS=1000000 cargo test --release -p spm --test fuzz` goes on for longer. The files of a step that panics are written to
//! a folder, which the test names; `SPUMONE_FUZZ_SEED` chooses other steps.

// Tests may unwrap.
#![allow(clippy::unwrap_used, clippy::panic)]

mod damage;
mod support;

use damage::Damage;
use dtoolkit::model::{DeviceTree, DeviceTreeNode, DeviceTreeProperty};
use flate2::Compression;
use flate2::write::GzEncoder;
use spm::fuzz::{DESCRIPTION, system};
use std::io::Write;
use std::panic::catch_unwind;
use support::{Elf, KERNEL_SIZE, borrowed, btf, fuzz_steps, linux_image_with};

/// Steps of a run in which no variable names a number.
const STEPS: u64 = 2_000;
const BOARD: &str = include_str!("../../boards/qemu-virt.toml");
/// A system that uses most keys; its files have the names of [`files`].
const SYSTEM: &str = r#"
seed = 7
[board]
name = "other"
cores = 4
memory = "1GiB"

[scheduler]
policy = "delay"
quantum = "2ms"
interrupt-priorities = "split"
delay-while = "preempt-count"

[run]
qemu-args = ["-serial", "null"]

[[guest]]
name = "rt"
kind = "elf"
image = "rt.elf"
dtb = "rt.dtb"
memory = "16MiB"
vcpus = [0]
priority = 200
wake-early = "8us"
bootargs = "period=1ms"
console = { uart = "pl011", colour = "green" }

[[guest]]
name = "linux"
kind = "linux"
image = "Image"
initrd = "initrd.cpio"
memory = "64MiB"
identity = true
trusted-dma = true
vcpus = [0, 1, 2]
cores = [3]
priority = [100, 100, 90]
bootargs = "console=ttyAMA0"
devices = ["virtio0", "virtio1"]

[[guest]]
name = "other"
kind = "linux"
image = "Image.gz"
memory = "64MiB"
vcpus = [3]
priority = 50

[[guest]]
name = "flat"
kind = "raw"
image = "flat.bin"
memory = "1MiB"
ipa = 0x40000000
load = 0x40080000
entry = 0x40080000
vcpus = [3]
priority = 60

[[link]]
kind = "network"
between = ["linux", "other"]
offloads = true

[[link]]
kind = "memory"
between = ["rt", "linux"]
size = "64KiB"
read-only = "linux"

[[link]]
kind = "vsock"
between = ["flat", "other"]
"#;

/// The files of the system, undamaged.
fn files() -> Vec<(&'static str, Vec<u8>)> {
    let kernel = linux_image_with(&btf::kernel(true).bytes());
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    gzip.write_all(&kernel).unwrap();
    let elf = Elf {
        segments: vec![
            (0x4008_0000, vec![1; 0x800], 0x2000),
            (0x400a_0000, vec![2; 0x10], 0x10),
        ],
        ..Elf::at(0x4008_0000)
    };
    vec![
        (
            DESCRIPTION,
            SYSTEM.replace("other\"\ncores", "b\"\ncores").into(),
        ),
        ("boards/b.toml", BOARD.replace("qemu-virt", "b").into()),
        ("rt.elf", elf.write()),
        ("rt.dtb", tree()),
        ("Image", efi(kernel)),
        ("Image.gz", gzip.finish().unwrap()),
        ("initrd.cpio", vec![0x30; 0x800]),
        ("flat.bin", vec![0x14; 0x800]),
    ]
}

/// A kernel with the PE header of an EFI stub.
fn efi(mut kernel: Vec<u8>) -> Vec<u8> {
    assert_eq!(kernel[16..24], KERNEL_SIZE.to_le_bytes());
    kernel[60..64].copy_from_slice(&64u32.to_le_bytes());
    kernel[64..68].copy_from_slice(b"PE\0\0");
    kernel[70] = 1;
    kernel
}

fn tree() -> Vec<u8> {
    let set = |node: &mut DeviceTreeNode, name: &str, value: &[u32]| {
        node.add_property(DeviceTreeProperty::new(name, value).unwrap());
    };
    let mut tree = DeviceTree::new();
    set(&mut tree.root, "#address-cells", &[2]);
    set(&mut tree.root, "#size-cells", &[2]);
    for name in ["memory@40000000", "cpus", "chosen"] {
        let mut node = DeviceTreeNode::new(name).unwrap();
        match name {
            "cpus" => node.add_child(DeviceTreeNode::new("cpu@0").unwrap()),
            "chosen" => set(&mut node, "linux,initrd-start", &[0, 0x4100_0000]),
            _ => set(&mut node, "reg", &[0, 0x4000_0000, 0, 0x100_0000]),
        }
        tree.root.add_child(node);
    }
    tree.to_dtb()
}

#[test]
fn the_undamaged_system_is_accepted() {
    system(&borrowed(&files())).unwrap_or_else(|refusal| panic!("{refusal}"));
}

#[test]
fn damaged_files_are_refused_or_accepted() {
    let good = files();
    let mut accepted = 0;
    let steps = fuzz_steps(STEPS);
    for step in steps.clone() {
        let mut damage = Damage::of_step(step);
        let mut files = good.clone();
        for _ in 0..damage.up_to(2) {
            let file = damage.below(files.len());
            let is_text = files[file].0.ends_with(".toml");
            files[file].1 = damage.done_to(&files[file].1, is_text);
        }
        match catch_unwind(|| system(&borrowed(&files))) {
            Ok(result) => accepted += u64::from(result.is_ok()),
            Err(_) => {
                let folder = tempfile::tempdir().unwrap().keep();
                std::fs::create_dir(folder.join("boards")).unwrap();
                for (name, bytes) in &files {
                    std::fs::write(folder.join(name), bytes).unwrap();
                }
                panic!(
                    "step {step} panicked; its files are in {}",
                    folder.display()
                );
            }
        }
    }
    // Both happen often, or the damage is too small or too large to find anything.
    let count = steps.end - steps.start;
    assert!(
        (count / 50..count).contains(&accepted),
        "{accepted} of {count} accepted"
    );
}
