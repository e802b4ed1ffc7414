// SPDX-License-Identifier: MIT OR Apache-2.0
//! The readers: for each kind of file that a user names, what reads it. First the narrowest function, then, if that accepts the file,
//! a whole system with it, from the description to the image.

use crate::images;
use crate::user_files::{borrowed, files};
use spm::fuzz::{self, DESCRIPTION};
use std::sync::OnceLock;

/// What is fuzzed.
pub struct Reader {
    /// Its name in `FUZZ_TARGET`.
    pub name: &'static str,
    /// Whether its files are TOML.
    pub is_text: bool,
    /// Reads a file; whether it is accepted.
    pub read: fn(&[u8]) -> bool,
    /// Undamaged files, which are accepted.
    pub good: fn() -> Vec<Vec<u8>>,
}

/// All readers.
pub const READERS: &[Reader] = &[
    Reader {
        name: "description",
        is_text: true,
        read: |file| all_with(DESCRIPTION, file),
        good: || vec![good(DESCRIPTION).into()],
    },
    Reader {
        name: "board",
        is_text: true,
        read: |file| all_with(BOARD, file),
        good: || vec![good(BOARD).into()],
    },
    Reader {
        name: "elf",
        is_text: false,
        read: |file| fuzz::is_elf(file) && one("kind = \"elf\"", &[(IMAGE, file)]),
        good: || vec![good("rt.elf").into()],
    },
    Reader {
        name: "linux",
        is_text: false,
        read: |file| one("kind = \"linux\"", &[(IMAGE, file)]),
        good: || vec![good("Image")[..SHORT].into()],
    },
    Reader {
        name: "pe",
        is_text: false,
        read: |file| fuzz::has_pe_size(file) && one("kind = \"linux\"", &[(IMAGE, file)]),
        good: || vec![good("Image")[..SHORT].into()],
    },
    Reader {
        name: "btf",
        is_text: false,
        read: |types| {
            fuzz::has_preempt_count(types) && {
                // As in a kernel, which has other things before and behind.
                let image = images::linux_image_with(&types[..types.len().min(0x8000)]);
                one(COUNTED, &[(IMAGE, &image)]);
                true
            }
        },
        good: || vec![crate::btf::kernel(true).bytes()],
    },
    Reader {
        name: "gzip",
        is_text: false,
        read: |file| one("kind = \"linux\"", &[(IMAGE, file)]),
        good: || vec![good("Image.gz").into()],
    },
    Reader {
        name: "tree",
        is_text: false,
        read: |file| {
            let elf = good("rt.elf");
            one(
                "kind = \"elf\"\ndtb = \"dtb\"\nbootargs = \"a\"",
                &[(IMAGE, elf), ("dtb", file)],
            )
        },
        good: || vec![good("rt.dtb").into(), generated_tree()],
    },
    Reader {
        name: "initrd",
        is_text: false,
        read: |file| {
            let kernel = &good("Image")[..SHORT];
            one(
                "kind = \"linux\"\ninitrd = \"initrd\"",
                &[(IMAGE, kernel), ("initrd", file)],
            )
        },
        good: || vec![good("initrd.cpio").into()],
    },
    Reader {
        name: "raw",
        is_text: false,
        read: |file| one("kind = \"raw\"", &[(IMAGE, file)]),
        good: || vec![good("flat.bin").into()],
    },
    Reader {
        name: "hypervisor",
        is_text: false,
        read: fuzz::is_hypervisor,
        good: || vec![images::hypervisor().write()],
    },
    Reader {
        name: "bundle",
        is_text: false,
        read: fuzz::is_verified,
        good: || {
            let description = description("kind = \"raw\"");
            let files = [
                (DESCRIPTION, description.as_bytes()),
                (BOARD, good(BOARD)),
                (IMAGE, good("flat.bin")),
            ];
            vec![fuzz::image(&files).expect("the system is a good one")]
        },
    },
    Reader {
        name: "key",
        is_text: false,
        read: |file| std::str::from_utf8(file).is_ok_and(fuzz::is_secret_key),
        good: || vec![format!("spumone-secret-key {}\n", "5a".repeat(32)).into()],
    },
];

/// The board file of all systems.
const BOARD: &str = "boards/b.toml";
/// The image of the guest of a small system.
const IMAGE: &str = "image";
/// Bytes of a Linux image which has all headers, and little behind them.
const SHORT: usize = 0x200;
/// The keys of a Linux guest with which `spm` reads the type information (BTF) of the kernel.
const COUNTED: &str = "kind = \"linux\"\ncores = [1]\n\
    [scheduler]\npolicy = \"delay\"\ndelay-while = \"preempt-count\"";

/// Makes the files of the undamaged system.
pub fn make_files() -> &'static [(&'static str, Vec<u8>)] {
    static FILES: OnceLock<Vec<(&str, Vec<u8>)>> = OnceLock::new();
    FILES.get_or_init(files)
}

/// An undamaged file.
pub fn good(name: &str) -> &'static [u8] {
    let file = make_files().iter().find(|(it, _)| *it == name);
    &file.expect("the system has this file").1
}

/// The large system with one file replaced.
fn all_with(name: &str, file: &[u8]) -> bool {
    let mut files = borrowed(make_files());
    for it in &mut files {
        if it.0 == name {
            it.1 = file;
        }
    }
    fuzz::system(&files).is_ok()
}

/// A small system: one guest with these keys, and these files; and a system of eight such guests, which name the same files.
fn one(guest: &str, files: &[(&str, &[u8])]) -> bool {
    let [one, _] = [1, 8].map(|count| {
        let description = guests(guest, count);
        let mut all = vec![(DESCRIPTION, description.as_bytes()), (BOARD, good(BOARD))];
        all.extend(files);
        fuzz::system(&all).is_ok()
    });
    one
}

/// The tree that a guest gets if it has none of its own: more nodes and properties than the small one has.
fn generated_tree() -> Vec<u8> {
    let description = description("kind = \"elf\"");
    let elf = good("rt.elf");
    let files = [
        (DESCRIPTION, description.as_bytes()),
        (BOARD, good(BOARD)),
        (IMAGE, elf),
    ];
    fuzz::tree(&files).expect("the system is a good one")
}

fn description(guest: &str) -> String {
    guests(guest, 1)
}

/// The description of so many guests with these keys, behind which a table of the whole system may follow.
fn guests(guest: &str, count: usize) -> String {
    let (keys, tables) = guest.split_once("\n[").unwrap_or((guest, ""));
    let mut text = "[board]\nname = \"b\"\ncores = 2\nmemory = \"512MiB\"\n".to_owned();
    if !tables.is_empty() {
        text += &format!("[{tables}\n");
    }
    for number in 0..count {
        text += &format!(
            "[[guest]]\nname = \"g{number}\"\nimage = \"{IMAGE}\"\nmemory = \"{MEMORY}\"\nvcpus = [0]\npriority = 1\n{keys}\n"
        );
    }
    text
}

/// Memory of the guest of a small system; the kernel says that it takes 24 MiB of it.
const MEMORY: &str = "28MiB";
