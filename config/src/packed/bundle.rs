// SPDX-License-Identifier: MIT OR Apache-2.0
//! What surrounds the packed system: header and seal of the bundle, hashes, and the key in the hypervisor's program.

#[cfg(doc)]
use super::System;
use crate::types::PhysAddr;
use serde::{Deserialize, Serialize};

/// First eight bytes of a bundle.
pub const MAGIC: [u8; 8] = *b"SPUMONE\0";
/// Raised whenever the packed form changes: one release must build and read an image.
pub const FORMAT_VERSION: u32 = 19;
/// Bytes kept for header, system and seal at the start of the bundle. What the packed form can hold at most is smaller; a test says so.
pub const DESCRIPTION_ROOM: u64 = 48 << 10;

/// The header at `bundle_start`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BundleHeader {
    /// Bytes of the postcard-encoded [`System`] that follows the header.
    pub system_len: u32,
    /// Bytes of the whole bundle, header and payloads included.
    pub total_len: u64,
    /// Where the first byte of the bundle must lie: the translation tables hold addresses.
    pub address: PhysAddr,
}

impl BundleHeader {
    /// Size of the encoded header in bytes.
    pub const SIZE: usize = 32;

    /// How many bytes from the start of the bundle on the [`Seal`] covers, which follows them: header and system. `None` if there is no
    /// room for so many: such a header does not make a hypervisor read further.
    pub fn sealed_len(&self) -> Option<usize> {
        let sealed = Self::SIZE as u64 + u64::from(self.system_len);
        let is_within = sealed + Seal::SIZE as u64 <= DESCRIPTION_ROOM;
        is_within.then_some(sealed as usize)
    }

    /// The header in the form of the image.
    pub fn to_bytes(self) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        bytes[0..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.system_len.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.total_len.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.address.0.to_le_bytes());
        bytes
    }

    /// Reads a header; `None` if magic or version differ, or bytes are missing.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let word = |at: usize| -> Option<u32> {
            Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
        };
        let long = |at| Some(u64::from(word(at)?) | u64::from(word(at + 4)?) << 32);
        if bytes.get(0..8)? != MAGIC || word(8)? != FORMAT_VERSION {
            return None;
        }
        Some(Self {
            system_len: word(12)?,
            total_len: long(16)?,
            address: PhysAddr(long(24)?),
        })
    }
}

/// A SHA-256 (FIPS 180-4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hash(pub [u8; Self::SIZE]);

impl Hash {
    /// Bytes of a hash.
    pub const SIZE: usize = 32;
}

/// What says whether header and system are those that the tool wrote. It follows them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seal {
    /// The hash of header and system. The system has the hashes of all else.
    pub hash: Hash,
    /// The Ed25519 signature (RFC 8032) of header and system; all zero if they are not signed.
    pub signature: [u8; Self::SIGNATURE],
}

impl Seal {
    /// Bytes of a signature.
    pub const SIGNATURE: usize = 64;
    /// Bytes of the encoded seal.
    pub const SIZE: usize = Hash::SIZE + Self::SIGNATURE;

    /// The seal in the form of the image.
    pub fn to_bytes(self) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        bytes[..Hash::SIZE].copy_from_slice(&self.hash.0);
        bytes[Hash::SIZE..].copy_from_slice(&self.signature);
        bytes
    }

    /// Reads a seal; `None` if bytes are missing.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (hash, rest) = bytes.split_first_chunk()?;
        Some(Self {
            hash: Hash(*hash),
            signature: *rest.first_chunk()?,
        })
    }

    /// Whether header and system are signed.
    pub fn is_signed(&self) -> bool {
        self.signature != [0; Self::SIGNATURE]
    }
}

/// The key that a hypervisor trusts, and the lowest version that it accepts. `spm build --sign` writes it into the hypervisor's program, at the symbol `spumone_trust`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Trust {
    /// The Ed25519 public key with which descriptions are signed; all zero: unsigned ones are accepted, too.
    pub key: [u8; Self::KEY],
    /// The lowest version of a signed description that is accepted.
    pub lowest_version: u32,
}

impl Trust {
    /// Bytes of a public key.
    pub const KEY: usize = 32;
    /// Bytes of the encoded form: key, version in little endian, and four zeros.
    pub const SIZE: usize = Self::KEY + 8;

    /// The form in the hypervisor's program.
    pub fn to_bytes(self) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        bytes[..Self::KEY].copy_from_slice(&self.key);
        bytes[Self::KEY..Self::KEY + 4].copy_from_slice(&self.lowest_version.to_le_bytes());
        bytes
    }

    /// Reads that form.
    pub fn from_bytes(bytes: [u8; Self::SIZE]) -> Self {
        let mut trust = Self::default();
        let (key, rest) = bytes.split_at(Self::KEY);
        trust.key.copy_from_slice(key);
        if let Some(version) = rest.first_chunk() {
            trust.lowest_version = u32::from_le_bytes(*version);
        }
        trust
    }

    /// Whether there is a key, so that only signed descriptions are accepted.
    pub fn has_key(&self) -> bool {
        self.key != [0; Self::KEY]
    }
}

/// A range of the bundle, and its hash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// Offset of the first byte from `bundle_start`.
    pub offset: u64,
    /// Size in bytes.
    pub size: u64,
    /// The hash of its bytes.
    pub hash: Hash,
}
