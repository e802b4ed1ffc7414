// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether the bundle behind the hypervisor is the one that `spm build` has written, and whether it is signed with the key that this
//! hypervisor trusts. Only at start; [`load`](crate::load) verifies what is loaded into guests.

use core::fmt;
use ed25519_compact::{PublicKey, Signature};
use spumone_config::PhysAddr;
use spumone_config::packed::{BundleHeader, Hash, Part, Seal, Sections, System, Trust};

/// Why a bundle is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// There is none, or none of this release.
    NoBundle,
    /// It was made for the first address, and is at the second one.
    Misplaced(PhysAddr, PhysAddr),
    /// The description is said to be longer than any is.
    TooLong,
    /// The hash of the description is not the one in the seal.
    Description,
    /// The hypervisor has a key, and the description is not signed.
    NotSigned,
    /// The description was signed with another key, or changed since.
    Signature,
    /// The description cannot be decoded.
    Undecodable,
    /// The version of the description is the first number, and the hypervisor accepts versions from the second one on.
    OldVersion(u32, u32),
    /// It was made for another build of the hypervisor.
    OtherBuild,
    /// The guests' stage 2 tables are not those of the description.
    Stage2Tables,
    /// EL2's own tables are not those of the description.
    OwnTables,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const DAMAGED: &str = "the image is damaged, build it again with `spm build`";
        match *self {
            Self::NoBundle => f.write_str(
                "no bundle of this release behind the hypervisor: build the image with `spm build`",
            ),
            Self::Misplaced(made_for, at) => write!(
                f,
                "the bundle is made for address {made_for}, but is at {at}: build the image with this hypervisor"
            ),
            Self::TooLong => write!(f, "the header of the bundle has a wrong length: {DAMAGED}"),
            Self::Description => write!(f, "the description differs from its hash: {DAMAGED}"),
            Self::NotSigned => f.write_str(
                "the description is not signed, and this hypervisor has a key: build the image with `spm build --sign`",
            ),
            Self::Signature => f.write_str(
                "the description is not signed with the key of this hypervisor, or key or signature is damaged: build the image with `spm build --sign` and that key",
            ),
            Self::Undecodable => f.write_str(
                "the description cannot be read: build image and hypervisor from one release",
            ),
            Self::OldVersion(version, lowest) => write!(
                f,
                "the description has version {version}, and this hypervisor accepts {lowest} or higher: it may be an old image; use the newer one. Only if this one is to replace it, raise `version` and build it again"
            ),
            Self::OtherBuild => f.write_str(
                "the bundle is made for another build of the hypervisor: build the image with this hypervisor",
            ),
            Self::Stage2Tables => write!(f, "the stage 2 tables differ from their hash: {DAMAGED}"),
            Self::OwnTables => {
                write!(f, "the hypervisor's own tables differ from their hash: {DAMAGED}")
            }
        }
    }
}

/// Verifies and then decodes the description of a bundle. `bytes`: the bundle's first ones, of which all are there that a description may
/// have; `at`: where they are.
///
/// Before it has verified them, it uses no bytes but the header's length, and that only if a description may have it.
///
/// # Errors
///
/// Why the bundle is refused.
pub fn description(
    bytes: &[u8],
    at: PhysAddr,
    trust: &Trust,
    hash: impl Fn(&[u8]) -> Hash,
) -> Result<(BundleHeader, System), Refusal> {
    let header = BundleHeader::from_bytes(bytes).ok_or(Refusal::NoBundle)?;
    let sealed_len = header.sealed_len().ok_or(Refusal::TooLong)?;
    let parts = bytes.split_at_checked(sealed_len);
    let (sealed, rest) = parts.ok_or(Refusal::TooLong)?;
    let seal = Seal::from_bytes(rest).ok_or(Refusal::TooLong)?;
    // Before the signature, so that damage is not taken for another key.
    if hash(sealed) != seal.hash {
        return Err(Refusal::Description);
    }
    if trust.has_key() {
        if !seal.is_signed() {
            return Err(Refusal::NotSigned);
        }
        let signature = Signature::new(seal.signature);
        PublicKey::new(trust.key)
            .verify(sealed, &signature)
            .map_err(|_| Refusal::Signature)?;
    }
    if header.address != at {
        return Err(Refusal::Misplaced(header.address, at));
    }
    let encoded = sealed.get(BundleHeader::SIZE..).unwrap_or_default();
    let (system, rest) =
        postcard::take_from_bytes::<System>(encoded).map_err(|_| Refusal::Undecodable)?;
    if !rest.is_empty() {
        return Err(Refusal::Undecodable);
    }
    // Versions of unsigned descriptions say nothing.
    if trust.has_key() && system.version < trust.lowest_version {
        return Err(Refusal::OldVersion(system.version, trust.lowest_version));
    }
    Ok((header, system))
}

/// Verifies that a description is made for this build of the hypervisor. `system`: decoded from a verified description; `own`: where the parts of
/// this build are.
///
/// # Errors
///
/// It is made for another one.
pub fn build(system: &System, own: &Sections) -> Result<(), Refusal> {
    match system.sections == *own {
        true => Ok(()),
        false => Err(Refusal::OtherBuild),
    }
}

/// Verifies the translation tables of a description that was verified. `bytes` returns a part of the bundle, which is in it.
///
/// # Errors
///
/// Which tables are refused.
pub fn tables<'a>(
    header: &BundleHeader,
    system: &System,
    bytes: impl Fn(&Part) -> &'a [u8],
    hash: impl Fn(&[u8]) -> Hash,
) -> Result<(), Refusal> {
    for (part, refusal) in [
        (&system.stage2_pages, Refusal::Stage2Tables),
        (&system.el2_pages, Refusal::OwnTables),
    ] {
        let end = part.offset.checked_add(part.size);
        let is_inside = end.is_some_and(|end| end <= header.total_len);
        if !is_inside || hash(bytes(part)) != part.hash {
            return Err(refusal);
        }
    }
    Ok(())
}
