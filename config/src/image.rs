// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the placement of guest images must know about them. The bytes are read elsewhere.

/// Magic number of a Linux arm64 `Image` at [`LINUX_MAGIC_OFFSET`] (Linux, Documentation/arch/arm64/booting.rst, section 4).
pub const LINUX_MAGIC: [u8; 4] = *b"ARM\x64";
/// Offset of [`LINUX_MAGIC`].
pub const LINUX_MAGIC_OFFSET: usize = 56;
/// Bytes of the header of a Linux arm64 `Image`.
pub const LINUX_HEADER_SIZE: usize = 64;
/// Offset of `image_size` in that header.
pub const LINUX_IMAGE_SIZE_OFFSET: usize = 16;

/// The header of a Linux arm64 `Image`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinuxHeader {
    /// Load offset from a 2 MiB boundary, in bytes.
    pub text_offset: u64,
    /// Memory that it needs from its start, for file and working space, in bytes.
    pub image_size: u64,
    /// Whether the kernel is big-endian (bit 0 of `flags`).
    pub big_endian: bool,
}

impl LinuxHeader {
    /// Reads the header; `None` if the magic number is missing.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let double = |at: usize| -> Option<u64> {
            Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
        };
        if bytes.get(LINUX_MAGIC_OFFSET..LINUX_HEADER_SIZE - 4)? != LINUX_MAGIC {
            return None;
        }
        Some(Self {
            text_offset: double(8)?,
            image_size: double(LINUX_IMAGE_SIZE_OFFSET)?,
            big_endian: double(24)? & 1 != 0,
        })
    }
}

/// A loadable segment of an ELF executable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ElfSegment {
    /// Offset of its bytes in the file.
    pub file_offset: u64,
    /// Number of its bytes in the file.
    pub file_size: u64,
    /// Physical address (`p_paddr`): the guest's IPA.
    pub address: u64,
    /// Size in memory, in bytes; those after `file_size` are zero.
    pub memory_size: u64,
    /// Whether the program writes to it (`PF_W`).
    pub is_writable: bool,
}

/// A guest's image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Image {
    /// A single block, which may have a Linux header.
    Flat {
        /// Bytes of the (unpacked) file.
        size: u64,
        /// Its Linux header, if it has one.
        header: Option<LinuxHeader>,
    },
    /// An ELF executable.
    Elf {
        /// Entry point as a physical address.
        entry: u64,
        /// Its loadable segments.
        segments: Vec<ElfSegment>,
    },
}

/// The files of one guest, as far as placement needs them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuestFiles {
    /// The image.
    pub image: Image,
    /// Bytes of the initial ramdisk.
    pub initrd_size: Option<u64>,
    /// Bytes of the user's own device tree.
    pub dtb_size: Option<u64>,
    /// Where its kernel counts what holds off preemption, if that is used: see [`crate::packed::Guest::preempt_count`].
    pub preempt_count: Option<u32>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_linux_header_is_recognised_by_its_magic() {
        let mut bytes = [0; LINUX_HEADER_SIZE];
        assert_eq!(LinuxHeader::parse(&bytes), None);
        bytes[8..16].copy_from_slice(&0x8_0000u64.to_le_bytes());
        bytes[16..24].copy_from_slice(&0x123_0000u64.to_le_bytes());
        bytes[24] = 0xA;
        bytes[56..60].copy_from_slice(b"ARM\x64");
        let header = LinuxHeader {
            text_offset: 0x8_0000,
            image_size: 0x123_0000,
            big_endian: false,
        };
        assert_eq!(LinuxHeader::parse(&bytes), Some(header));
        assert_eq!(LinuxHeader::parse(&bytes[..60]), Some(header));
        assert_eq!(LinuxHeader::parse(&bytes[..59]), None);
    }
}
