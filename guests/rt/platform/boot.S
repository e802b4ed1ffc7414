/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Entry. Runs with the MMU off, on one core, at EL1 or EL2, x0 = address of the device tree or 0
 * (arm64 Linux boot protocol; QEMU's ELF loader gives 0). Leaves in C at EL1, SP_EL1, MMU and
 * caches on, interrupts masked. Writes no memory before the caches are on (see mmu.c).
 */
#include "mmu.h"

#define EL1 1
#define EL2 2

#define HCR_RW (1 << 31)              /* EL1 is AArch64; every trap and route to EL2 is off */
#define CPTR_NO_TRAPS 0x33FF          /* CPTR_EL2: only its RES1 bits */
#define CNTHCTL_EL1_ACCESS 3          /* EL1PCTEN, EL1PCEN: EL1 may use the physical timer */
#define ICC_SRE_EL2_ENABLE 9          /* SRE, and Enable: EL1 may use the system registers */
#define SPSR_EL1H_MASKED 0x3C5        /* EL1h, D, A, I and F masked */
#define PMCR_N_SHIFT 11               /* PMCR_EL0.N, 5 bits: how many event counters */
#define PMCR_N_BITS 5
#define PFR0_GIC_SHIFT 24             /* ID_AA64PFR0_EL1.GIC, 4 bits: 0 without GICv3 registers */
#define PFR0_GIC_BITS 4

#define IMAGE_OFFSET 0x200000         /* as in link.ld */
#define IMAGE_FLAGS 2                 /* little endian, 4 KiB pages, at that offset only */

#define ICC_SRE_EL2 S3_4_C12_C9_5
#define ICH_HCR_EL2 S3_4_C12_C11_0

    .section .text.boot, "ax"
    /* The arm64 Image header (Linux Documentation/arch/arm64/booting.rst), so that the flat form
     * of this program can be started by whatever starts a kernel. */
    .global _start
_start:
    b       start
    .word   0
    .quad   IMAGE_OFFSET              /* from a 2 MiB boundary, here the start of RAM */
    .quad   __image_size
    .quad   IMAGE_FLAGS
    .quad   0, 0, 0
    .ascii  "ARM\x64"
    .word   0

start:
    msr     daifset, #15
    mov     x19, x0                   /* device tree */
    mrs     x20, CurrentEL
    ubfx    x20, x20, #2, #2          /* exception level at entry, for the banner */
    cmp     x20, #EL1
    b.eq    at_el1
    cmp     x20, #EL2
    b.ne    unsupported_level

    /* Bare machine with EL2: give EL1 everything, then go there. */
    mov     x0, #HCR_RW
    msr     hcr_el2, x0
    isb
    mov     x0, #CPTR_NO_TRAPS
    msr     cptr_el2, x0
    msr     hstr_el2, xzr
    msr     vttbr_el2, xzr
    mrs     x0, pmcr_el0
    ubfx    x0, x0, #PMCR_N_SHIFT, #PMCR_N_BITS
    msr     mdcr_el2, x0              /* HPMN = all counters, no debug traps */
    mrs     x0, midr_el1
    msr     vpidr_el2, x0
    mrs     x0, mpidr_el1
    msr     vmpidr_el2, x0
    mov     x0, #CNTHCTL_EL1_ACCESS
    msr     cnthctl_el2, x0
    msr     cntvoff_el2, xzr
    mrs     x0, id_aa64pfr0_el1
    ubfx    x0, x0, #PFR0_GIC_SHIFT, #PFR0_GIC_BITS
    cbz     x0, 1f                    /* no such registers: gic.c reports it */
    mov     x0, #ICC_SRE_EL2_ENABLE
    msr     ICC_SRE_EL2, x0
    isb                               /* ICH_* exist only after SRE is in effect */
    msr     ICH_HCR_EL2, xzr
1:  ldr     w0, =MMU_SCTLR_OFF
    msr     sctlr_el1, x0
    mov     x0, #SPSR_EL1H_MASKED
    msr     spsr_el2, x0
    adr     x0, at_el1
    msr     elr_el2, x0
    eret

at_el1:
    msr     spsel, #1
    ldr     x0, =_freertos_vector_table
    msr     vbar_el1, x0
    ldr     w0, =MMU_MAIR
    msr     mair_el1, x0
    ldr     w0, =MMU_TCR
    msr     tcr_el1, x0
    ldr     x0, =mmu_level1_table
    msr     ttbr0_el1, x0
    isb
    tlbi    vmalle1
    ic      iallu
    dsb     sy
    isb
    ldr     w0, =MMU_SCTLR_ON
    msr     sctlr_el1, x0
    isb

    ldr     x0, =__bss_start          /* both ends are 16-byte aligned by the linker script */
    ldr     x1, =__bss_end
1:  cmp     x0, x1
    b.hs    2f
    stp     xzr, xzr, [x0], #16
    b       1b
2:
    ldr     x0, =__boot_stack_top     /* becomes the interrupt stack once tasks run */
    mov     sp, x0
    mov     x29, xzr
    mov     x30, xzr
    mov     x0, x19
    mov     x1, x20
    bl      rt_main                   /* does not return */

unsupported_level:                    /* EL3 belongs to the firmware; no console is set up to report on */
    wfi
    b       unsupported_level
