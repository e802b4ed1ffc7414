// SPDX-License-Identifier: MIT OR Apache-2.0
//! The bytes of all files that guests name. Each path is read, unpacked and searched once, however many guests name it, and
//! what all of them take together is bounded.

use super::preempt_count::{self, NoCount};
use crate::input::{self, Files, Unreadable};
use flate2::bufread::GzDecoder;
use spumone_config::units::{GIB, MIB};
use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// First bytes of a gzip file (RFC 1952).
pub const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];
/// A gzip file may unpack to so many times its size: kernels unpack to three times theirs, and deflate permits a thousand times.
pub const MOST_TIMES: u64 = 5;
/// All gzip files of a system together may unpack to so many bytes more, for small ones.
pub const MOST_MORE: u64 = 8 * MIB;
/// Most bytes that the files of all guests may have together, unpacked.
pub const MOST_TOGETHER: u64 = 2 * GIB;

/// The bytes of a file, which guests may share.
pub type Bytes = Arc<Vec<u8>>;

/// Why the bytes of a file are not there.
#[derive(Clone, Debug)]
pub enum Refused {
    /// It cannot be read, or has more bytes than it may.
    Unreadable(Arc<Unreadable>),
    /// The files of all guests have more than [`MOST_TOGETHER`].
    Together,
    /// It is a gzip file that unpacks to more than its size permits.
    Swells,
    /// It is a gzip file that does not unpack.
    Damaged(Arc<str>),
}

/// The files that were read so far.
pub struct Store<'a> {
    files: &'a Files<'a>,
    /// Bytes that all further files may have.
    left: u64,
    /// Bytes by which all further gzip files may exceed [`MOST_TIMES`].
    more: u64,
    /// With the limit up to which each was read.
    read: HashMap<PathBuf, (u64, Result<Bytes, Refused>)>,
    unpacked: HashMap<PathBuf, Result<Bytes, Refused>>,
    counts: HashMap<PathBuf, Result<u32, NoCount>>,
}

impl<'a> Store<'a> {
    /// No file was read yet; `files` reads them.
    pub fn new(files: &'a Files<'a>) -> Self {
        Self {
            files,
            left: MOST_TOGETHER,
            more: MOST_MORE,
            read: HashMap::new(),
            unpacked: HashMap::new(),
            counts: HashMap::new(),
        }
    }

    /// The bytes of the file at `path`, of which there are at most `limit`.
    pub fn bytes(&mut self, path: &Path, limit: u64) -> Result<Bytes, Refused> {
        let too_large = || Refused::Unreadable(Arc::new(Unreadable::TooLarge(limit)));
        if let Some((up_to, known)) = self.read.get(path) {
            match known {
                Ok(bytes) if bytes.len() as u64 > limit => return Err(too_large()),
                // It may fit now.
                Err(Refused::Unreadable(why))
                    if matches!(**why, Unreadable::TooLarge(_)) && *up_to < limit => {}
                known => return known.clone(),
            }
        }
        let result = match (self.files)(path, limit.min(self.left)) {
            Ok(bytes) => {
                self.left = self.left.saturating_sub(bytes.len() as u64);
                Ok(Arc::new(bytes))
            }
            Err(Unreadable::TooLarge(_)) if self.left < limit => Err(Refused::Together),
            Err(error) => Err(Refused::Unreadable(Arc::new(error))),
        };
        self.read.insert(path.to_owned(), (limit, result.clone()));
        result
    }

    /// The content of the gzip file `packed`, which was read from `path`.
    pub fn unpacked(&mut self, path: &Path, packed: &[u8]) -> Result<Bytes, Refused> {
        if let Some(known) = self.unpacked.get(path) {
            return known.clone();
        }
        let times = MOST_TIMES.saturating_mul(packed.len() as u64);
        let limit = times.saturating_add(self.more);
        let result = match unpack(packed, limit.min(self.left)) {
            Ok(bytes) => {
                let size = bytes.len() as u64;
                self.left = self.left.saturating_sub(size);
                self.more = self.more.saturating_sub(size.saturating_sub(times));
                Ok(Arc::new(bytes))
            }
            Err(Unreadable::TooLarge(_)) if self.left < limit => Err(Refused::Together),
            Err(Unreadable::TooLarge(_)) => Err(Refused::Swells),
            Err(error) => Err(Refused::Damaged(error.to_string().into())),
        };
        self.unpacked.insert(path.to_owned(), result.clone());
        result
    }

    /// Where the kernel `image`, which was read from `path`, counts what holds off preemption.
    pub fn preempt_count(&mut self, path: &Path, image: &[u8]) -> Result<u32, NoCount> {
        if let Some(known) = self.counts.get(path) {
            return known.clone();
        }
        let result = preempt_count::offset(image);
        self.counts.insert(path.to_owned(), result.clone());
        result
    }
}

/// The content of a gzip file, of at most `limit` bytes. Such a file may have several members, one behind the other; what follows
/// the last one is left out, as gzip(1) does.
fn unpack(mut packed: &[u8], limit: u64) -> Result<Vec<u8>, Unreadable> {
    let mut bytes = Vec::new();
    // At once: a vector that grows takes twice its size.
    let room = usize::try_from(limit).unwrap_or(usize::MAX);
    bytes
        .try_reserve_exact(room.saturating_add(1))
        .map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))?;
    while packed.starts_with(&GZIP_MAGIC) {
        let left = limit - bytes.len() as u64;
        let member = GzDecoder::new(&mut packed);
        input::append(member, left, &mut bytes).map_err(|error| match error {
            Unreadable::TooLarge(_) => Unreadable::TooLarge(limit),
            error => error,
        })?;
    }
    bytes.shrink_to_fit();
    Ok(bytes)
}

#[cfg(test)]
// Tests may unwrap.
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests {
    use super::*;
    use flate2::Compression;
    use flate2::write::GzEncoder;
    use std::cell::Cell;
    use std::io::Write;

    fn packed(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn a_path_is_read_and_unpacked_once() {
        let reads = Cell::new(0);
        let gzip = packed(b"kernel");
        let files = |_: &Path, _: u64| {
            reads.set(reads.get() + 1);
            Ok(gzip.clone())
        };
        let mut store = Store::new(&files);
        let path = Path::new("Image.gz");
        let first = store.bytes(path, 1 << 20).unwrap();
        let second = store.bytes(path, 1 << 30).unwrap();
        assert!(Arc::ptr_eq(&first, &second));
        assert_eq!(reads.get(), 1);
        let [first, second] = [(); 2].map(|()| store.unpacked(path, &first).unwrap());
        assert!(Arc::ptr_eq(&first, &second));
        assert_eq!(**first, *b"kernel");
    }

    #[test]
    fn each_guest_has_its_own_limit() {
        let files = |_: &Path, limit: u64| match limit {
            0..100 => Err(Unreadable::TooLarge(limit)),
            _ => Ok(vec![0; 100]),
        };
        let mut store = Store::new(&files);
        let is_read = |store: &mut Store, limit| match store.bytes(Path::new("a"), limit) {
            Ok(bytes) => bytes.len() == 100,
            Err(Refused::Unreadable(_)) => false,
            other => panic!("{other:?}"),
        };
        let limits = [99, 100, 99, 101];
        let read = limits.map(|limit| is_read(&mut store, limit));
        assert_eq!(read, [false, true, false, true]);
    }

    #[test]
    fn all_files_together_are_bounded() {
        let files = |_: &Path, limit: u64| match limit {
            0..=100 => Err(Unreadable::TooLarge(limit)),
            _ => Ok(vec![0; 101]),
        };
        let mut store = Store::new(&files);
        store.left = 250;
        let mut read = |path: &str| store.bytes(Path::new(path), 1000).map(|it| it.len());
        assert_eq!([read("a").unwrap(), read("b").unwrap()], [101; 2]);
        assert!(matches!(read("c"), Err(Refused::Together)));
    }

    #[test]
    fn gzip_files_share_what_they_may_have_more() {
        let gzip = packed(&vec![0; 6 << 20]);
        let files = |_: &Path, _: u64| unreachable!();
        let mut store = Store::new(&files);
        let first = store.unpacked(Path::new("a"), &gzip).unwrap();
        assert_eq!((first.len(), first.capacity()), (6 << 20, 6 << 20));
        let second = store.unpacked(Path::new("b"), &gzip);
        assert!(matches!(second, Err(Refused::Swells)));
        assert!(store.unpacked(Path::new("a"), &gzip).is_ok());
    }

    #[test]
    fn all_members_of_a_gzip_file_are_unpacked() {
        let members = [packed(b"ker"), packed(b"nel"), b"rest".to_vec()].concat();
        assert_eq!(unpack(&members, 6).unwrap(), b"kernel");
        let cut = unpack(&members, 5);
        assert!(matches!(cut, Err(Unreadable::TooLarge(5))));
        let damaged = [packed(b"ker"), GZIP_MAGIC.to_vec()].concat();
        assert!(matches!(unpack(&damaged, 9), Err(Unreadable::Io(_))));
    }
}
