// SPDX-License-Identifier: MIT OR Apache-2.0
//! What `spm check` prints for each description that it refuses.
//!
//! `refusals/NAME.toml` is the description, `refusals/NAME.expected` the output.
//! After a change of wording, `UPDATE_EXPECTED=1 cargo test -p spm --test refusals` writes the
//! expected files again; read the difference before you commit it.

// Tests may unwrap.
#![allow(clippy::unwrap_used, clippy::panic)]

mod support;

use dtoolkit::model::{DeviceTree, DeviceTreeNode, DeviceTreeProperty};
use flate2::Compression;
use flate2::write::GzEncoder;
use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use support::{Elf, btf, linux_image, linux_image_with};

/// Codes that `spm check` cannot print: earlier checks prevent them, and `qemu-args` is for `spm run`.
const UNREACHABLE: &[&str] = &["limit", "stage-2", "qemu-args"];

fn cases() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/refusals");
    let mut cases: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "toml")
        })
        .collect();
    cases.sort();
    cases
}

/// The files that the descriptions name; most are refused.
fn prepare(folder: &Path) {
    let write = |name: &str, bytes: &[u8]| fs::write(folder.join(name), bytes).unwrap();
    let elf = |name: &str, elf: Elf| write(name, &elf.write());
    let good = || Elf::at(0x4008_0000);
    fs::create_dir(folder.join("a-folder")).unwrap();
    write("empty", b"");
    write(
        "text",
        b"This is no program, and it is longer than a header of 64 bytes would be.",
    );

    let made = Command::new("mkfifo").arg(folder.join("fifo")).status();
    assert!(made.unwrap().success());
    // One byte more than the guest has.
    let sparse = fs::File::create(folder.join("sparse")).unwrap();
    sparse.set_len((16 << 20) + 1).unwrap();
    let mut zeros = GzEncoder::new(Vec::new(), Compression::best());
    zeros.write_all(&vec![0; (16 << 20) + 1]).unwrap();
    write("zeros.gz", &zeros.finish().unwrap());
    // As a kernel, it unpacks to some times its size.
    let mut large = GzEncoder::new(Vec::new(), Compression::none());
    large.write_all(&vec![0; 4 << 20]).unwrap();
    let mut rest = GzEncoder::new(large.finish().unwrap(), Compression::best());
    rest.write_all(&vec![0; (12 << 20) + 1]).unwrap();
    write("large.gz", &rest.finish().unwrap());

    write("Image-big-endian", &linux_image(support::KERNEL_SIZE, 1));
    write("Image-sizeless", &linux_image(0, 0));
    write("Image-cut.gz", &[0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3, 1]);
    write("Image-cut", &cut_image());
    let kernel = |counts| btf::kernel(counts).bytes();
    write("Image-preempt", &linux_image_with(&kernel(true)));
    write("Image-voluntary", &linux_image_with(&kernel(false)));
    write("Image-strange", &linux_image_with(&strange_types()));
    let mut damaged = kernel(true);
    // The kind of the first type.
    damaged[24 + 7] = 31;
    write("Image-damaged", &linux_image_with(&damaged));

    elf("rt-32bit.elf", Elf { class: 1, ..good() });
    elf(
        "rt-big-endian.elf",
        Elf {
            byte_order: 2,
            ..good()
        },
    );
    elf(
        "rt-x86.elf",
        Elf {
            machine: 62,
            ..good()
        },
    );
    elf("rt.o", Elf { kind: 1, ..good() });
    elf(
        "rt-hollow.elf",
        Elf {
            segments: vec![],
            ..good()
        },
    );
    elf(
        "rt-entry.elf",
        Elf {
            entry: 0x4000_0000,
            ..good()
        },
    );
    elf(
        "rt-odd-entry.elf",
        Elf {
            entry: 0x4008_0002,
            ..good()
        },
    );
    elf("rt-elsewhere.elf", Elf::at(0x8008_0000));
    elf("rt-higher.elf", Elf::at(0x4028_0000));
    let overlap = vec![
        (0x4008_0000, vec![0; 16], 0x1000),
        (0x4008_0800, vec![0; 16], 0x1000),
    ];
    elf(
        "rt-overlap.elf",
        Elf {
            segments: overlap,
            ..good()
        },
    );
    let many = (0..16)
        .map(|index| (0x4008_0000 + index * 0x1000, vec![0; 16], 16))
        .collect();
    elf(
        "rt-many.elf",
        Elf {
            segments: many,
            ..good()
        },
    );
    elf(
        "rt-shrunk.elf",
        Elf {
            segments: vec![(0x4008_0000, vec![0; 16], 8)],
            ..good()
        },
    );
    let full = vec![(0x4000_0000, vec![0; 16], 16 << 20)];
    elf(
        "rt-full.elf",
        Elf {
            segments: full,
            ..Elf::at(0x4000_0000)
        },
    );
    let whole = good().write();
    write("rt-cut.elf", &whole[..0x1800]);
    write("rt-header.elf", &whole[..40]);

    write("tree-elsewhere.dtb", &tree(0x8000_0000, 1));
    write("tree-cpus.dtb", &tree(0x4000_0000, 3));
    write("tree-empty.dtb", &DeviceTree::new().to_dtb());
    write("tree-huge.dtb", &huge_tree());
    write("tree-deep.dtb", &deep_tree());

    let boards = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/refusals/boards");
    fs::create_dir(folder.join("boards")).unwrap();
    for board in fs::read_dir(boards).unwrap() {
        let board = board.unwrap();
        fs::copy(board.path(), folder.join("boards").join(board.file_name())).unwrap();
    }
}

/// A kernel with an EFI stub whose last section is cut off.
fn cut_image() -> Vec<u8> {
    let mut image = linux_image(support::KERNEL_SIZE, 0xa);
    image[60..64].copy_from_slice(&64u32.to_le_bytes());
    image[64..68].copy_from_slice(b"PE\0\0");
    image[70] = 1;
    let section = 64 + 24;
    image[section + 16..section + 20].copy_from_slice(&0x2_0000u32.to_le_bytes());
    image
}

/// Types of a kernel that counts, but not in its tasks.
fn strange_types() -> Vec<u8> {
    let mut types = btf::Types::new();
    types.structure(btf::STRUCT, "task_struct", &[("stack", 0, 0)]);
    types.add(btf::FUNC, "preempt_schedule", 0, &[]);
    types.bytes()
}

fn tree(memory: u64, cpus: u32) -> Vec<u8> {
    let mut tree = DeviceTree::new();
    let set = |node: &mut DeviceTreeNode, name: &str, value: &[u32]| {
        node.add_property(DeviceTreeProperty::new(name, value).unwrap());
    };
    set(&mut tree.root, "#address-cells", &[2]);
    set(&mut tree.root, "#size-cells", &[2]);
    let mut node = DeviceTreeNode::new(format!("memory@{memory:x}")).unwrap();
    set(&mut node, "reg", &[0, memory as u32, 0, 0x100_0000]);
    tree.root.add_child(node);
    let mut node = DeviceTreeNode::new("cpus").unwrap();
    for index in 0..cpus {
        node.add_child(DeviceTreeNode::new(format!("cpu@{index}")).unwrap());
    }
    tree.root.add_child(node);
    tree.to_dtb()
}

/// As many nodes inside each other as Linux reads, and one more.
fn deep_tree() -> Vec<u8> {
    let mut node = DeviceTreeNode::new("inner").unwrap();
    for _ in 0..63 {
        let mut outer = DeviceTreeNode::new("outer").unwrap();
        outer.add_child(node);
        node = outer;
    }
    let mut tree = DeviceTree::new();
    tree.root.add_child(node);
    tree.to_dtb()
}

fn huge_tree() -> Vec<u8> {
    let mut tree = DeviceTree::new();
    tree.root
        .add_property(DeviceTreeProperty::new("padding", vec![0u8; 2 << 20]).unwrap());
    tree.to_dtb()
}

#[test]
fn each_refusal_reads_as_expected() {
    let update = std::env::var_os("UPDATE_EXPECTED").is_some();
    let folder = support::folder();
    prepare(folder.path());
    let mut wrong = Vec::new();
    for case in cases() {
        let name = case.file_name().unwrap().to_str().unwrap();
        fs::copy(&case, folder.path().join(name)).unwrap();
        let output = support::spm(folder.path(), &["check", name, "--hypervisor", "spumone"]);
        let said = support::stderr(&output);
        assert_eq!(
            output.status.code(),
            Some(1),
            "{name} was not refused: {said}"
        );
        let expected_path = case.with_extension("expected");
        if update {
            fs::write(&expected_path, &said).unwrap();
        }
        let expected = fs::read_to_string(&expected_path).unwrap_or_default();
        if said != expected {
            wrong.push(format!("{name}: expected\n{expected}\nbut it said\n{said}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The codes of all problems that the sources can report.
fn codes_in_sources() -> BTreeSet<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut folders = vec![root.join("config/src"), root.join("spm/src")];
    let mut codes = BTreeSet::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let text = fs::read_to_string(path).unwrap();
            for constructor in ["Problem::new(", "self.problem("] {
                for after in text.split(constructor).skip(1) {
                    let first = after.trim_start().strip_prefix('"');
                    codes.extend(first.and_then(|it| it.split('"').next()).map(str::to_owned));
                }
            }
        }
    }
    codes
}

#[test]
fn each_rule_has_a_refusal() {
    let expected: Vec<String> = cases()
        .iter()
        .map(|case| fs::read_to_string(case.with_extension("expected")).unwrap_or_default())
        .collect();
    let codes = codes_in_sources();
    assert!(
        codes.contains("no-priority"),
        "the sources were not searched: {codes:?}"
    );
    let untried: Vec<_> = codes
        .iter()
        .filter(|code| !UNREACHABLE.contains(&code.as_str()))
        .filter(|code| {
            !expected
                .iter()
                .any(|text| text.lines().any(|line| line == **code))
        })
        .collect();
    assert!(
        untried.is_empty(),
        "no description in tests/refusals causes {untried:?}"
    );
}
