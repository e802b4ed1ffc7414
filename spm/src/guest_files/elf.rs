// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads ELF executables of guests (ELF-64 object file format; ELF for the Arm 64-bit
//! Architecture, IHI 0056).

use object::Endianness;
use object::elf;
use object::read::elf::{FileHeader as _, ProgramHeader as _};
use spumone_config::image::{ElfSegment, Image};

/// What is wrong with an ELF file; the text follows "the image of guest …".
#[derive(Debug, PartialEq, Eq)]
pub struct Fault {
    pub what: String,
    pub help: String,
}

fn fault(what: impl Into<String>, help: impl Into<String>) -> Fault {
    Fault {
        what: what.into(),
        help: help.into(),
    }
}

/// More loadable segments than this are not even listed. The layout takes fewer, and says how many.
const MAX_LISTED: usize = 1_000;

/// Whether the file begins as an ELF file.
pub fn is_elf(bytes: &[u8]) -> bool {
    bytes.starts_with(&elf::ELFMAG)
}

/// Reads what the placement of the executable needs.
pub fn inspect(bytes: &[u8]) -> Result<Image, Fault> {
    if !is_elf(bytes) {
        return Err(fault(
            "is not an ELF file",
            "set kind = \"raw\" or \"linux\", or name the ELF",
        ));
    }
    identify(bytes)?;
    let damaged = |error: object::read::Error| {
        fault(format!("is damaged: {error}"), "build or copy it again")
    };
    let header = elf::FileHeader64::<Endianness>::parse(bytes).map_err(damaged)?;
    let endian = Endianness::Little;
    if header.e_machine(endian) != elf::EM_AARCH64 {
        return Err(fault(
            format!(
                "is not for AArch64 (e_machine is {})",
                header.e_machine(endian).0
            ),
            "build it for aarch64",
        ));
    }
    if header.e_type(endian) != elf::ET_EXEC && header.e_type(endian) != elf::ET_DYN {
        return Err(fault(
            "is not an executable",
            "link it (an object file has no addresses)",
        ));
    }
    let mut segments = Vec::new();
    let mut entry = header.e_entry(endian);
    let mut entry_is_virtual = true;
    for program in header.program_headers(endian, bytes).map_err(damaged)? {
        if program.p_type(endian) != elf::PT_LOAD || program.p_memsz(endian) == 0 {
            continue;
        }
        let segment = ElfSegment {
            file_offset: program.p_offset(endian),
            file_size: program.p_filesz(endian),
            address: program.p_paddr(endian),
            memory_size: program.p_memsz(endian),
            is_writable: program.p_flags(endian) & elf::PF_W == elf::PF_W,
        };
        let end = segment.file_offset.checked_add(segment.file_size);
        if end.is_none_or(|end| end > bytes.len() as u64) {
            let what = format!(
                "is cut off: a segment goes to byte {}, and the file has {}",
                segment.file_offset.saturating_add(segment.file_size),
                bytes.len()
            );
            return Err(fault(what, "build or copy it again"));
        }
        if segment.file_size > segment.memory_size {
            return Err(fault(
                "has a segment with more bytes in the file than in memory",
                "correct its linker script",
            ));
        }
        // The entry point is a virtual address; the guest starts with its MMU off.
        let from_start = entry.wrapping_sub(program.p_vaddr(endian));
        if entry_is_virtual && from_start < segment.memory_size {
            entry = segment.address.wrapping_add(from_start);
            entry_is_virtual = false;
        }
        if segments.len() == MAX_LISTED {
            return Err(fault(
                format!("has more than {MAX_LISTED} loadable segments"),
                "correct its linker script, or copy the file again",
            ));
        }
        segments.push(segment);
    }
    // Segments that share bytes would make the image larger than the file, up to as many times as there are segments.
    let loaded = segments.iter().map(|it| it.file_size);
    let loaded = loaded.fold(0, u64::saturating_add);
    if loaded > bytes.len() as u64 {
        let what = format!(
            "has segments that share bytes of the file: they have {loaded} together, and the file has {}",
            bytes.len()
        );
        return Err(fault(
            what,
            "link it so that each segment has its own bytes",
        ));
    }
    if segments.is_empty() {
        return Err(fault(
            "has nothing to load (no PT_LOAD segment)",
            "correct its linker script",
        ));
    }
    Ok(Image::Elf { entry, segments })
}

/// Checks class and byte order, on which the rest depends.
fn identify(bytes: &[u8]) -> Result<(), Fault> {
    let class = bytes.get(4).copied().unwrap_or(0);
    if class != elf::ELFCLASS64.0 {
        return Err(fault("is not a 64-bit ELF file", "build it for aarch64"));
    }
    let data = bytes.get(5).copied().unwrap_or(0);
    if data != elf::ELFDATA2LSB.0 {
        return Err(fault(
            "is not a little-endian ELF file",
            "build it for aarch64, little-endian",
        ));
    }
    Ok(())
}
