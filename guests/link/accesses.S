/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Start of accesses.c on QEMU's machine `virt`, at EL1. Its RAM is normal memory at its own address; nothing else is mapped but
 * the UART, so an access to the link is an exception.
 */
    .global _start
_start:
    ldr x0, =0x41000000
    mov sp, x0
    adr x0, vectors
    msr vbar_el1, x0
    mov x0, #3 << 20            /* CPACR_EL1.FPEN */
    msr cpacr_el1, x0
    adr x0, level1
    msr ttbr0_el1, x0
    mov x0, #0xff00             /* attribute 0: device, 1: normal, write-back */
    msr mair_el1, x0
    ldr x0, =25 | 1 << 8 | 1 << 10 | 3 << 12 | 1 << 23
    msr tcr_el1, x0             /* 39 bits, inner shareable, no TTBR1 */
    isb
    mrs x0, sctlr_el1
    orr x0, x0, #1
    msr sctlr_el1, x0
    isb
    bl start
1:  wfi
    b 1b

    .balign 2048
vectors:
    .rept 16
    .balign 128
    b exception
    .endr

/* Saves x0 to x30, and a 0 for xzr. */
exception:
    sub sp, sp, #256
    stp x0, x1, [sp, #0]
    stp x2, x3, [sp, #16]
    stp x4, x5, [sp, #32]
    stp x6, x7, [sp, #48]
    stp x8, x9, [sp, #64]
    stp x10, x11, [sp, #80]
    stp x12, x13, [sp, #96]
    stp x14, x15, [sp, #112]
    stp x16, x17, [sp, #128]
    stp x18, x19, [sp, #144]
    stp x20, x21, [sp, #160]
    stp x22, x23, [sp, #176]
    stp x24, x25, [sp, #192]
    stp x26, x27, [sp, #208]
    stp x28, x29, [sp, #224]
    stp x30, xzr, [sp, #240]
    mrs x0, esr_el1
    mrs x1, far_el1
    mrs x2, elr_el1
    mov x3, sp
    bl access
    mrs x0, elr_el1
    add x0, x0, #4
    msr elr_el1, x0
    ldp x0, x1, [sp, #0]
    ldp x2, x3, [sp, #16]
    ldp x4, x5, [sp, #32]
    ldp x6, x7, [sp, #48]
    ldp x8, x9, [sp, #64]
    ldp x10, x11, [sp, #80]
    ldp x12, x13, [sp, #96]
    ldp x14, x15, [sp, #112]
    ldp x16, x17, [sp, #128]
    ldp x18, x19, [sp, #144]
    ldp x20, x21, [sp, #160]
    ldp x22, x23, [sp, #176]
    ldp x24, x25, [sp, #192]
    ldp x26, x27, [sp, #208]
    ldp x28, x29, [sp, #224]
    ldr x30, [sp, #240]
    add sp, sp, #256
    eret

    .balign 4096
level1:
    .quad 1 << 54 | 0x401               /* the first GiB: device */
    .quad 0x40000000 | 0x705            /* RAM: normal */
    .fill 510, 8, 0
