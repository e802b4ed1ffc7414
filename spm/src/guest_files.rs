// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads the files of a guest and reports what is wrong with them.

mod btf;
pub mod elf;
pub mod pe;
pub mod preempt_count;
mod store;

pub use store::Store;

use crate::device_tree;
use crate::input::Unreadable;
use spumone_config::description::{Guest, Kind, Scheduler};
use spumone_config::image::{GuestFiles, Image, LinuxHeader};
use spumone_config::problem::{Problem, Spanned};
use spumone_config::units::{self, GIB};
use std::path::{Path, PathBuf};
use store::{Bytes, GZIP_MAGIC, MOST_MORE, MOST_TIMES, MOST_TOGETHER, Refused};

/// The content of a guest's files.
pub struct Contents {
    /// What their placement needs.
    pub files: GuestFiles,
    /// The image, unpacked.
    pub image: Bytes,
    /// The initial ramdisk.
    pub initrd: Option<Bytes>,
    /// The user's own device tree.
    pub dtb: Option<Bytes>,
}

/// Debug information of an ELF file may have so many bytes beside what the guest loads.
const MAX_DEBUG_INFORMATION: u64 = GIB;

/// Reads the files of one guest.
pub struct Reader<'a, 'b> {
    /// The guest.
    pub guest: &'a Guest,
    /// `[scheduler]`.
    pub scheduler: &'a Scheduler,
    /// The files of all guests.
    pub store: &'a mut Store<'b>,
    /// The folder of the description, from which paths count.
    pub folder: &'a Path,
    /// The machine's memory in bytes.
    pub max_memory: u64,
}

impl Reader<'_, '_> {
    /// Reads the files; `None` if one of them is refused.
    pub fn read(mut self, problems: &mut Vec<Problem>) -> Option<Contents> {
        let image = self.image(problems);
        let initrd = self.optional("initrd", self.guest.initrd.as_ref(), problems);
        let dtb = self.optional("dtb", self.guest.dtb.as_ref(), problems);
        let blob = dtb.as_ref().and_then(Option::as_ref);
        if let Some(problem) = blob.and_then(|blob| device_tree::check_user_blob(blob, self.guest))
        {
            problems.push(problem);
            return None;
        }
        let ((facts, preempt_count, image), initrd, dtb) = (image?, initrd?, dtb?);
        let size = |bytes: &Bytes| bytes.len() as u64;
        Some(Contents {
            files: GuestFiles {
                image: facts,
                initrd_size: initrd.as_ref().map(size),
                dtb_size: dtb.as_ref().map(size),
                preempt_count,
            },
            image,
            initrd,
            dtb,
        })
    }

    /// The image, unpacked, with what is known of it and the place of its kernel's `preempt_count`, if that is to be read.
    fn image(&mut self, problems: &mut Vec<Problem>) -> Option<(Image, Option<u32>, Bytes)> {
        let limit = match self.guest.kind.value {
            Kind::Elf => self.memory().saturating_add(MAX_DEBUG_INFORMATION),
            Kind::Linux | Kind::Raw => self.memory(),
        };
        let packed = self.file("image", &self.guest.image, limit, problems)?;
        let bytes = self.unpacked(packed, problems)?;
        let facts = inspect(self.guest, &bytes, problems)?;
        let preempt_count = self.preempt_count(&bytes, problems)?;
        Some((facts, preempt_count, bytes))
    }

    /// Bytes that the guest can have in memory at most.
    fn memory(&self) -> u64 {
        self.guest.memory.value.min(self.max_memory)
    }

    /// A file that the description may leave out: `None` only if it is refused.
    fn optional(
        &mut self,
        key: &str,
        path: Option<&Spanned<String>>,
        problems: &mut Vec<Problem>,
    ) -> Option<Option<Bytes>> {
        match path {
            None => Some(None),
            Some(path) => self.file(key, path, self.memory(), problems).map(Some),
        }
    }

    /// A file of at most `limit` bytes.
    fn file(
        &mut self,
        key: &str,
        path: &Spanned<String>,
        limit: u64,
        problems: &mut Vec<Problem>,
    ) -> Option<Bytes> {
        let full = self.folder.join(&path.value);
        let result = self.store.bytes(&full, limit);
        let at = |code, what: &str| {
            let guest = &self.guest.name.value;
            Problem::new(code, format!("the {key} of guest \"{guest}\" {what}"))
                .at(path.span, full.display().to_string())
        };
        let problem = match result {
            Ok(bytes) if bytes.is_empty() => {
                at("empty-file", "is an empty file").help("build it again")
            }
            Ok(bytes) => return Some(bytes),
            Err(Refused::Unreadable(why)) => match &*why {
                Unreadable::NoFile(what) => {
                    at("not-a-file", &format!("is {what}, not a file")).help("name a regular file")
                }
                Unreadable::TooLarge(_) => {
                    self.too_large(at("file-too-large", "is larger than the guest's memory"))
                }
                error if error.is_missing() => at("missing-file", "is not there").help(
                    "build or fetch it first (`make guests` for the project's own), or correct \
                     the path: it counts from the description's folder",
                ),
                Unreadable::Io(error) => at("unreadable-file", &format!("cannot be read: {error}"))
                    .help("correct its permissions"),
            },
            Err(refused) => self.refused(&refused, |what| at("file-too-large", what)),
        };
        problems.push(problem);
        None
    }

    /// Adds how much memory the guest has to a problem of a file that is larger.
    fn too_large(&self, problem: Problem) -> Problem {
        let memory = units::size(self.memory());
        problem
            .at(self.guest.memory.span, format!("the guest has {memory}"))
            .help("name the right file, or give the guest several times the memory that the file takes")
    }

    /// The problem of a file that is refused for what is in it, or for the files of other guests.
    fn refused(&self, refused: &Refused, problem: impl Fn(&str) -> Problem) -> Problem {
        match refused {
            Refused::Together => {
                let most = units::size(MOST_TOGETHER);
                let what = format!(
                    "does not fit: the files of all guests may have {most} together, unpacked"
                );
                problem(&what)
                    .help("name smaller ones: a guest can fetch what is large when it runs")
            }
            Refused::Swells => {
                let most = units::size(MOST_MORE);
                let what = format!(
                    "is a gzip file that unpacks to more than {MOST_TIMES} times its size; all such files together may exceed that by {most}"
                );
                problem(&what).help(
                    "kernels unpack to three times their size: if the file is right, unpack it (`gunzip -k`), and name the result",
                )
            }
            Refused::Damaged(error) => {
                problem(&format!("does not unpack: {error}")).help("fetch or build it again")
            }
            Refused::Unreadable(error) => problem(&format!("cannot be read: {error}")),
        }
    }

    /// Unpacks a gzip-compressed image (Debian and others ship `vmlinuz` in this form).
    fn unpacked(&mut self, bytes: Bytes, problems: &mut Vec<Problem>) -> Option<Bytes> {
        if self.guest.kind.value != Kind::Linux || !bytes.starts_with(&GZIP_MAGIC) {
            return Some(bytes);
        }
        let result = self.store.unpacked(&self.path(), &bytes);
        let refuse = |what: &str, label: &str| {
            let message = format!("the image of guest \"{}\" {what}", self.guest.name.value);
            Problem::new("image", message).at(self.guest.image.span, label)
        };
        let problem = match result {
            Ok(unpacked) if unpacked.len() as u64 <= self.memory() => return Some(unpacked),
            Ok(_) => self.too_large(refuse(
                "is larger than the guest's memory when it is unpacked",
                "this gzip file",
            )),
            Err(refused) => {
                let label = match refused {
                    Refused::Damaged(_) => "damaged gzip file",
                    _ => "this gzip file",
                };
                self.refused(&refused, |what| refuse(what, label))
            }
        };
        problems.push(problem);
        None
    }

    /// Where the image is.
    fn path(&self) -> PathBuf {
        self.folder.join(&self.guest.image.value)
    }

    /// The place of the kernel's count of what holds off preemption, if it is to be read: `None` only if it cannot be read.
    fn preempt_count(&mut self, image: &[u8], problems: &mut Vec<Problem>) -> Option<Option<u32>> {
        let Some(asked) = self
            .scheduler
            .reads_preempt_count()
            .filter(|_| self.guest.is_smp_linux())
        else {
            return Some(None);
        };
        match self.store.preempt_count(&self.path(), image) {
            Ok(offset) => Some(Some(offset)),
            Err(no) => {
                let message = format!(
                    "the kernel of guest \"{}\" {}",
                    self.guest.name.value, no.what
                );
                problems.push(
                    Problem::new("preempt-count", message)
                        .at(self.guest.image.span, "this kernel")
                        .at(asked, "asks for its `preempt_count`")
                        .help(no.help),
                );
                None
            }
        }
    }
}

/// Recognises the image and checks that it fits the guest's kind.
fn inspect(guest: &Guest, bytes: &[u8], problems: &mut Vec<Problem>) -> Option<Image> {
    let header = LinuxHeader::parse(bytes);
    let size = bytes.len() as u64;
    let refuse = |what: &str, help: &str| {
        let message = format!("the image of guest \"{}\" {what}", guest.name.value);
        Problem::new("image", message)
            .at(guest.image.span, "this file")
            .help(help)
    };
    let problem = match guest.kind.value {
        Kind::Raw => return Some(Image::Flat { size, header }),
        Kind::Linux if header.is_some() => match pe::needed_size(bytes) {
            Some(needed) if needed > size => refuse(
                &format!("is cut off: it should have {needed} bytes, and has {size}"),
                "copy or build it again",
            ),
            _ => return Some(Image::Flat { size, header }),
        },
        Kind::Linux if elf::is_elf(bytes) => refuse(
            "is an ELF file, not a Linux Image",
            "use arch/arm64/boot/Image in place of vmlinux, or set kind = \"elf\"",
        ),
        Kind::Linux => refuse(
            "has no Linux Image header (\"ARM\\x64\" at byte 56)",
            "use an arm64 Image; it may be gzip-compressed",
        ),
        Kind::Elf => match elf::inspect(bytes) {
            Ok(image) => return Some(image),
            Err(fault) => refuse(&fault.what, &fault.help),
        },
    };
    problems.push(problem);
    None
}
