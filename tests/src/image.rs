// SPDX-License-Identifier: MIT OR Apache-2.0
//! A built image, to be damaged before it is booted.

use spumone_config::packed::{BundleHeader, MAGIC, Seal, System};
use std::ops::Range;

/// An image, and the system in it.
pub struct Image {
    bytes: Vec<u8>,
    bundle: usize,
    /// Bytes of the bundle that the seal covers.
    sealed: usize,
    /// The system as it was built.
    pub system: System,
}

impl Image {
    /// Takes an image apart.
    pub(crate) fn new(bytes: Vec<u8>) -> Self {
        let is_bundle = |at: &usize| bytes[*at..].starts_with(&MAGIC);
        let bundle = (0..bytes.len()).step_by(4096).find(is_bundle);
        let bundle = bundle.expect("an image has a bundle at the start of a page");
        let header = BundleHeader::from_bytes(&bytes[bundle..]).expect("it has a header");
        let sealed = header.sealed_len().expect("its length is right");
        let encoded = &bytes[bundle + BundleHeader::SIZE..bundle + sealed];
        let system = postcard::from_bytes(encoded).expect("its system can be read");
        Self {
            bytes,
            bundle,
            sealed,
            system,
        }
    }

    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// Bytes of the description, behind the part of the header that says so.
    pub fn description(&self) -> Range<u64> {
        16..self.sealed as u64
    }

    /// Changes one bit of the byte at this offset of the bundle.
    pub fn flip(&mut self, offset: u64) {
        self.bytes[self.bundle + offset as usize] ^= 0x10;
    }

    /// Removes the signature.
    pub fn unsign(&mut self) {
        let seal = &mut self.bytes[self.bundle + self.sealed..][..Seal::SIZE];
        let signature = seal.len() - Seal::SIGNATURE;
        seal[signature..].fill(0);
    }
}
