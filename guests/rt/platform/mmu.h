/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Register values of the EL1 translation regime, shared by the table (mmu.c) and by the code that
 * switches it on (boot.S). Arm ARM DDI 0487, D8 (translation) and the registers' own pages.
 */
#ifndef MMU_H
#define MMU_H

/* MAIR_EL1: what the attribute indexes in the descriptors mean. */
#define MMU_ATTR_DEVICE 0                    /* Device-nGnRE */
#define MMU_ATTR_NORMAL 1                    /* Normal, write-back, allocate on read and write */
#define MMU_MAIR ((0x04 << (8 * MMU_ATTR_DEVICE)) | (0xFF << (8 * MMU_ATTR_NORMAL)))

/*
 * TCR_EL1: 39-bit addresses from TTBR0 (so that the walk starts at level 1, one entry per GiB),
 * 4 KiB granule, 32-bit output addresses, walks write-back and inner shareable, TTBR1 off.
 */
#define TCR_T0SZ_39_BITS (64 - 39)
#define TCR_IRGN0_WBWA (1 << 8)
#define TCR_ORGN0_WBWA (1 << 10)
#define TCR_SH0_INNER (3 << 12)
#define TCR_EPD1 (1 << 23)
#define MMU_TCR (TCR_T0SZ_39_BITS | TCR_IRGN0_WBWA | TCR_ORGN0_WBWA | TCR_SH0_INNER | TCR_EPD1)

/* SCTLR_EL1: the bits that are RES1 on Armv8.0, then MMU, data cache, stack alignment, I cache. */
#define SCTLR_RES1 ((1 << 29) | (1 << 28) | (1 << 23) | (1 << 22) | (1 << 20) | (1 << 11))
#define SCTLR_M (1 << 0)
#define SCTLR_C (1 << 2)
#define SCTLR_SA (1 << 3)
#define SCTLR_I (1 << 12)
#define MMU_SCTLR_OFF SCTLR_RES1
#define MMU_SCTLR_ON (SCTLR_RES1 | SCTLR_M | SCTLR_C | SCTLR_SA | SCTLR_I)

#endif
