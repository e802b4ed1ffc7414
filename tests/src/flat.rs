// SPDX-License-Identifier: MIT OR Apache-2.0
//! The memory content that an ELF file describes (64 bits, little endian; System V ABI, chapters 4
//! and 5).

/// Loadable.
const PT_LOAD: u64 = 1;

/// The memory that an ELF file describes, and the address of its first byte; `None` if it is no ELF file.
pub fn flatten(elf: &[u8]) -> Option<(u64, Vec<u8>)> {
    let number = |at: u64, bytes: u64| -> Option<u64> {
        let at = usize::try_from(at).ok()?;
        let field = elf.get(at..at + usize::try_from(bytes).ok()?)?;
        Some(
            field
                .iter()
                .rfold(0, |sum, &byte| sum << 8 | u64::from(byte)),
        )
    };
    if !elf.starts_with(b"\x7fELF\x02\x01") {
        return None;
    }
    let (table, size, count) = (number(32, 8)?, number(54, 2)?, number(56, 2)?);
    let mut segments = Vec::new();
    for n in 0..count {
        let header = table + n * size;
        let (offset, address) = (number(header + 8, 8)?, number(header + 24, 8)?);
        let (in_file, in_memory) = (number(header + 32, 8)?, number(header + 40, 8)?);
        if number(header, 4)? == PT_LOAD && in_memory > 0 {
            let start = usize::try_from(offset).ok()?;
            let content = elf.get(start..start + usize::try_from(in_file).ok()?)?;
            segments.push((address, in_memory, content));
        }
    }
    let start = segments.iter().map(|segment| segment.0).min()?;
    let end = segments.iter().map(|segment| segment.0 + segment.1).max()?;
    let mut memory = vec![0; usize::try_from(end - start).ok()?];
    for (address, _, content) in segments {
        let at = usize::try_from(address - start).ok()?;
        memory
            .get_mut(at..at + content.len())?
            .copy_from_slice(content);
    }
    Some((start, memory))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_lie_where_they_belong() {
        let mut elf = vec![0; 64 + 2 * 56];
        elf[..6].copy_from_slice(b"\x7fELF\x02\x01");
        elf[32] = 64;
        elf[54] = 56;
        elf[56] = 2;
        let mut segment = |n: usize, fields: [u8; 4]| {
            let header = 64 + n * 56;
            elf[header] = 1;
            for (field, value) in [8, 24, 32, 40].into_iter().zip(fields) {
                elf[header + field] = value;
            }
        };
        // Offset, address, bytes in the file, bytes in memory.
        segment(0, [1, 0x24, 3, 6]);
        segment(1, [0, 0x20, 1, 2]);
        let (start, memory) = flatten(&elf).unwrap();
        assert_eq!(start, 0x20);
        assert_eq!(memory, b"\x7f\0\0\0ELF\0\0\0");
        assert!(flatten(b"#!/bin/sh").is_none());
    }
}
