// SPDX-License-Identifier: MIT OR Apache-2.0
//! SHA-256, as hexadecimal text.

use crate::failure::Failure;
use sha2::{Digest, Sha256};
use std::fmt::Write;
use std::io::Read;
use std::path::Path;

/// Bytes read at once.
const CHUNK: usize = 1 << 20;

/// The hash of bytes, as 64 hexadecimal digits.
pub fn bytes(bytes: &[u8]) -> String {
    text(Sha256::new().chain_update(bytes))
}

/// The hash of a file.
///
/// # Errors
///
/// The file cannot be read.
pub fn file(path: &Path) -> Result<String, Failure> {
    let unreadable = |error| Failure::io("read", path, &error);
    let mut file = std::fs::File::open(path).map_err(unreadable)?;
    let mut chunk = vec![0; CHUNK];
    let mut hash = Sha256::new();
    loop {
        let length = file.read(&mut chunk).map_err(unreadable)?;
        if length == 0 {
            return Ok(text(hash));
        }
        hash.update(&chunk[..length]);
    }
}

fn text(hash: Sha256) -> String {
    let mut text = String::new();
    for byte in hash.finalize() {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_known_value_of_the_standard() {
        // FIPS 180-2, appendix B.1.
        let expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(bytes(b"abc"), expected);
    }

    #[test]
    fn a_file_hashes_as_its_bytes() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let data = vec![7; CHUNK + 1];
        std::fs::write(file.path(), &data).unwrap();
        assert_eq!(super::file(file.path()).unwrap(), bytes(&data));
    }
}
