/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The machine this guest is written for: QEMU `virt` with GICv3, as the bare machine or as Spumone
 * shows it to a guest. A device tree may have UART and GIC elsewhere, as that of a Xen guest has. One place
 * for every address, so that a port to another board starts here. Included by assembly too: plain numbers only.
 */
#ifndef BOARD_H
#define BOARD_H

/* The two 1 GiB blocks of the identity map (mmu.c). */
#define BOARD_DEVICE_BASE 0x00000000
#define BOARD_RAM_BASE 0x40000000
#define BOARD_BLOCK_SIZE 0x40000000

#define BOARD_UART_BASE 0x09000000   /* PL011 */
#define BOARD_GICD_BASE 0x08000000   /* GICv3 distributor */
#define BOARD_GICR_BASE 0x080A0000   /* GICv3 redistributors, one frame pair per core */
#define BOARD_GICR_FRAMES 8          /* how many frame pairs to search for our own */
#define BOARD_VTIMER_INTID 27        /* EL1 virtual timer, PPI 11 */

/* Largest device tree looked at: the arm64 Linux boot protocol's own limit. */
#define BOARD_FDT_MAX_SIZE 0x200000

#endif
