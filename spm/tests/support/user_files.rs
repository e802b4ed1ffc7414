// SPDX-License-Identifier: MIT OR Apache-2.0
//! A system of which every kind of file that a user names is a part: what fuzzers begin with.

use super::btf;
use super::images::{Elf, KERNEL_SIZE, linux_image_with};
use dtoolkit::model::{DeviceTree, DeviceTreeNode, DeviceTreeProperty};
use flate2::Compression;
use flate2::write::GzEncoder;
use spm::fuzz::DESCRIPTION;
use std::io::Write;

/// The board file of the system, under another name than here.
const BOARD: &str = include_str!("../../../boards/qemu-virt.toml");
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
pub fn files() -> Vec<(&'static str, Vec<u8>)> {
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

/// A device tree for the guest "rt".
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

/// Files with borrowed contents.
pub fn borrowed<'a>(files: &'a [(&'static str, Vec<u8>)]) -> Vec<(&'a str, &'a [u8])> {
    let borrow = |(name, bytes): &'a (&'static str, Vec<u8>)| (*name, bytes.as_slice());
    files.iter().map(borrow).collect()
}
