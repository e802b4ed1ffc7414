// SPDX-License-Identifier: MIT OR Apache-2.0
//! What `spm build` writes, byte for byte.

// Tests may unwrap.
#![allow(clippy::unwrap_used, clippy::panic)]

mod support;

use dtoolkit::fdt::Fdt;
use dtoolkit::model::{DeviceTree, DeviceTreeNode, DeviceTreeProperty};
use dtoolkit::{Node, Property};
use spumone_config::packed::{BundleHeader, Guest, LinkKind, Policy, System};
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Command;
use support::{Elf, HYPERVISOR_SIZE, SYSTEM, spm, stderr, stdout};

/// A built image, taken apart.
struct Built {
    image: Vec<u8>,
    system: System,
}

impl Built {
    fn bundle(&self) -> &[u8] {
        &self.image[HYPERVISOR_SIZE as usize..]
    }

    fn segment(&self, guest: &Guest, index: usize) -> &[u8] {
        let segment = guest.segments[index];
        &self.bundle()[segment.offset as usize..][..segment.size as usize]
    }

    /// A guest's device tree is its last segment.
    fn tree(&self, guest: usize) -> Fdt<'_> {
        let guest = &self.system.guests[guest];
        Fdt::new(self.segment(guest, guest.segments.len() - 1)).unwrap()
    }
}

fn build(folder: &Path, description: &str) -> Built {
    fs::write(folder.join("system.toml"), description).unwrap();
    let args = [
        "build",
        "system.toml",
        "--hypervisor",
        "spumone",
        "-o",
        "out/of/a.img",
    ];
    let output = spm(folder, &args);
    assert!(output.status.success(), "{}", stderr(&output));
    let image = fs::read(folder.join("out/of/a.img")).unwrap();
    let bundle = &image[HYPERVISOR_SIZE as usize..];
    let header = BundleHeader::from_bytes(bundle).unwrap();
    assert_eq!(header.total_len, bundle.len() as u64);
    let encoded = &bundle[BundleHeader::SIZE..][..header.system_len as usize];
    let system = postcard::from_bytes(encoded).unwrap();
    Built { image, system }
}

#[test]
fn the_hypervisor_comes_first_with_the_size_of_the_image() {
    let folder = support::folder();
    let built = build(folder.path(), SYSTEM);
    let image = &built.image;
    assert_eq!(&image[56..60], b"ARM\x64");
    assert_eq!(&image[8..16], &0x20_0000u64.to_le_bytes());
    assert_eq!(&image[16..24], &(image.len() as u64).to_le_bytes());
    assert_eq!(&image[0x1000..0x1800], [0xc0; 0x800]);
    // Between its segments, and in .bss up to the bundle, all bytes are 0.
    assert_eq!(&image[0x1800..0x2000], [0; 0x800]);
    assert_eq!(&image[0x2000..0x2010], [0xda; 0x10]);
    assert_eq!(&image[0x2010..0x3000], [0; 0xff0]);
}

#[test]
fn the_guests_files_are_in_the_bundle() {
    let folder = support::folder();
    let built = build(folder.path(), SYSTEM);
    let [rt, linux] = built.system.guests.as_slice() else {
        panic!("two guests")
    };
    assert_eq!((rt.name.as_str(), linux.name.as_str()), ("rt", "linux"));
    assert_eq!(built.segment(rt, 0), [0; 0x1000]);
    assert_eq!(
        built.segment(linux, 0),
        fs::read(folder.path().join("Image")).unwrap()
    );
    assert_eq!(
        built.segment(linux, 1),
        fs::read(folder.path().join("initrd.cpio")).unwrap()
    );
    assert_eq!(built.system.scheduler.policy, Policy::Steal);
    assert_eq!(built.system.scheduler.quantum_us, 2000);
    assert_eq!(built.system.board.core_mpidrs.as_slice(), [0, 1]);
}

#[test]
fn a_program_linked_high_is_entered_at_its_physical_address() {
    let folder = support::folder();
    let high = 0xffff_0000_0000_0000;
    let elf = Elf {
        entry: 0x4008_0100 + high,
        virtual_offset: high,
        ..Elf::at(0x4008_0000)
    };
    fs::write(folder.path().join("rt.elf"), elf.write()).unwrap();
    let built = build(folder.path(), SYSTEM);
    assert_eq!(built.system.guests[0].entry.0, 0x4008_0100);
    assert_eq!(
        built.system.guests[0].segments[0].destination.0,
        0x4008_0000
    );
}

#[test]
fn the_same_input_gives_the_same_bytes() {
    let folder = support::folder();
    let first = build(folder.path(), SYSTEM).image;
    fs::remove_dir_all(folder.path().join("out")).unwrap();
    assert!(first == build(folder.path(), SYSTEM).image);
}

#[test]
fn an_image_replaces_an_older_one_and_leaves_nothing_else() {
    let folder = support::folder();
    fs::create_dir_all(folder.path().join("out/of")).unwrap();
    fs::write(folder.path().join("out/of/a.img"), vec![0xff; 1 << 25]).unwrap();
    let built = build(folder.path(), SYSTEM);
    assert!(built.image.len() < 1 << 25);
    assert_eq!(
        fs::read_dir(folder.path().join("out/of")).unwrap().count(),
        1
    );
}

#[test]
fn a_place_that_cannot_be_written_is_named() {
    let folder = support::folder();
    fs::write(folder.path().join("system.toml"), SYSTEM).unwrap();
    let args = [
        "build",
        "system.toml",
        "--hypervisor",
        "spumone",
        "-o",
        "Image/a.img",
    ];
    let output = spm(folder.path(), &args);
    assert_eq!(output.status.code(), Some(3));
    assert!(
        stderr(&output).contains("cannot write Image/a.img"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn a_compressed_kernel_is_unpacked() {
    let folder = support::folder();
    let plain = fs::read(folder.path().join("Image")).unwrap();
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packer.write_all(&plain).unwrap();
    fs::write(folder.path().join("vmlinuz"), packer.finish().unwrap()).unwrap();
    let built = build(folder.path(), &SYSTEM.replace("\"Image\"", "\"vmlinuz\""));
    assert_eq!(built.segment(&built.system.guests[1], 0), plain);
}

/// Only for a Linux with several vCPUs, and only if the description asks for it.
#[test]
fn the_hypervisor_gets_the_place_of_preempt_count() {
    let folder = support::folder();
    let kernel = support::linux_image_with(&support::btf::kernel(true).bytes());
    fs::write(folder.path().join("Image"), kernel).unwrap();
    let counts = |delay_while: &str| -> Vec<_> {
        let scheduler = format!("[scheduler]\npolicy = \"delay\"\n{delay_while}\n[[guest]]");
        let built = build(folder.path(), &SYSTEM.replacen("[[guest]]", &scheduler, 1));
        let guests = built.system.guests.iter();
        guests.map(|guest| guest.preempt_count).collect()
    };
    assert_eq!(counts(""), [None, None]);
    assert_eq!(counts("delay-while = \"in-kernel\""), [None, None]);
    assert_eq!(counts("delay-while = \"preempt-count\""), [None, Some(16)]);
}

#[test]
fn a_device_tree_describes_what_the_guest_gets() {
    let folder = support::folder();
    let built = build(folder.path(), SYSTEM);
    let linux = &built.system.guests[1];
    let tree = built.tree(1);
    let chosen = tree.find_node("/chosen").unwrap();
    let text = |name: &str| {
        chosen
            .property(name)
            .unwrap()
            .value_as::<&str>()
            .unwrap()
            .to_owned()
    };
    assert_eq!(text("bootargs"), "console=ttyAMA0");
    let console = tree.find_node(&text("stdout-path")).unwrap();
    assert!(console.compatible().unwrap().any(|it| it == "arm,pl011"));
    let number = |name: &str| chosen.property(name).unwrap().value_as::<u64>().unwrap();
    let ramdisk = linux.segments[1];
    assert_eq!(number("linux,initrd-start"), ramdisk.destination.0);
    assert_eq!(
        number("linux,initrd-end"),
        ramdisk.destination.0 + ramdisk.size
    );

    let memory = format!("/memory@{:x}", linux.memory[0].ipa.0);
    let reg = tree
        .find_node(&memory)
        .unwrap()
        .reg()
        .unwrap()
        .unwrap()
        .next()
        .unwrap();
    let range = (reg.address::<u64>().unwrap(), reg.size::<u64>().unwrap());
    assert_eq!(range, (linux.memory[0].ipa.0, 64 << 20));
    assert_eq!(tree.cpus().unwrap().cpus().count(), 2);
    let transport = tree.find_node("/virtio_mmio@a003c00").unwrap();
    assert!(transport.property("dma-coherent").is_some());
    let interrupts = transport.property("interrupts").unwrap();
    assert_eq!(interrupts.value(), [0, 0, 0, 0, 0, 0, 0, 46, 0, 0, 0, 1]);
    assert!(built.tree(0).find_node("/virtio_mmio@a003c00").is_none());
}

#[test]
fn seeds_are_where_the_packed_form_says() {
    let folder = support::folder();
    let built = build(folder.path(), SYSTEM);
    for (index, guest) in built.system.guests.iter().enumerate() {
        let tree = guest.segments.last().unwrap();
        let blob = built.segment(guest, guest.segments.len() - 1);
        assert_eq!(guest.boot_argument, tree.destination.0);
        assert_eq!(guest.seeds.len(), 2);
        // The guest reads a mark that is written there.
        let mut blob = blob.to_vec();
        for (mark, seed) in guest.seeds.iter().enumerate() {
            let at = (seed.destination.0 - tree.destination.0) as usize;
            blob[at..at + seed.size as usize].fill(mark as u8 + 1);
        }
        let marked = Fdt::new(&blob).unwrap();
        let chosen = marked.find_node("/chosen").unwrap();
        assert_eq!(
            chosen.property("rng-seed").unwrap().value(),
            [1; 32],
            "guest {index}"
        );
        assert_eq!(
            chosen.property("kaslr-seed").unwrap().value(),
            [2; 8],
            "guest {index}"
        );
    }
}

#[test]
fn a_guest_without_console_has_none_in_its_tree() {
    let folder = support::folder();
    let quiet = SYSTEM.replace(
        "vcpus = [0]\n",
        "vcpus = [0]\nconsole = { uart = \"none\" }\n",
    );
    let built = build(folder.path(), &quiet);
    assert_eq!(built.system.guests[0].console, None);
    let tree = built.tree(0);
    assert!(tree.find_node("/pl011@9000000").is_none());
    assert!(
        tree.find_node("/chosen")
            .unwrap()
            .property("stdout-path")
            .is_none()
    );
}

#[test]
fn a_users_own_tree_is_completed_and_otherwise_unchanged() {
    let folder = support::folder();
    let set = |node: &mut DeviceTreeNode, name: &str, value: &[u8]| {
        node.add_property(DeviceTreeProperty::new(name, value).unwrap());
    };
    let mut tree = DeviceTree::new();
    set(&mut tree.root, "model", b"mine\0");
    set(&mut tree.root, "#address-cells", &[0, 0, 0, 1]);
    set(&mut tree.root, "#size-cells", &[0, 0, 0, 1]);
    let mut memory = DeviceTreeNode::new("memory@40000000").unwrap();
    set(&mut memory, "reg", &[0x40, 0, 0, 0, 1, 0, 0, 0]);
    tree.root.add_child(memory);
    let mut cpus = DeviceTreeNode::new("cpus").unwrap();
    cpus.add_child(DeviceTreeNode::new("cpu@0").unwrap());
    tree.root.add_child(cpus);
    let mut chosen = DeviceTreeNode::new("chosen").unwrap();
    set(&mut chosen, "bootargs", b"old\0");
    set(&mut chosen, "mark", b"kept\0");
    tree.root.add_child(chosen);
    fs::write(folder.path().join("my.dtb"), tree.to_dtb()).unwrap();

    let own = SYSTEM.replace(
        "image = \"rt.elf\"\n",
        "image = \"rt.elf\"\ndtb = \"my.dtb\"\n",
    );
    let built = build(folder.path(), &own);
    let tree = built.tree(0);
    let model = tree.root().property("model").unwrap();
    assert_eq!(model.value_as::<&str>().unwrap(), "mine");
    let chosen = tree.find_node("/chosen").unwrap();
    assert_eq!(
        chosen
            .property("bootargs")
            .unwrap()
            .value_as::<&str>()
            .unwrap(),
        "period=1ms"
    );
    assert_eq!(
        chosen.property("mark").unwrap().value_as::<&str>().unwrap(),
        "kept"
    );
    assert_eq!(built.system.guests[0].seeds.len(), 2);
}

#[test]
fn dtc_accepts_a_generated_tree_without_warnings() {
    if Command::new("dtc").arg("--version").output().is_err() {
        eprintln!("dtc is not installed: this test did nothing");
        return;
    }
    let folder = support::folder();
    let built = build(
        folder.path(),
        &SYSTEM.replace("\"virtio1\"", "\"uart1\", \"rtc\""),
    );
    for guest in 0..2 {
        let blob = folder.path().join("guest.dtb");
        fs::write(&blob, built.tree(guest).data()).unwrap();
        let args = ["-I", "dtb", "-O", "dts", "-o", "/dev/null"];
        let output = Command::new("dtc").args(args).arg(&blob).output().unwrap();
        assert!(output.status.success());
        assert_eq!(stderr(&output), "", "guest {guest}");
    }
}

fn refused_hypervisor(elf: &Elf) -> String {
    let folder = support::folder();
    fs::write(folder.path().join("system.toml"), SYSTEM).unwrap();
    fs::write(folder.path().join("other"), elf.write()).unwrap();
    let output = spm(
        folder.path(),
        &["build", "system.toml", "--hypervisor", "other"],
    );
    assert_eq!(output.status.code(), Some(3));
    assert_eq!(stdout(&output), "");
    assert!(!folder.path().join("build").exists());
    stderr(&output)
}

#[test]
fn an_unusable_hypervisor_is_refused() {
    let good = support::hypervisor;
    let said = refused_hypervisor(&Elf {
        symbols: vec![],
        ..good()
    });
    assert!(
        said.contains("no symbol `bundle_start`") && said.contains("make"),
        "{said}"
    );
    let said = refused_hypervisor(&Elf {
        machine: 62,
        ..good()
    });
    assert!(said.contains("not for AArch64"), "{said}");
    let said = refused_hypervisor(&Elf {
        symbols: vec![("bundle_start", 0x1000)],
        ..good()
    });
    assert!(said.contains("page-aligned"), "{said}");
    let early = vec![("bundle_start", support::HYPERVISOR_ADDRESS + 0x1000)];
    let said = refused_hypervisor(&Elf {
        symbols: early,
        ..good()
    });
    assert!(said.contains("beyond `bundle_start`"), "{said}");
    let mut shapeless = good();
    shapeless.symbols.retain(|(name, _)| *name != "core_stacks");
    let said = refused_hypervisor(&shapeless);
    assert!(said.contains("symbol `core_stacks`"), "{said}");
    let mut headless = good();
    headless.segments[0].1.fill(0);
    let said = refused_hypervisor(&headless);
    assert!(said.contains("Image header"), "{said}");
    let mut elsewhere = good();
    for segment in &mut elsewhere.segments {
        segment.0 += 0x20_0000;
    }
    for symbol in &mut elsewhere.symbols {
        symbol.1 += 0x20_0000;
    }
    let said = refused_hypervisor(&elsewhere);
    assert!(
        said.contains("linked at 0x40400000") && said.contains("0x40200000"),
        "{said}"
    );
    let said = refused_hypervisor(&Elf {
        segments: vec![],
        ..good()
    });
    assert!(said.contains("nothing to load"), "{said}");
    // A damaged number must not take all memory.
    let mut huge = good();
    for (name, value) in &mut huge.symbols {
        *value += u64::from(*name == "bundle_start") << 29;
    }
    let said = refused_hypervisor(&huge);
    assert!(said.contains("at most 16 MiB after its start"), "{said}");
}

#[test]
fn a_link_is_in_both_device_trees_and_its_memory_in_both_guests() {
    let folder = support::folder();
    let link = "[[link]]\nkind = \"memory\"\nbetween = [\"rt\", \"linux\"]\n";
    let description = format!("{SYSTEM}\n{link}\n{link}size = \"2MiB\"\nread-only = \"rt\"\n");
    let built = build(folder.path(), &description);
    let links = |guest: usize| &built.system.guests[guest].links;
    for guest in [0, 1] {
        let tree = built.tree(guest);
        for (index, end) in links(guest).iter().enumerate() {
            assert_eq!((end.peer.index(), end.peer_link), (1 - guest, index as u8));
            let LinkKind::Memory { memory, writes } = end.kind else {
                panic!("a memory link")
            };
            let LinkKind::Memory { memory: other, .. } = links(1 - guest)[index].kind else {
                panic!("a memory link")
            };
            assert_eq!((memory.pa, memory.size), (other.pa, other.size));
            assert_eq!(memory.size, [0x1_0000, 0x20_0000][index]);
            let node = tree
                .find_node(&format!("/link@{:x}", end.registers.0))
                .unwrap();
            let cells = |name| -> Vec<u32> {
                let value = node.property(name).unwrap();
                let words = value.value().chunks_exact(4);
                words
                    .map(|it| u32::from_be_bytes(it.try_into().unwrap()))
                    .collect()
            };
            let halves = |value: u64| [(value >> 32) as u32, value as u32];
            let ranges = [end.registers.0, 0x1000, memory.ipa.0, memory.size];
            assert_eq!(cells("reg"), ranges.map(halves).concat());
            assert_eq!(cells("interrupts"), [0, 48 + index as u32, 4]);
            // Only a Linux has the GPIO controller.
            let gpio = format!("/gpio@{:x}", end.registers.0 + 0x8000);
            assert_eq!(tree.find_node(&gpio).is_some(), guest == 1);
            assert_eq!(end.gpio.is_some(), guest == 1);
            let is_read_only = node.property("read-only").is_some();
            assert_eq!(
                (is_read_only, writes),
                match (guest, index) {
                    (0, 1) => (true, false),
                    _ => (false, true),
                }
            );
        }
    }
    let [one, other] = [0, 1].map(|index| {
        let LinkKind::Memory { memory, .. } = links(0)[index].kind else {
            panic!("a memory link")
        };
        memory
    });
    assert!(one.pa.0 + one.size <= other.pa.0 && one.ipa.0 + one.size <= other.ipa.0);
    let all = built.system.link_memory.unwrap();
    assert_eq!(one.pa, all.start);
    assert!(other.pa.0 + other.size <= all.start.0 + all.size);
    assert_eq!(built.system.guests[0].gic.spis, 64);
}
