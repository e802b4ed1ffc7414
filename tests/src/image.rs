// SPDX-License-Identifier: MIT OR Apache-2.0
//! A built image, to be damaged before it is booted.

use spumone_config::packed::{BundleHeader, MAGIC, Seal, System, Trust};

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

    /// Has the hypervisor believe versions from this one on, where it now believes those from `now` on.
    pub fn raise_lowest_version(&mut self, key: [u8; Trust::KEY], now: u32, lowest_version: u32) {
        let of = |lowest_version| {
            Trust {
                key,
                lowest_version,
            }
            .to_bytes()
        };
        let before = of(now);
        let places = (0..self.bundle - before.len()).step_by(4);
        let mut places = places.filter(|&at| self.bytes[at..].starts_with(&before));
        let place = places.next().expect("the hypervisor has that key");
        self.bytes[place..][..before.len()].copy_from_slice(&of(lowest_version));
    }
}
