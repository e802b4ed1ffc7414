// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writes the files that a user names: each in one step, so that no program can read half of it, and an interrupted or failed write
//! leaves the old one.
//!
//! A file that is there keeps its mode, and a link to it stays. What is no regular file cannot be replaced, and is written where it is.

use signal_hook::consts::SIGXFSZ;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use tempfile::NamedTempFile;

/// The mode of new files, of which the umask takes bits away.
const NEW: u32 = 0o666;
/// The bits of a mode that a new file takes over.
const MODE: u32 = 0o777;
/// Most links in a row, as in Linux.
const MAX_LINKS: usize = 40;

/// How a file is written.
enum Way {
    /// Another one takes the place of this one, which has that mode if it is there.
    Replace(PathBuf, Option<u32>),
    /// It is a device, a pipe, or an open file of a process.
    InPlace,
}

/// Writes all of a file.
///
/// # Errors
///
/// Why it cannot be written; it is then as it was, unless it is a device or a pipe.
pub fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    match way(path)? {
        Way::Replace(target, mode) => {
            let file = pending(&target, mode.unwrap_or(NEW), bytes)?;
            if let Some(mode) = mode {
                // The umask has taken bits away.
                file.as_file()
                    .set_permissions(Permissions::from_mode(mode))?;
            }
            file.persist(target).map_err(|error| error.error)?;
            Ok(())
        }
        Way::InPlace => {
            let is_file = fs::metadata(path)?.is_file();
            // An open file is appended to, so what other programs have written to it stays. To a block device nothing can be appended.
            let mut file = OpenOptions::new().append(is_file).write(true).open(path)?;
            file.write_all(bytes)
        }
    }
}

/// Whether a file could be written now; it is not.
///
/// # Errors
///
/// Why not.
pub fn check(path: &Path) -> io::Result<()> {
    match way(path)? {
        Way::Replace(target, _) => pending(&target, NEW, b"").map(drop),
        Way::InPlace => Ok(()),
    }
}

/// A whole file that is still to get its name, `target`. Without it, it is removed. It lies in the same folder under a name that
/// cannot be guessed.
///
/// # Errors
///
/// It cannot be written.
pub fn pending(target: &Path, mode: u32, bytes: &[u8]) -> io::Result<NamedTempFile<File>> {
    let folder = match target.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    // At the largest size of a file (ulimit -f) a write is to fail: this signal would end the process, and leave the file.
    let _ = signal_hook::flag::register(SIGXFSZ, Arc::<AtomicBool>::default());
    let create = |path: &Path| {
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(mode).open(path)
    };
    let mut file = tempfile::Builder::new()
        .prefix(".spm-")
        .make_in(folder, create)?;
    file.as_file_mut().write_all(bytes)?;
    Ok(file)
}

fn way(path: &Path) -> io::Result<Way> {
    match fs::metadata(path) {
        Ok(it) if it.is_dir() => Err(ErrorKind::IsADirectory.into()),
        Ok(it) if it.is_file() && !is_descriptor(path) => {
            let mode = it.permissions().mode() & MODE;
            Ok(Way::Replace(fs::canonicalize(path)?, Some(mode)))
        }
        Ok(_) => Ok(Way::InPlace),
        Err(error) if error.kind() == ErrorKind::NotFound => match fs::read_link(path) {
            Ok(target) => {
                let target = target.display();
                let message = format!("it is a link to {target}, which is not there");
                Err(io::Error::new(ErrorKind::NotFound, message))
            }
            Err(_) => Ok(Way::Replace(path.to_owned(), None)),
        },
        Err(error) => Err(error),
    }
}

/// Whether a path leads to an open file, as /dev/stdout and /dev/fd/3 do: its writer would not see a file that takes its place.
fn is_descriptor(path: &Path) -> bool {
    let mut path = path.to_owned();
    for _ in 0..MAX_LINKS {
        let folder = path.parent().unwrap_or(Path::new(""));
        let folder = fs::canonicalize(Path::new(".").join(folder));
        if folder.is_ok_and(|folder| folder.starts_with("/proc")) {
            return true;
        }
        match fs::read_link(&path) {
            Ok(target) => path = path.parent().unwrap_or(Path::new("")).join(target),
            Err(_) => break,
        }
    }
    false
}
