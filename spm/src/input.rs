// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads the files that a user names: regular files up to a size, so that neither a device nor a FIFO makes `spm` wait or takes all
//! memory.

use rustix::fs::OFlags;
use rustix::io::Errno;
use spumone_config::units;
use std::fmt;
use std::fs::{self, File, FileType};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

/// Largest description and board file in bytes; the project's own have less than 8 KiB.
pub const MAX_TEXT: u64 = 64 << 10;

/// How the files of a system are read: all bytes of the file at a path, which has at most so many. [`read`] reads the disk.
pub type Files<'a> = dyn Fn(&Path, u64) -> Result<Vec<u8>, Unreadable> + 'a;

/// Why a file was not read.
#[derive(Debug)]
pub enum Unreadable {
    /// It is not a regular file: what it is instead.
    NoFile(&'static str),
    /// It has more bytes than this.
    TooLarge(u64),
    /// The system refuses it.
    Io(io::Error),
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoFile(what) => write!(f, "it is {what}, not a file"),
            Self::TooLarge(limit) => write!(f, "it has more than {}", units::size(*limit)),
            Self::Io(error) => error.fmt(f),
        }
    }
}

impl Unreadable {
    /// Whether there is no such file.
    pub fn is_missing(&self) -> bool {
        use io::ErrorKind::{NotADirectory, NotFound};
        matches!(self, Self::Io(error) if matches!(error.kind(), NotFound | NotADirectory))
    }

    /// Whether the path names something else than a regular file, or a file that this user may not read.
    pub fn is_out_of_reach(&self) -> bool {
        let is_loop = |error: &io::Error| error.raw_os_error() == Some(Errno::LOOP.raw_os_error());
        match self {
            Self::NoFile(_) => true,
            Self::TooLarge(_) => false,
            Self::Io(error) => error.kind() == io::ErrorKind::PermissionDenied || is_loop(error),
        }
    }
}

impl From<io::Error> for Unreadable {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Bytes of a file that say what it is, for [`read_if`].
const BEGINNING: usize = 64;

/// Reads the regular file at `path`, which has at most `limit` bytes.
pub fn read(path: &Path, limit: u64) -> Result<Vec<u8>, Unreadable> {
    let all = read_if(path, limit, |_| true)?;
    Ok(all.unwrap_or_default())
}

/// The same, if the first bytes of the file are as `is_right` says; else `None`, and the rest is not read.
pub fn read_if(
    path: &Path,
    limit: u64,
    is_right: impl FnOnce(&[u8]) -> bool,
) -> Result<Option<Vec<u8>>, Unreadable> {
    // Before it is opened: that may have an effect on a device.
    let metadata = fs::metadata(path)?;
    if let Some(what) = other_than_file(metadata.file_type()) {
        return Err(Unreadable::NoFile(what));
    }
    if metadata.len() > limit {
        return Err(Unreadable::TooLarge(limit));
    }
    // Some files of /proc wait for more. In a file on a disk this has no effect.
    let nonblocking = OFlags::NONBLOCK.bits() as i32;
    let mut options = File::options();
    let mut file = options.read(true).custom_flags(nonblocking).open(path)?;
    let mut bytes = Vec::new();
    append(file.by_ref().take(BEGINNING as u64), limit, &mut bytes)?;
    if !is_right(&bytes) {
        return Ok(None);
    }
    // At once: a vector that grows takes twice its size. Files of /proc say that they are empty.
    let room = usize::try_from(metadata.len()).unwrap_or(usize::MAX);
    bytes
        .try_reserve_exact(room.saturating_add(1))
        .map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))?;
    let left = limit.saturating_sub(bytes.len() as u64);
    append(file, left, &mut bytes).map_err(|error| match error {
        Unreadable::TooLarge(_) => Unreadable::TooLarge(limit),
        error => error,
    })?;
    Ok(Some(bytes))
}

/// Reads a text file of at most [`MAX_TEXT`] bytes.
pub fn text(files: &Files, path: &Path) -> Result<String, Unreadable> {
    let invalid = |error| io::Error::new(io::ErrorKind::InvalidData, error);
    let bytes = files(path, MAX_TEXT)?;
    String::from_utf8(bytes).map_err(|error| invalid(error).into())
}

/// Appends all of `input`, which has at most `limit` bytes.
pub fn append(input: impl Read, limit: u64, bytes: &mut Vec<u8>) -> Result<(), Unreadable> {
    let read = input.take(limit.saturating_add(1)).read_to_end(bytes)?;
    match read as u64 > limit {
        true => Err(Unreadable::TooLarge(limit)),
        false => Ok(()),
    }
}

fn other_than_file(kind: FileType) -> Option<&'static str> {
    let kinds = [
        (kind.is_dir(), "a folder"),
        (kind.is_fifo(), "a FIFO"),
        (kind.is_socket(), "a socket"),
        (kind.is_char_device(), "a device"),
        (kind.is_block_device(), "a device"),
    ];
    kinds.into_iter().find(|(is, _)| *is).map(|(_, what)| what)
}

#[cfg(test)]
// Tests may unwrap.
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_up_to_its_limit() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("five");
        fs::write(&path, b"12345").unwrap();
        assert_eq!(read(&path, 5).unwrap(), b"12345");
        assert!(matches!(read(&path, 4), Err(Unreadable::TooLarge(4))));
        assert_eq!(read(&path, u64::MAX).unwrap(), b"12345");
    }

    #[test]
    fn only_regular_files_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let what = |path: &Path| match read(path, 1) {
            Err(Unreadable::NoFile(what)) => what,
            other => panic!("{other:?}"),
        };
        assert_eq!(what(folder.path()), "a folder");
        assert_eq!(what(Path::new("/dev/zero")), "a device");
        let fifo = folder.path().join("fifo");
        let made = std::process::Command::new("mkfifo").arg(&fifo).status();
        assert!(made.unwrap().success());
        assert_eq!(what(&fifo), "a FIFO");
    }

    #[test]
    fn the_rest_of_a_file_of_another_kind_is_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sparse");
        // More than there is memory.
        File::create(&path).unwrap().set_len(1 << 42).unwrap();
        let read = read_if(&path, u64::MAX, |bytes| bytes != [0; BEGINNING]);
        assert!(matches!(read, Ok(None)));
    }

    /// Who may read the kernel's messages waits for the next one otherwise.
    #[test]
    fn no_file_is_waited_for() {
        assert!(read(Path::new("/proc/kmsg"), 0).is_err());
    }

    #[test]
    fn a_text_is_utf_8() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("text");
        fs::write(&path, b"board \xff").unwrap();
        assert!(
            super::text(&read, &path)
                .unwrap_err()
                .to_string()
                .contains("utf-8")
        );
    }
}
