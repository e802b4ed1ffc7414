// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where a guest's image, ramdisk and device tree go in its memory.
//!
//! All addresses here are guest addresses (IPA).

use super::{Load, Source, device_tree_room};
use crate::description::{Guest, Kind};
use crate::image::{ElfSegment, GuestFiles, Image, LinuxHeader};
use crate::packed::{MAX_RANGES, Mapping};
use crate::problem::{Problem, Span};
use crate::types::GuestAddr;
use crate::units::{self, BLOCK, GIB, KIB, MIB, PAGE, align_down, align_up};

/// Where a raw image is loaded from the start of memory, as QEMU's `-kernel` does on `virt`.
const RAW_LOAD_OFFSET: u64 = 512 * KIB;
/// Most segments of an ELF: the device tree takes one entry of the packed list.
const MAX_SEGMENTS: usize = MAX_RANGES - 1;
/// A kernel that takes more than this is a damaged file, not a kernel.
const MAX_IMAGE: u64 = 1 << 36;

/// What goes where.
pub(super) struct Loaded {
    pub loads: Vec<Load>,
    pub entry: GuestAddr,
    pub initrd: Option<(GuestAddr, u64)>,
    pub device_tree: GuestAddr,
    pub device_tree_room: u64,
}

/// Places the files of one guest; `None` where that is refused.
pub(super) fn load(
    guest: &Guest,
    files: &GuestFiles,
    memory: Mapping,
    problems: &mut Vec<Problem>,
) -> Option<Loaded> {
    if files.dtb_size.is_some() && device_tree_room(files) > 2 * MIB {
        let span = guest.dtb.as_ref().map_or(guest.span, |dtb| dtb.span);
        let message = format!(
            "the device tree of guest \"{}\" is too large",
            guest.name.value
        );
        problems.push(
            Problem::new("device-tree", message)
                .at(span, units::size(files.dtb_size.unwrap_or(0)))
                .help("Linux maps at most 2 MiB of it: use a smaller one"),
        );
        return None;
    }
    let place = Place {
        guest,
        memory,
        room: device_tree_room(files),
    };
    let result = match &files.image {
        Image::Flat {
            size,
            header: Some(header),
        } if guest.kind.value == Kind::Linux || guest.load.is_none() => {
            place.linux(*size, *header, files.initrd_size)
        }
        Image::Flat { size, .. } => place.raw(*size),
        Image::Elf { entry, segments } => place.elf(*entry, segments),
    };
    result.map_err(|problem| problems.push(*problem)).ok()
}

/// One guest's memory to be filled.
struct Place<'a> {
    guest: &'a Guest,
    memory: Mapping,
    /// Bytes to keep for the device tree.
    room: u64,
}

/// A piece of memory that is taken: address and size.
type Piece = (u64, u64);

impl Place<'_> {
    fn start(&self) -> u64 {
        self.memory.ipa.0
    }

    fn end(&self) -> u64 {
        self.memory.ipa.0 + self.memory.size
    }

    fn holds(&self, (address, size): Piece) -> bool {
        address >= self.start()
            && address
                .checked_add(size)
                .is_some_and(|end| end <= self.end())
    }

    fn problem(&self, code: &'static str, span: Span, what: &str, label: &str) -> Box<Problem> {
        let message = format!("guest \"{}\": {what}", self.guest.name.value);
        Box::new(Problem::new(code, message).at(span, label))
    }

    /// Linux, Documentation/arch/arm64/booting.rst: the image `text_offset` above a 2 MiB
    /// boundary; the device tree in a 2 MiB block without kernel; the ramdisk within the same
    /// 32 GiB window as the kernel, which is so wherever both are in one guest's memory.
    fn linux(
        &self,
        size: u64,
        header: LinuxHeader,
        initrd_size: Option<u64>,
    ) -> Result<Loaded, Box<Problem>> {
        let span = self.guest.image.span;
        if header.image_size == 0 || header.image_size > MAX_IMAGE || header.text_offset > MAX_IMAGE
        {
            let mut problem = self.problem(
                "image",
                span,
                "the kernel does not say how large it is",
                "image_size",
            );
            problem.help = Some("use a kernel of Linux 3.17 or later, unchanged as built".into());
            return Err(problem);
        }
        if header.big_endian {
            let mut problem = self.problem("image", span, "the kernel is big-endian", "this image");
            problem.help = Some("use a kernel built without CONFIG_CPU_BIG_ENDIAN".into());
            return Err(problem);
        }
        let base = align_up(self.start(), BLOCK).unwrap_or(u64::MAX - MAX_IMAGE * 2);
        let kernel = base + header.text_offset;
        let kernel_size = header.image_size.max(size);
        let device_tree = align_up(kernel + kernel_size, BLOCK).unwrap_or(u64::MAX);
        let initrd = align_up(device_tree.saturating_add(self.room), PAGE).unwrap_or(u64::MAX);
        let end = initrd.saturating_add(initrd_size.unwrap_or(0));
        if end > self.end() {
            let needed = align_up(end - self.start(), 2 * MIB).unwrap_or(u64::MAX);
            let what = match initrd_size {
                Some(initrd_size) => format!(
                    "the kernel takes {} and the ramdisk {}, so its memory of {} is too small",
                    units::size(align_up(kernel_size, KIB).unwrap_or(kernel_size)),
                    units::size(align_up(initrd_size, KIB).unwrap_or(initrd_size)),
                    units::size(self.memory.size)
                ),
                None => format!(
                    "the kernel takes {}, so its memory of {} is too small",
                    units::size(align_up(kernel_size, KIB).unwrap_or(kernel_size)),
                    units::size(self.memory.size)
                ),
            };
            let mut problem = self.problem(
                "image-too-large",
                self.guest.memory.span,
                &what,
                "too small",
            );
            problem.help = Some(format!(
                "{} only hold what is loaded; give it several times that",
                units::size(needed)
            ));
            return Err(problem);
        }
        let mut loads = vec![Load {
            source: Source::Image,
            file_offset: 0,
            size,
            destination: GuestAddr(kernel),
        }];
        let initrd = initrd_size.map(|size| (GuestAddr(initrd), size));
        if let Some((destination, size)) = initrd {
            loads.push(Load {
                source: Source::Initrd,
                file_offset: 0,
                size,
                destination,
            });
        }
        Ok(Loaded {
            loads,
            entry: GuestAddr(kernel),
            initrd,
            device_tree: GuestAddr(device_tree),
            device_tree_room: self.room,
        })
    }

    fn raw(&self, size: u64) -> Result<Loaded, Box<Problem>> {
        let image = &self.guest.image;
        let (load, span) = match self.guest.load {
            Some(load) => (load.value, load.span),
            None => (self.start() + RAW_LOAD_OFFSET, image.span),
        };
        if !self.holds((load, size)) {
            let what = format!(
                "its image at {} is not all in its memory at {}",
                units::range(load, size),
                units::range(self.start(), self.memory.size)
            );
            let mut problem = self.problem("image-outside", span, &what, "outside");
            problem.help = Some("choose `load` inside the memory, or give it more memory".into());
            return Err(problem);
        }
        let (entry, span) = self
            .guest
            .entry
            .map_or((load, span), |entry| (entry.value, entry.span));
        self.check_entry(entry, span, &[(load, size)])?;
        self.finish(
            vec![Load {
                source: Source::Image,
                file_offset: 0,
                size,
                destination: GuestAddr(load),
            }],
            entry,
            &[(load, size)],
        )
    }

    fn elf(&self, entry: u64, segments: &[ElfSegment]) -> Result<Loaded, Box<Problem>> {
        let span = self.guest.image.span;
        if segments.len() > MAX_SEGMENTS {
            let what = format!("its image has {} loadable segments", segments.len());
            let mut problem = self.problem("image", span, &what, "too many");
            problem.help = Some(format!("link it with at most {MAX_SEGMENTS}"));
            return Err(problem);
        }
        let pieces: Vec<Piece> = segments
            .iter()
            .map(|segment| (segment.address, segment.memory_size))
            .collect();
        if let Some(outside) = pieces.iter().find(|piece| !self.holds(**piece)) {
            return Err(self.segment_outside(*outside, &pieces));
        }
        for (index, (address, size)) in pieces.iter().enumerate() {
            let clash = pieces[..index]
                .iter()
                .find(|(other, length)| *address < other + length && *other < address + size);
            if let Some((other, length)) = clash {
                let what = format!(
                    "segments of its image overlap: {} and {}",
                    units::range(*other, *length),
                    units::range(*address, *size)
                );
                let mut problem = self.problem("image", span, &what, "this image");
                problem.help =
                    Some("mend its linker script: physical addresses (LMA) must differ".into());
                return Err(problem);
            }
        }
        self.check_entry(entry, span, &pieces)?;
        let loads = segments
            .iter()
            .filter(|segment| segment.file_size > 0)
            .map(|segment| Load {
                source: Source::Image,
                file_offset: segment.file_offset,
                size: segment.file_size,
                destination: GuestAddr(segment.address),
            })
            .collect();
        self.finish(loads, entry, &pieces)
    }

    /// The image is linked for another place: says which `ipa` or `pa` would do.
    fn segment_outside(&self, outside: Piece, pieces: &[Piece]) -> Box<Problem> {
        let what = format!(
            "a segment of its image, {}, is outside its memory at {}",
            units::range(outside.0, outside.1),
            units::range(self.start(), self.memory.size)
        );
        let lowest = pieces.iter().map(|piece| piece.0).min().unwrap_or(0);
        let highest = pieces
            .iter()
            .map(|piece| piece.0.saturating_add(piece.1))
            .max()
            .unwrap_or(0);
        let identity = self.guest.identity.is_some_and(|identity| identity.value);
        // The roundest address from which its memory reaches the image.
        let start = (BLOCK.ilog2()..=GIB.ilog2())
            .map(|bits| align_down(lowest, 1 << bits))
            .rfind(|start| highest - start <= self.memory.size)
            .unwrap_or(align_down(lowest, BLOCK));
        let mut cures = Vec::new();
        if lowest >= self.start() && highest - self.start() <= GIB {
            let needed = align_up(highest - self.start(), BLOCK).unwrap_or(highest);
            let needed = units::size(needed).replace(' ', "");
            cures.push(format!("memory = \"{needed}\""));
        }
        if identity {
            cures.push("a `pa` whose memory holds it, or no `identity`".to_owned());
        } else if start != self.start() && highest - start <= self.memory.size {
            cures.push(format!("ipa = {start:#x}"));
        }
        cures.push("to be linked elsewhere".to_owned());
        let help = format!(
            "it is linked at {lowest:#x}: it needs {}",
            cures.join(", or ")
        );
        let mut problem = self.problem(
            "image-outside",
            self.guest.image.span,
            &what,
            "linked for another place",
        );
        problem.help = Some(help);
        problem
    }

    fn check_entry(&self, entry: u64, span: Span, pieces: &[Piece]) -> Result<(), Box<Problem>> {
        let inside = |(address, size): &Piece| entry >= *address && entry - address < *size;
        if pieces.iter().any(inside) && entry.is_multiple_of(4) {
            return Ok(());
        }
        let what = match entry.is_multiple_of(4) {
            true => format!("its entry point {entry:#x} is outside its image"),
            false => format!("its entry point {entry:#x} is not a multiple of 4"),
        };
        let mut problem = self.problem("entry-outside", span, &what, "no instruction there");
        let starts: Vec<_> = pieces
            .iter()
            .map(|piece| units::range(piece.0, piece.1))
            .collect();
        problem.help = Some(format!("choose one inside {}", starts.join(" or ")));
        Err(problem)
    }

    /// Adds the device tree: at the start of memory, where QEMU puts it, or else near the end.
    fn finish(
        &self,
        loads: Vec<Load>,
        entry: u64,
        taken: &[Piece],
    ) -> Result<Loaded, Box<Problem>> {
        let top = self.end().saturating_sub(self.room);
        let candidates = [
            align_up(self.start(), PAGE).unwrap_or(self.start()),
            align_down(top, BLOCK),
            align_down(top, PAGE),
        ];
        let is_free = |at: &u64| {
            self.holds((*at, self.room))
                && taken
                    .iter()
                    .all(|(address, size)| at + self.room <= *address || address + size <= *at)
        };
        let Some(device_tree) = candidates.into_iter().find(is_free) else {
            let what = format!(
                "its image leaves no {} for the device tree, at either end of its memory",
                units::size(self.room)
            );
            let mut problem = self.problem(
                "image-too-large",
                self.guest.memory.span,
                &what,
                "too small",
            );
            problem.help = Some("give it more memory".into());
            return Err(problem);
        };
        Ok(Loaded {
            loads,
            entry: GuestAddr(entry),
            initrd: None,
            device_tree: GuestAddr(device_tree),
            device_tree_room: self.room,
        })
    }
}
