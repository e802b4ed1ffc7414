// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files for boots in which a guest shares a disk and a network card, and programs of the host that look at them.

use crate::files;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The shared disk and what the other Linux downloads, in the folder of the boot.
pub struct SharedFiles {
    /// The disk.
    pub disk: PathBuf,
    /// Arguments for the scenario that downloads it.
    pub download: String,
}

/// What a program of the host printed. It must succeed.
pub fn output(program: &str, arguments: &[&str]) -> String {
    // Where those of file systems are; not every user's path has it.
    let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
    let mut command = Command::new(program);
    command.args(arguments).env("PATH", path);
    let output = command.output();
    let output = output.unwrap_or_else(|error| panic!("cannot start {program}: {error}"));
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    assert!(
        output.status.success(),
        "{program} {arguments:?}: {}\n{text}",
        output.status
    );
    text
}

/// A path, for a command line.
pub fn text(path: &Path) -> &str {
    path.to_str().expect("a path of plain characters")
}

impl SharedFiles {
    /// A copy of the root file system, and a file of `bytes` for the download.
    pub fn new(folder: &Path, bytes: u32) -> Self {
        let disk = folder.join("root.ext4");
        let original = files::guest("linux/root.ext4");
        output("cp", &["--sparse=always", text(&original), text(&disk)]);
        let tftp = folder.join("tftp");
        let blob = tftp.join("blob");
        let content: Vec<u8> = (0..bytes)
            .map(|n| (n.wrapping_mul(n) >> 7) as u8 ^ (n >> 16) as u8)
            .collect();
        std::fs::create_dir_all(&tftp)
            .and_then(|()| std::fs::write(&blob, content))
            .unwrap_or_else(|error| panic!("cannot write {}: {error}", blob.display()));
        let sum = output("sha256sum", &[text(&blob)]);
        let sum = sum.split_whitespace().next().unwrap_or_default();
        Self {
            disk,
            download: format!("file=blob,sha256={sum}"),
        }
    }
}
