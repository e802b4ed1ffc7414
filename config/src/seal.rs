// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writes the hashes of a bundle, and its seal. `core/src/verify` and `core/src/load` check them.

use crate::packed::{BundleHeader, Guest, Hash, LEAF, Part, Seal, Segment, System};
use crate::types::PhysAddr;
use sha2::{Digest, Sha256};

/// Bytes of a page.
const PAGE: usize = LEAF as usize;

/// The SHA-256 of some bytes.
pub fn hash(bytes: &[u8]) -> Hash {
    Hash(Sha256::digest(bytes).into())
}

/// Seals `bundle`, in which payloads and translation tables are in their places: writes the lists of leaves' hashes, then header,
/// system and seal. `system` gets its hashes. `address`: where the bundle is made for. `sign` returns the signature of header and
/// system, or zeros.
///
/// # Errors
///
/// What does not fit.
pub fn seal(
    system: &mut System,
    address: PhysAddr,
    bundle: &mut [u8],
    sign: impl FnOnce(&[u8]) -> [u8; Seal::SIGNATURE],
) -> Result<(), String> {
    // Guests that share a payload share its list: it is made once.
    let mut lists: Vec<(Segment, Hash)> = Vec::new();
    for guest in &mut system.guests {
        for segment in &mut guest.segments {
            let known = lists.iter().find(|(of, _)| has_list_of(segment, of));
            if let Some((_, hash)) = known {
                segment.list_hash = *hash;
                continue;
            }
            let list = list(segment, bundle).ok_or("a payload lies beyond the bundle")?;
            segment.list_hash = hash(&list);
            put(bundle, segment.list, &list)?;
            lists.push((*segment, segment.list_hash));
        }
        let pages = match guest.protect.as_ref().and_then(|it| it.local) {
            Some(_) => pages(guest, bundle).ok_or("a payload lies beyond the bundle")?,
            None => continue,
        };
        if let Some(local) = guest.protect.as_mut().and_then(|it| it.local.as_mut()) {
            local.list_hash = hash(&pages);
            put(bundle, local.list, &pages)?;
        }
    }
    for part in [&mut system.stage2_pages, &mut system.el2_pages] {
        let Part { offset, size, .. } = *part;
        let bytes = get(bundle, offset, size).ok_or("a table lies beyond the bundle")?;
        part.hash = hash(bytes);
    }
    let encoded = postcard::to_allocvec(system)
        .map_err(|error| format!("the system cannot be encoded: {error}"))?;
    let header = BundleHeader {
        system_len: u32::try_from(encoded.len()).unwrap_or(u32::MAX),
        total_len: bundle.len() as u64,
        address,
    };
    if header.sealed_len().is_none() {
        return Err("the system does not fit into the space reserved for it".into());
    }
    let mut sealed = header.to_bytes().to_vec();
    sealed.extend_from_slice(&encoded);
    let seal = Seal {
        hash: hash(&sealed),
        signature: sign(&sealed),
    };
    sealed.extend_from_slice(&seal.to_bytes());
    put(bundle, 0, &sealed)
}

/// Whether the list of one segment is that of the other: in the same place, of the same leaves.
pub fn has_list_of(one: &Segment, other: &Segment) -> bool {
    let list = |it: &Segment| (it.list, it.offset, it.size, it.destination.0 % LEAF);
    list(one) == list(other)
}

/// The hashes of a segment's leaves, one after the other.
fn list(segment: &Segment, bundle: &[u8]) -> Option<Vec<u8>> {
    let payload = get(bundle, segment.offset, segment.size)?;
    let mut list = Vec::new();
    for number in 0..segment.leaves() {
        let leaf = segment.leaf(number);
        list.extend_from_slice(&hash(get(payload, leaf.start, leaf.size)?).0);
    }
    Some(list)
}

/// The hashes of all pages of a guest's memory, as it is loaded, one after the other.
fn pages(guest: &Guest, bundle: &[u8]) -> Option<Vec<u8>> {
    let empty = hash(&[0; PAGE]);
    let mut list = Vec::new();
    for range in &guest.memory {
        for number in 0..range.size / LEAF {
            let at = range.ipa.0 + number * LEAF;
            let is_here = |segment: &&Segment| {
                let start = segment.destination.0;
                start < at + LEAF && at < start.saturating_add(segment.size)
            };
            let mut loaded = guest.segments.iter().filter(is_here).peekable();
            if loaded.peek().is_none() {
                list.extend(empty.0);
                continue;
            }
            let mut page = [0; PAGE];
            for segment in loaded {
                let start = segment.destination.0.max(at);
                let end = (segment.destination.0 + segment.size).min(at + LEAF);
                let from = segment.offset + (start - segment.destination.0);
                let bytes = get(bundle, from, end - start)?;
                let place = (start - at) as usize;
                page[place..place + bytes.len()].copy_from_slice(bytes);
            }
            list.extend(hash(&page).0);
        }
    }
    Some(list)
}

fn get(bytes: &[u8], offset: u64, size: u64) -> Option<&[u8]> {
    let start = usize::try_from(offset).ok()?;
    bytes.get(start..start.checked_add(usize::try_from(size).ok()?)?)
}

fn put(bundle: &mut [u8], offset: u64, bytes: &[u8]) -> Result<(), String> {
    let start = usize::try_from(offset).ok();
    let range = start.and_then(|start| Some(start..start.checked_add(bytes.len())?));
    range
        .and_then(|range| bundle.get_mut(range))
        .ok_or("a part lies beyond the bundle")?
        .copy_from_slice(bytes);
    Ok(())
}

#[cfg(test)]
// Tests may unwrap.
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::packed::{Content, LEAF};
    use crate::types::GuestAddr;

    fn segment(destination: u64, size: u64) -> Segment {
        Segment {
            offset: 0,
            size,
            destination: GuestAddr(destination),
            content: Content::Image,
            list: 0,
            list_hash: Hash::default(),
        }
    }

    #[test]
    fn leaves_cover_a_segment_and_each_goes_into_one_page() {
        for destination in [0, 1, 64, 4095, 4096, 4100] {
            for size in [0, 1, 95, 96, 4095, 4096, 4097, 8191, 8192, 8193] {
                let segment = segment(destination, size);
                let mut end = 0;
                for number in 0..segment.leaves() {
                    let leaf = segment.leaf(number);
                    assert_eq!(leaf.start, end, "{segment:?}");
                    assert!(leaf.size > 0);
                    end += leaf.size;
                    let (first, last) = (destination + leaf.start, destination + end - 1);
                    assert_eq!(first / LEAF, last / LEAF, "{segment:?}");
                }
                assert_eq!(end, size);
                assert_eq!(segment.leaf(segment.leaves()).size, 0);
            }
        }
    }

    #[test]
    fn the_list_of_a_segment_has_the_hash_of_each_leaf() {
        let payload: Vec<u8> = (0..5000_u32).map(|n| n as u8).collect();
        let list = list(&segment(4096 + 96, 5000), &payload).unwrap();
        let hashes = [hash(&payload[..4000]), hash(&payload[4000..])];
        assert_eq!(list, hashes.map(|it| it.0).concat());
    }
}
