// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads the hypervisor's ELF file and flattens it into the image that is loaded.

use crate::failure::Failure;
use crate::input;
use object::Endianness;
use object::elf;
use object::read::elf::{FileHeader as _, ProgramHeader as _, SectionHeader as _, Sym as _};
use spumone_config::image::LinuxHeader;
use spumone_config::packed::{Sections, Trust};
use spumone_config::types::MAX_PCPUS;
use spumone_config::units::{self, MIB, PAGE};
use std::path::{Path, PathBuf};

/// Where `make build` leaves the hypervisor, from the folder `target` of the source tree.
const DEFAULT_PATH: &str = "aarch64-unknown-none-softfloat/release/spumone";
/// The symbol after everything that the hypervisor has in memory: the bundle's address.
const BUNDLE_START: &str = "bundle_start";
/// The symbols of the first constant and of the first data (`image.ld`).
const CONSTANTS: &str = "rodata_begin";
const DATA: &str = "data_begin";
/// The symbol of the place for a key (`hypervisor/src/hardware/trust.rs`).
const TRUST: &str = "spumone_trust";
/// The symbols of the boot core's guard page, and of the stacks of the other cores, each with a guard page below it.
const BOOT_GUARD: &str = "boot_stack_guard";
const STACKS: &str = "core_stacks";
/// Several times the size of any hypervisor: a damaged file must not make `spm` allocate all memory.
const MAX_SIZE: u64 = 16 * MIB;
/// Largest ELF file in bytes: what is loaded, and debug information. It is many times the size of any hypervisor.
const MAX_FILE: u64 = 256 * MIB;

/// The size that is assumed if the hypervisor is not built yet.
pub const ASSUMED_SIZE: u64 = 2 * MIB;
const HELP: &str = "build it with `make build` in Spumone's sources, or name it with --hypervisor";

/// The hypervisor as it lies in memory.
pub struct Hypervisor {
    /// Its first address.
    pub address: u64,
    /// Its bytes up to the bundle, zero where nothing is loaded.
    pub bytes: Vec<u8>,
    /// How many of them are loaded: code, constants, and data that is not zero at the start.
    pub loaded: u64,
    /// Where its parts are.
    pub sections: Sections,
    /// Where among its bytes the key is that it trusts; `None`: the hypervisor is of a release without verification.
    pub trust: Option<usize>,
}

/// Finds the hypervisor: as named; else where `make build` leaves it, in this folder or one above it, or above `spm` itself.
pub fn find(named: Option<&Path>) -> Result<PathBuf, Failure> {
    if let Some(path) = named {
        return Ok(path.to_owned());
    }
    if let Some(target) = std::env::var_os("CARGO_TARGET_DIR") {
        let path = Path::new(&target).join(DEFAULT_PATH);
        if path.is_file() {
            return Ok(path);
        }
    }
    let here = std::env::current_dir()
        .map_err(|error| Failure::io("find the current folder", Path::new("."), &error))?;
    let default = Path::new("target").join(DEFAULT_PATH);
    let spm = std::env::current_exe().unwrap_or_default();
    here.ancestors()
        .chain(spm.ancestors())
        .map(|folder| folder.join(&default))
        .find(|path| path.is_file())
        .ok_or_else(|| {
            Failure::environment(format!(
                "the hypervisor was not found: there is no {}, in this folder or one above it, or above `spm`",
                default.display()
            ))
            .help(HELP)
        })
}

/// Reads and flattens the hypervisor.
pub fn read(path: &Path) -> Result<Hypervisor, Failure> {
    let is_elf = |beginning: &[u8]| beginning.starts_with(&elf::ELFMAG);
    let file = input::read_if(path, MAX_FILE, is_elf)
        .map_err(|error| Failure::io("read the hypervisor", path, &error).help(HELP))?
        .unwrap_or_default();
    flatten(&file).map_err(|what| {
        Failure::environment(format!("{}: {what}", path.display())).help(format!(
            "build the hypervisor again with `make build`; it is then target/{DEFAULT_PATH}"
        ))
    })
}

/// The image of an ELF file.
///
/// # Errors
///
/// Why the file is not the hypervisor.
pub fn flatten(file: &[u8]) -> Result<Hypervisor, String> {
    let unusable = |error: object::read::Error| {
        format!("this is not the hypervisor: not a usable ELF file: {error}")
    };
    let endian = Endianness::Little;
    let header = elf::FileHeader64::<Endianness>::parse(file).map_err(unusable)?;
    let machine = header.e_machine(endian);
    if machine != elf::EM_AARCH64 {
        return Err(format!(
            "this is not the hypervisor: it is not for AArch64 (e_machine is {})",
            machine.0
        ));
    }
    let programs = header.program_headers(endian, file).map_err(unusable)?;
    let loaded = || {
        programs
            .iter()
            .filter(|program| program.p_type(endian) == elf::PT_LOAD)
            .filter(|program| program.p_memsz(endian) > 0)
    };
    let address = loaded()
        .map(|program| program.p_paddr(endian))
        .min()
        .ok_or("it has nothing to load")?;
    let bundle = symbol(header, file, BUNDLE_START).map_err(unusable)?;
    let (bundle, _) = bundle.ok_or(
        "this is not the hypervisor: it has no symbol `bundle_start`, where guests are placed",
    )?;
    let size = bundle
        .checked_sub(address)
        .filter(|size| *size <= MAX_SIZE && bundle.is_multiple_of(PAGE))
        .ok_or_else(|| {
            format!(
                "its symbol `bundle_start` is at {bundle:#x}, which is not page-aligned and at most {} after its start",
                units::size(MAX_SIZE)
            )
        })?;
    let mut bytes = vec![0; size as usize];
    let mut loaded_end = 0;
    for program in loaded() {
        let data = program
            .data(endian, file)
            .map_err(|()| "a segment goes beyond the end of the file")?;
        let start = (program.p_paddr(endian) - address) as usize;
        let end = start.checked_add(data.len());
        end.and_then(|end| bytes.get_mut(start..end))
            .ok_or("a segment lies beyond `bundle_start`")?
            .copy_from_slice(data);
        loaded_end = loaded_end.max(start + data.len());
        let memory_end = program.p_paddr(endian).checked_add(program.p_memsz(endian));
        if memory_end.is_none_or(|end| end > bundle) {
            return Err("a segment lies beyond `bundle_start`".into());
        }
    }
    if LinuxHeader::parse(&bytes).is_none() {
        return Err("it does not start with a Linux arm64 Image header".into());
    }
    let find = |name| match symbol(header, file, name).map_err(unusable)? {
        Some((value, size)) if (address..bundle).contains(&value) => Ok((value - address, size)),
        _ => Err(format!("its symbol `{name}` is not within it")),
    };
    let (stacks, stacks_size) = find(STACKS)?;
    let stack_size = stacks_size / MAX_PCPUS as u64;
    // A symbol without a size would leave only the first stack with a guard page.
    if stack_size < 2 * PAGE || stacks_size > size - stacks {
        return Err(format!(
            "its symbol `{STACKS}` does not have the size of {MAX_PCPUS} stacks"
        ));
    }
    let core_guards = (0..MAX_PCPUS as u64).map(|core| stacks + core * stack_size);
    let mut guards: Vec<_> = core_guards.chain([find(BOOT_GUARD)?.0]).collect();
    guards.sort_unstable();
    let sections = Sections {
        constants: find(CONSTANTS)?.0,
        data: find(DATA)?.0,
        // As many as there can be.
        guards: guards.into_iter().collect(),
    };
    let parts = [sections.constants, sections.data];
    if !parts
        .iter()
        .chain(&sections.guards)
        .all(|at| at.is_multiple_of(PAGE))
    {
        return Err("its sections and stacks do not begin at pages".into());
    }
    let trust = match find(TRUST) {
        Ok((at, size)) if size == Trust::SIZE as u64 => usize::try_from(at).ok(),
        _ => None,
    };
    Ok(Hypervisor {
        address,
        trust,
        bytes,
        loaded: loaded_end as u64,
        sections,
    })
}

/// The value and the size of a symbol.
fn symbol(
    header: &elf::FileHeader64<Endianness>,
    file: &[u8],
    name: &str,
) -> object::read::Result<Option<(u64, u64)>> {
    let endian = Endianness::Little;
    let sections = header.sections(endian, file)?;
    let symbols = sections.symbols(endian, file, elf::SHT_SYMTAB)?;
    if symbols.is_empty() {
        return Ok(None);
    }
    let strings = sections.section(symbols.string_section())?;
    let strings = strings.data(endian, file)?;
    // No name is read to its end: in a damaged file each may be as long as all of them.
    let is_called = |at: u32| {
        let rest = strings.get(at as usize..).unwrap_or_default();
        let rest = rest.strip_prefix(name.as_bytes());
        rest.is_some_and(|rest| rest.first() == Some(&0))
    };
    let found = symbols.iter().find(|it| is_called(it.st_name(endian)));
    Ok(found.map(|it| (it.st_value(endian), it.st_size(endian))))
}
