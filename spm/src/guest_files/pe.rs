// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds out whether a Linux image is complete.
//!
//! The arm64 header does not have the length of the file. But kernels with an EFI stub (all that
//! distributions ship) are also PE files, and their section table has it (Microsoft PE Format).

/// Offset of the PE header's offset in an MS-DOS header, and so in a Linux image.
const PE_OFFSET: usize = 60;
/// First bytes of a PE header.
const PE_SIGNATURE: [u8; 4] = *b"PE\0\0";
/// Signature and COFF file header.
const COFF_SIZE: usize = 24;
/// Number of sections, in the COFF file header.
const SECTION_COUNT: usize = 6;
/// Size of the optional header, in the COFF file header.
const OPTIONAL_SIZE: usize = 20;
/// Size of an entry of the section table.
const SECTION_SIZE: usize = 40;
/// Bytes of the section in the file, in its table entry.
const RAW_SIZE: usize = 16;
/// Offset of the section in the file, in its table entry.
const RAW_OFFSET: usize = 20;

/// How many bytes the file must have; `None` if it is no PE file.
pub fn needed_size(bytes: &[u8]) -> Option<u64> {
    let pe = word(bytes, PE_OFFSET)? as usize;
    if bytes.get(pe..pe.checked_add(4)?)? != PE_SIGNATURE {
        return None;
    }
    let sections = half(bytes, pe + SECTION_COUNT)? as usize;
    let table = pe + COFF_SIZE + half(bytes, pe + OPTIONAL_SIZE)? as usize;
    let end = |index: usize| -> Option<u64> {
        let section = table + index * SECTION_SIZE;
        let size = u64::from(word(bytes, section + RAW_SIZE)?);
        Some(size + u64::from(word(bytes, section + RAW_OFFSET)?))
    };
    (0..sections).filter_map(end).max()
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(
        bytes.get(at..at.checked_add(2)?)?.try_into().ok()?,
    ))
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(
        bytes.get(at..at.checked_add(4)?)?.try_into().ok()?,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A PE file whose sections end at the given offsets.
    fn pe(ends: &[u32]) -> Vec<u8> {
        let mut bytes = vec![0; 64];
        bytes[PE_OFFSET] = 64;
        bytes.extend(PE_SIGNATURE);
        bytes.resize(64 + COFF_SIZE, 0);
        bytes[64 + SECTION_COUNT] = ends.len() as u8;
        bytes[64 + OPTIONAL_SIZE] = 8;
        bytes.resize(64 + COFF_SIZE + 8, 0);
        for end in ends {
            let mut section = [0; SECTION_SIZE];
            section[RAW_SIZE..RAW_SIZE + 4].copy_from_slice(&0x200u32.to_le_bytes());
            section[RAW_OFFSET..RAW_OFFSET + 4].copy_from_slice(&(end - 0x200).to_le_bytes());
            bytes.extend(section);
        }
        bytes
    }

    #[test]
    fn the_last_section_says_how_long_the_file_is() {
        assert_eq!(needed_size(&pe(&[0x1000, 0x5000, 0x3000])), Some(0x5000));
    }

    #[test]
    fn without_a_pe_header_the_length_is_unknown() {
        assert_eq!(needed_size(&[0; 200]), None);
        assert_eq!(needed_size(&[0xff; 200]), None);
        assert_eq!(needed_size(&pe(&[0x1000])[..70]), None);
        assert_eq!(needed_size(&[]), None);
    }
}
