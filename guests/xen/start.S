/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Entry of the control domain (setup.c): MMU off, EL1, any address. The arm64 Image header is what Xen loads a kernel by. */
#define ANYWHERE 0xa                  /* flags: little endian, 4 KiB pages, any 2 MiB boundary */

    .section .text.start, "ax"
    .global _start
_start:
    b       1f
    .word   0
    .quad   0                         /* offset from the boundary */
    .quad   __image_size
    .quad   ANYWHERE
    .quad   0, 0, 0
    .ascii  "ARM\x64"
    .word   0
1:  msr     daifset, #15
    adrp    x0, __stack_top           /* on a page boundary */
    mov     sp, x0
    bl      setup                     /* never returns */
