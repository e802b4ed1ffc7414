// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writes small ELF executables, Linux images and a hypervisor, so that tests need no toolchain and no download.

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
