// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads the files of a guest and reports what is wrong with them.

mod btf;
mod elf;
mod pe;
mod preempt_count;

use crate::device_tree;
use flate2::read::GzDecoder;
use spumone_config::description::{Guest, Kind, Scheduler};
use spumone_config::image::{GuestFiles, Image, LinuxHeader};
use spumone_config::problem::{Problem, Spanned};
use std::io::{ErrorKind, Read};
use std::path::Path;

/// First bytes of a gzip file (RFC 1952).
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

/// The content of a guest's files.
pub struct Contents {
    /// What their placement needs.
    pub files: GuestFiles,
    /// The image, unpacked.
    pub image: Vec<u8>,
    /// The initial ramdisk.
    pub initrd: Option<Vec<u8>>,
    /// The user's own device tree.
    pub dtb: Option<Vec<u8>>,
}

/// Reads the files of `guest`; `None` if one of them is refused.
pub fn read(
    guest: &Guest,
    scheduler: &Scheduler,
    folder: &Path,
    problems: &mut Vec<Problem>,
) -> Option<Contents> {
    let image = file(guest, "image", &guest.image, folder, problems)
        .and_then(|bytes| unpack(guest, bytes, problems))
        .and_then(|bytes| {
            let facts = inspect(guest, &bytes, problems)?;
            let preempt_count = preempt_count(guest, scheduler, &bytes, problems)?;
            Some((facts, preempt_count, bytes))
        });
    let initrd = optional(guest, "initrd", guest.initrd.as_ref(), folder, problems);
    let dtb = optional(guest, "dtb", guest.dtb.as_ref(), folder, problems);
    let blob = dtb.as_ref().and_then(Option::as_deref);
    if let Some(problem) = blob.and_then(|blob| device_tree::check_user_blob(blob, guest)) {
        problems.push(problem);
        return None;
    }
    let ((facts, preempt_count, image), initrd, dtb) = (image?, initrd?, dtb?);
    let size = |bytes: &Vec<u8>| bytes.len() as u64;
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

/// A file that the description may leave out: `None` only if it is refused.
fn optional(
    guest: &Guest,
    key: &str,
    path: Option<&Spanned<String>>,
    folder: &Path,
    problems: &mut Vec<Problem>,
) -> Option<Option<Vec<u8>>> {
    match path {
        None => Some(None),
        Some(path) => file(guest, key, path, folder, problems).map(Some),
    }
}

fn file(
    guest: &Guest,
    key: &str,
    path: &Spanned<String>,
    folder: &Path,
    problems: &mut Vec<Problem>,
) -> Option<Vec<u8>> {
    let full = folder.join(&path.value);
    let guest = &guest.name.value;
    let problem = match std::fs::read(&full) {
        Ok(bytes) if bytes.is_empty() => Problem::new(
            "empty-file",
            format!("the {key} of guest \"{guest}\" is an empty file"),
        )
        .at(path.span, full.display().to_string())
        .help("build it again"),
        Ok(bytes) => return Some(bytes),
        Err(error) => {
            let at = |code, what: &str| {
                Problem::new(code, format!("the {key} of guest \"{guest}\" {what}"))
                    .at(path.span, full.display().to_string())
            };
            match error.kind() {
                ErrorKind::NotFound => at("missing-file", "is not there").help(
                    "build or fetch it first (`make guests` for the project's own), or correct \
                     the path: it counts from the description's folder",
                ),
                _ if full.is_dir() => {
                    at("is-a-folder", "is a folder").help("name the file inside it")
                }
                _ => at("unreadable-file", &format!("cannot be read: {error}"))
                    .help("correct its permissions"),
            }
        }
    };
    problems.push(problem);
    None
}

/// The place of the kernel's count of what holds off preemption, if it is to be read: `None` only if it cannot be read.
fn preempt_count(
    guest: &Guest,
    scheduler: &Scheduler,
    image: &[u8],
    problems: &mut Vec<Problem>,
) -> Option<Option<u32>> {
    let Some(asked) = scheduler
        .reads_preempt_count()
        .filter(|_| guest.is_smp_linux())
    else {
        return Some(None);
    };
    match preempt_count::offset(image) {
        Ok(offset) => Some(Some(offset)),
        Err(no) => {
            let message = format!("the kernel of guest \"{}\" {}", guest.name.value, no.what);
            problems.push(
                Problem::new("preempt-count", message)
                    .at(guest.image.span, "this kernel")
                    .at(asked, "asks for its `preempt_count`")
                    .help(no.help),
            );
            None
        }
    }
}

/// Unpacks a gzip-compressed image (Debian and others ship `vmlinuz` in this form).
fn unpack(guest: &Guest, bytes: Vec<u8>, problems: &mut Vec<Problem>) -> Option<Vec<u8>> {
    if guest.kind.value != Kind::Linux || !bytes.starts_with(&GZIP_MAGIC) {
        return Some(bytes);
    }
    let mut unpacked = Vec::new();
    match GzDecoder::new(bytes.as_slice()).read_to_end(&mut unpacked) {
        Ok(_) => Some(unpacked),
        Err(error) => {
            let message = format!(
                "the image of guest \"{}\" does not unpack: {error}",
                guest.name.value
            );
            problems.push(
                Problem::new("image", message)
                    .at(guest.image.span, "damaged gzip file")
                    .help("fetch or build it again"),
            );
            None
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
