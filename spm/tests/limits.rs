// SPDX-License-Identifier: MIT OR Apache-2.0
//! What `spm` may take for the files of a system, also where eight guests name the same one: little memory beside them, and
//! about a second of CPU time. The shell's limits end a `spm` that takes more. `make fuzz` counts exactly; here are the files that one
//! needs luck to find.

// Tests may unwrap.
#![allow(clippy::unwrap_used, clippy::panic)]

mod support;

use flate2::Compression;
use flate2::write::GzEncoder;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output};
use support::stderr;

/// Guests of a system.
const GUESTS: usize = 8;
/// Address space in KiB that `spm` has: most of it are stacks and heaps of threads, which are not used.
const SPACE: u64 = 500 << 10;

/// Eight guests with these keys. `head` follows the `[board]`.
fn eight(folder: &Path, head: &str, guest: &str) {
    let mut text =
        format!("[board]\nname = \"qemu-virt\"\ncores = 2\nmemory = \"64GiB\"\n{head}\n");
    for number in 0..GUESTS {
        let priority = number + 1;
        text += &format!("[[guest]]\nname = \"g{number}\"\npriority = {priority}\n{guest}\n");
    }
    fs::write(folder.join("system.toml"), text).unwrap();
}

/// Runs `spm` with so many seconds of CPU time.
fn limited(folder: &Path, seconds: u64, args: &[&str]) -> Output {
    let limits = format!("ulimit -v {SPACE}; ulimit -t {seconds}; exec \"$0\" \"$@\"");
    let mut bash = Command::new("bash");
    bash.args(["-c", &limits, env!("CARGO_BIN_EXE_spm")]);
    bash.args(args).current_dir(folder);
    bash.env("NO_COLOR", "1").output().unwrap()
}

/// The system is refused, within the limits, with these words.
fn refused(folder: &Path, seconds: u64, words: &str) {
    let check = ["check", "system.toml", "--hypervisor", "spumone"];
    let output = limited(folder, seconds, &check);
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{:?} {said}", output.status);
    // `miette` breaks lines.
    let said: Vec<_> = said
        .split([' ', '\n', '│'])
        .filter(|it| !it.is_empty())
        .collect();
    let said = said.join(" ");
    assert!(said.contains(words), "{said}");
    assert!(
        said.contains("system.toml: 8 problems") || said.contains("1 problem"),
        "{said}"
    );
}

#[test]
fn a_gzip_file_that_swells_is_refused() {
    let folder = support::folder();
    let mut packed = GzEncoder::new(Vec::new(), Compression::best());
    packed.write_all(&support::linux_image(0, 0)).unwrap();
    let zeros = vec![0; 10 << 20];
    (0..16).for_each(|_| packed.write_all(&zeros).unwrap());
    fs::write(folder.path().join("bomb.gz"), packed.finish().unwrap()).unwrap();
    let guest = "kind = \"linux\"\nimage = \"bomb.gz\"\nmemory = \"2GiB\"\nvcpus = [0]";
    eight(folder.path(), "", guest);
    refused(folder.path(), 2, "unpacks to more than 5 times its size");
}

#[test]
fn tables_of_pages_for_all_memory_are_refused() {
    let folder = support::folder();
    let text = "[board]\nname = \"qemu-virt\"\ncores = 1\nmemory = \"255GiB\"\n[[guest]]\nname = \"rt\"\n\
                kind = \"elf\"\nimage = \"rt.elf\"\nmemory = \"200GiB\"\npa = 0x8000_1000\nvcpus = [0]\n";
    fs::write(folder.path().join("system.toml"), text).unwrap();
    refused(folder.path(), 2, "guest \"rt\" is mapped in pages of 4 KiB");
    // In blocks, the tables of so much memory are small.
    let text = text.replace("0x8000_1000", "0x8000_0000");
    fs::write(folder.path().join("system.toml"), text).unwrap();
    let check = ["check", "system.toml", "--hypervisor", "spumone"];
    let output = limited(folder.path(), 2, &check);
    assert!(output.status.success(), "{}", stderr(&output));
}

#[test]
fn segments_that_share_bytes_are_refused() {
    let folder = support::folder();
    const SIZE: usize = 1 << 20;
    let segments = (0..15).map(|number| (0x4020_0000 + number * 0x10_0000, vec![0; 64], 64));
    let elf = support::Elf {
        segments: segments.collect(),
        ..support::Elf::at(0x4020_0000)
    };
    let mut elf = elf.write();
    elf.resize(SIZE, 0);
    for number in 0..15 {
        // Each begins at the start of the file, or a little behind, and has nearly all of it.
        let header = 64 + 56 * number;
        let size = (SIZE as u64 - 0x1000).to_le_bytes();
        elf[header + 8..][..8].copy_from_slice(&(number as u64 * 64).to_le_bytes());
        elf[header + 32..][..8].copy_from_slice(&size);
        elf[header + 40..][..8].copy_from_slice(&size);
    }
    fs::write(folder.path().join("shared.elf"), elf).unwrap();
    let guest = "kind = \"elf\"\nimage = \"shared.elf\"\nmemory = \"32MiB\"\nvcpus = [0]";
    eight(folder.path(), "", guest);
    refused(
        folder.path(),
        2,
        "has segments that share bytes of the file",
    );
}

/// Sixteen places in the kernel look like type information, each with types up to the end of the file.
#[test]
fn false_type_information_is_searched_once() {
    let folder = support::folder();
    const SIZE: usize = 8 << 20;
    const TYPES: usize = 4096;
    let mut image = support::linux_image(0, 0);
    image.resize(TYPES, 0);
    while image.len() < SIZE {
        image.extend([0, 7 << 24, 0].map(u32::to_le_bytes).concat());
    }
    let end = image.len();
    image.extend([0, 31 << 24, 0, 0].map(u32::to_le_bytes).concat());
    for at in (0..16).map(|place| 1024 + 32 * place) {
        let words = [24, TYPES - at - 24, end + 12 - TYPES, end + 12 - at - 24, 4];
        let header = words.map(|word| (word as u32).to_le_bytes()).concat();
        image[at..at + 4].copy_from_slice(&[0x9f, 0xeb, 1, 0]);
        image[at + 4..][..header.len()].copy_from_slice(&header);
    }
    fs::write(folder.path().join("false"), image).unwrap();
    let head = "[scheduler]\npolicy = \"delay\"\ndelay-while = \"preempt-count\"";
    let guest = "kind = \"linux\"\nimage = \"false\"\nmemory = \"64MiB\"\nvcpus = [0, 1]";
    eight(folder.path(), head, guest);
    refused(
        folder.path(),
        2,
        "type information (BTF) that cannot be read",
    );
}

/// A device tree of so many levels, with as many nodes in the innermost as fit into 2 MB.
fn wide_tree(levels: usize) -> Vec<u8> {
    let mut nodes = Vec::new();
    let word = |nodes: &mut Vec<u8>, word: u32| nodes.extend(word.to_be_bytes());
    let begin = |nodes: &mut Vec<u8>, name: &[u8; 4]| {
        word(nodes, 1);
        nodes.extend(name);
    };
    begin(&mut nodes, &[0; 4]);
    (1..levels).for_each(|_| begin(&mut nodes, b"d\0\0\0"));
    while nodes.len() < 2_000_000 {
        begin(&mut nodes, b"n\0\0\0");
        word(&mut nodes, 2);
    }
    (0..levels).for_each(|_| word(&mut nodes, 2));
    word(&mut nodes, 9);
    let size = nodes.len() as u32;
    let header = [
        0xd00d_feed,
        56 + size,
        56,
        56 + size,
        40,
        17,
        16,
        0,
        0,
        size,
        0,
        0,
        0,
        0,
    ];
    [header.map(u32::to_be_bytes).concat(), nodes].concat()
}

#[test]
fn a_device_tree_of_too_many_nodes_is_refused() {
    let folder = support::folder();
    let guest =
        "kind = \"elf\"\nimage = \"rt.elf\"\ndtb = \"wide.dtb\"\nmemory = \"16MiB\"\nvcpus = [0]";
    eight(folder.path(), "", guest);
    for (levels, words) in [
        (60, "has too many nodes and properties in too many levels"),
        (2, "has more than 65536 nodes and properties"),
    ] {
        fs::write(folder.path().join("wide.dtb"), wide_tree(levels)).unwrap();
        refused(folder.path(), 3, words);
    }
}

/// All guests have one payload, of which the image has one copy.
#[test]
fn a_shared_payload_is_hashed_once() {
    let folder = support::folder();
    let payload = fs::File::create(folder.path().join("large.bin")).unwrap();
    payload.set_len(64 << 20).unwrap();
    let guest = "kind = \"raw\"\nimage = \"large.bin\"\nmemory = \"128MiB\"\nvcpus = [0]";
    eight(folder.path(), "", guest);
    let key = "key new test";
    let build = "build system.toml --hypervisor spumone -o a.img --sign test.key";
    for (seconds, args) in [(1, key), (2, build), (1, "verify a.img")] {
        let args: Vec<_> = args.split(' ').collect();
        let output = limited(folder.path(), seconds, &args);
        let said = stderr(&output);
        assert!(
            output.status.success(),
            "{args:?}: {:?} {said}",
            output.status
        );
    }
}

#[test]
fn all_files_together_are_bounded() {
    let folder = support::folder();
    let payload = fs::File::create(folder.path().join("huge.cpio")).unwrap();
    payload.set_len((2 << 30) + 1).unwrap();
    let guest = "kind = \"linux\"\nimage = \"Image\"\ninitrd = \"huge.cpio\"\nmemory = \"3GiB\"\nvcpus = [0]";
    eight(folder.path(), "", guest);
    refused(
        folder.path(),
        1,
        "the files of all guests may have 2 GiB together",
    );
}

#[test]
fn a_log_of_many_sources_is_explained() {
    let folder = support::folder();
    const LINES: usize = 20_000;
    // Each source begins a line, which the next one breaks.
    let lines = (0..LINES).map(|number| format!("g{number} | begun {number}\n\r"));
    let log: String = lines.collect();
    fs::write(folder.path().join("serial.log"), log).unwrap();
    let output = limited(folder.path(), 2, &["explain", "serial.log"]);
    let said = support::stdout(&output);
    assert!(
        output.status.success(),
        "{:?} {}",
        output.status,
        stderr(&output)
    );
    let mut numbers: Vec<usize> = Vec::new();
    // The log ends with the break of a line, behind which there is an empty one.
    for line in said.lines().filter(|it| !it.is_empty()) {
        let (_, number) = line.split_once(" | begun ").unwrap();
        numbers.push(number.parse().unwrap());
    }
    numbers.sort_unstable();
    assert!(numbers.into_iter().eq(0..LINES));
}

/// Each symbol's name goes on to the end of all names.
#[test]
fn a_hypervisor_of_long_names_is_refused() {
    let folder = support::folder();
    fs::write(folder.path().join("system.toml"), support::SYSTEM).unwrap();
    let mut elf = support::hypervisor();
    elf.symbols = vec![("a", 0); 100_000];
    let mut elf = elf.write();
    let word =
        |elf: &[u8], at: usize| u64::from_le_bytes(elf[at..at + 8].try_into().unwrap()) as usize;
    // The section of symbol names is the first section with any bytes; section 0 is empty.
    let section = word(&elf, 40) + 64;
    let (start, size) = (word(&elf, section + 24), word(&elf, section + 32));
    elf[start..start + size - 1].fill(b'a');
    fs::write(folder.path().join("long"), elf).unwrap();
    let check = ["check", "system.toml", "--hypervisor", "long"];
    let output = limited(folder.path(), 2, &check);
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(3), "{:?} {said}", output.status);
    assert!(said.contains("it has no symbol `bundle_start`"), "{said}");
}
