// SPDX-License-Identifier: MIT OR Apache-2.0
//! The first 64 bytes of the image: the header of a Linux arm64 `Image`, so that QEMU's
//! `-kernel` and U-Boot's `booti` load and enter the hypervisor as they would a kernel.
//!
//! Source: Linux, Documentation/arch/arm64/booting.rst, "Call the kernel image".

use core::arch::global_asm;

/// Bytes from the start of memory to the image; the link address in `image.ld` agrees.
const TEXT_OFFSET: u64 = 0x20_0000;
/// Little endian, 4 KiB pages, to be placed at `TEXT_OFFSET` from the start of memory.
const FLAGS: u64 = 0b0010;

global_asm!(
    ".pushsection .init.header, \"ax\"",
    ".global image_header",
    "image_header:",
    "b entry",
    "nop",
    ".quad {text_offset}",
    // image_size: `spm build` overwrites it, since it includes the bundle.
    ".quad bundle_start - image_header",
    ".quad {flags}",
    ".quad 0, 0, 0",
    ".ascii \"ARM\\x64\"",
    ".long 0",
    ".popsection",
    text_offset = const TEXT_OFFSET,
    flags = const FLAGS,
);
