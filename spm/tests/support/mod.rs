// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files for tests: small ELF executables, Linux images and a hypervisor, generated here, so
//! that tests need no toolchain and no download.

// Each test program uses a part of this.
#![allow(dead_code)]

pub mod btf;

use std::ops::Range;
use std::path::Path;
use std::process::{Command, Output};
use tempfile::TempDir;

/// Where the hypervisor is linked.
pub const HYPERVISOR_ADDRESS: u64 = 0x4020_0000;
/// Memory size of the test hypervisor, in bytes.
pub const HYPERVISOR_SIZE: u64 = 0x1_5000;
/// Size of the stacks of its cores, each of a guard page and one more.
const STACKS_SIZE: u64 = 8 * 0x2000;
/// Where in it the key is, and how many bytes that takes.
pub const TRUST: u64 = 0x1100;
pub const TRUST_SIZE: u64 = 40;
/// Memory size in the header of the test kernel, in bytes.
pub const KERNEL_SIZE: u64 = 24 << 20;

/// An ELF file to be written.
pub struct Elf {
    pub class: u8,
    pub byte_order: u8,
    pub kind: u16,
    pub machine: u16,
    pub entry: u64,
    /// Physical address, bytes in the file, bytes in memory.
    pub segments: Vec<(u64, Vec<u8>, u64)>,
    pub symbols: Vec<(&'static str, u64)>,
    /// The difference of a segment's virtual address to its physical address.
    pub virtual_offset: u64,
}

impl Elf {
    /// A little-endian AArch64 executable with one segment of zeros.
    pub fn at(address: u64) -> Self {
        Self {
            class: 2,
            byte_order: 1,
            kind: 2,
            machine: 183,
            entry: address,
            segments: vec![(address, vec![0; 0x1000], 0x2000)],
            symbols: Vec::new(),
            virtual_offset: 0,
        }
    }

    pub fn write(&self) -> Vec<u8> {
        const HEADER: usize = 64;
        const PROGRAM: usize = 56;
        let programs_end = HEADER + PROGRAM * self.segments.len();
        let mut data_at = programs_end.next_multiple_of(0x1000);
        let mut programs = Vec::new();
        let mut data = Vec::new();
        for (address, bytes, memory_size) in &self.segments {
            programs.extend(1u32.to_le_bytes());
            programs.extend(7u32.to_le_bytes());
            for word in [
                data_at as u64,
                *address + self.virtual_offset,
                *address,
                bytes.len() as u64,
                *memory_size,
                0x1000,
            ] {
                programs.extend(word.to_le_bytes());
            }
            data.extend(bytes);
            data_at += bytes.len();
        }
        // Sections: none, names of symbols, symbols.
        let mut names = vec![0];
        let mut symbols = vec![0; 24];
        for (name, value) in &self.symbols {
            symbols.extend((names.len() as u32).to_le_bytes());
            symbols.extend([0x10, 0]);
            symbols.extend(0xfff1u16.to_le_bytes());
            symbols.extend(value.to_le_bytes());
            let size = match *name {
                "core_stacks" => STACKS_SIZE,
                "spumone_trust" => TRUST_SIZE,
                _ => 0,
            };
            symbols.extend(size.to_le_bytes());
            names.extend(name.as_bytes());
            names.push(0);
        }
        let names_at = data_at;
        let symbols_at = names_at + names.len();
        let sections_at = symbols_at + symbols.len();
        let mut sections = vec![0; 64];
        sections.extend(section(3, names_at, names.len(), 0, 0));
        sections.extend(section(2, symbols_at, symbols.len(), 1, 24));

        let mut file = vec![0x7f, b'E', b'L', b'F', self.class, self.byte_order, 1];
        file.resize(16, 0);
        file.extend(self.kind.to_le_bytes());
        file.extend(self.machine.to_le_bytes());
        file.extend(1u32.to_le_bytes());
        for word in [self.entry, HEADER as u64, sections_at as u64] {
            file.extend(word.to_le_bytes());
        }
        file.extend(0u32.to_le_bytes());
        for half in [HEADER, PROGRAM, self.segments.len(), 64, 3, 1] {
            file.extend((half as u16).to_le_bytes());
        }
        file.extend(programs);
        file.resize(programs_end.next_multiple_of(0x1000), 0);
        for part in [data, names, symbols, sections] {
            file.extend(part);
        }
        file
    }
}

fn section(kind: u32, at: usize, size: usize, link: u32, entry_size: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.extend(0u32.to_le_bytes());
    bytes.extend(kind.to_le_bytes());
    for word in [0, 0, at as u64, size as u64] {
        bytes.extend(word.to_le_bytes());
    }
    bytes.extend(link.to_le_bytes());
    bytes.extend(0u32.to_le_bytes());
    bytes.extend(1u64.to_le_bytes());
    bytes.extend(entry_size.to_le_bytes());
    bytes
}

/// A Linux arm64 `Image`: a header, then zeros.
pub fn linux_image(image_size: u64, flags: u64) -> Vec<u8> {
    let mut image = vec![0; 0x1_0000];
    image[16..24].copy_from_slice(&image_size.to_le_bytes());
    image[24..32].copy_from_slice(&flags.to_le_bytes());
    image[56..60].copy_from_slice(b"ARM\x64");
    image
}

/// As [`linux_image`], with type information in it.
pub fn linux_image_with(types: &[u8]) -> Vec<u8> {
    let mut image = linux_image(KERNEL_SIZE, 0xa);
    image[0x1230..][..types.len()].copy_from_slice(types);
    image
}

/// A hypervisor: an Image header, code, `.bss`, and the symbol that ends it.
pub fn hypervisor() -> Elf {
    let mut code = linux_image(0, 2);
    code.truncate(0x1800);
    code[8..16].copy_from_slice(&0x20_0000u64.to_le_bytes());
    code[0x1000..].fill(0xc0);
    Elf {
        segments: vec![
            (HYPERVISOR_ADDRESS, code, 0x1800),
            (HYPERVISOR_ADDRESS + 0x2000, vec![0xda; 0x10], 0x1_3000),
        ],
        symbols: vec![
            ("entry", HYPERVISOR_ADDRESS + 64),
            ("rodata_begin", HYPERVISOR_ADDRESS + 0x1000),
            ("spumone_trust", HYPERVISOR_ADDRESS + TRUST),
            ("data_begin", HYPERVISOR_ADDRESS + 0x2000),
            ("core_stacks", HYPERVISOR_ADDRESS + 0x3000),
            ("boot_stack_guard", HYPERVISOR_ADDRESS + 0x1_3000),
            ("bundle_start", HYPERVISOR_ADDRESS + HYPERVISOR_SIZE),
        ],
        ..Elf::at(HYPERVISOR_ADDRESS)
    }
}

/// A folder with the files that descriptions of tests name.
pub fn folder() -> TempDir {
    let folder = TempDir::new().unwrap();
    let write = |name: &str, bytes: &[u8]| std::fs::write(folder.path().join(name), bytes).unwrap();
    write("spumone", &hypervisor().write());
    write("Image", &linux_image(KERNEL_SIZE, 0xa));
    write("initrd.cpio", &vec![0x30; 1 << 20]);
    write("rt.elf", &Elf::at(0x4008_0000).write());
    write("payload.bin", &[0; 0x3000]);
    folder
}

/// Runs `spm` in `folder`.
pub fn spm(folder: &Path, args: &[&str]) -> Output {
    run(env!("CARGO_BIN_EXE_spm").as_ref(), folder, args)
}

/// The same with a copy of `spm` in that folder, far from the sources and the hypervisor.
pub fn spm_alone(folder: &Path, args: &[&str]) -> Output {
    let copy = folder.join("installed-spm");
    // Copied by another process: if this one had the file open for writing, children of other tests would inherit the descriptor,
    // and a program that is open for writing cannot be started.
    let mut cp = Command::new("cp");
    cp.arg(env!("CARGO_BIN_EXE_spm")).arg(&copy);
    assert!(cp.status().unwrap().success());
    run(&copy, folder, args)
}

fn run(program: &Path, folder: &Path, args: &[&str]) -> Output {
    Command::new(program)
        .args(args)
        .current_dir(folder)
        .env_remove("CARGO_TARGET_DIR")
        // Plain text on any terminal.
        .env("NO_COLOR", "1")
        .env("TERM", "xterm")
        .output()
        .unwrap()
}

pub fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// Two guests on two cores, one of each common kind.
pub const SYSTEM: &str = r#"
[board]
name = "qemu-virt"
cores = 2
memory = "256MiB"

[[guest]]
name = "rt"
kind = "elf"
image = "rt.elf"
memory = "16MiB"
vcpus = [0]
priority = 200
bootargs = "period=1ms"

[[guest]]
name = "linux"
kind = "linux"
image = "Image"
initrd = "initrd.cpio"
memory = "64MiB"
identity = true
trusted-dma = true
vcpus = [0, 1]
priority = 100
bootargs = "console=ttyAMA0"
devices = ["virtio0", "virtio1"]
"#;

/// Builds the system of a description in `folder`, with these arguments; returns the image.
pub fn build(folder: &Path, description: &str, arguments: &[&str]) -> Vec<u8> {
    std::fs::write(folder.join("system.toml"), description).unwrap();
    let build = "build system.toml --hypervisor spumone -o a.img".split(' ');
    let all: Vec<_> = build.chain(arguments.iter().copied()).collect();
    let output = spm(folder, &all);
    assert!(output.status.success(), "{}", stderr(&output));
    std::fs::read(folder.join("a.img")).unwrap()
}

/// The steps of a fuzzer: as many as the environment says, else `default`; each number stands for other random choices.
pub fn fuzz_steps(default: u64) -> Range<u64> {
    let variable = |name| std::env::var(name).ok()?.parse().ok();
    let first = variable("SPUMONE_FUZZ_SEED").unwrap_or(0);
    first..first + variable("SPUMONE_FUZZ_STEPS").unwrap_or(default)
}

/// Files with borrowed contents.
pub fn borrowed<'a>(files: &'a [(&'static str, Vec<u8>)]) -> Vec<(&'a str, &'a [u8])> {
    let borrow = |(name, bytes): &'a (&'static str, Vec<u8>)| (*name, bytes.as_slice());
    files.iter().map(borrow).collect()
}
