/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The identity map: one level-1 table of 1 GiB blocks, devices below RAM.
 *
 * The table is a constant, part of the image, so nothing is written before the caches are on:
 * memory that is written around the caches can later be hidden by a stale line in them. RAM is
 * mapped as one whole block though the guest may own less; an access outside what it owns is then
 * stopped by stage 2 (or by the bus), not here.
 */
#include "mmu.h"

#include <stdint.h>

#include "board.h"

#define LEVEL1_ENTRIES 512

/* Block descriptor fields, Arm ARM D8.3. Access permissions 0: read and write at EL1 only. */
#define DESC_BLOCK UINT64_C(1)
#define DESC_ATTR(index) ((uint64_t)(index) << 2)
#define DESC_INNER_SHAREABLE (UINT64_C(3) << 8)
#define DESC_ACCESSED (UINT64_C(1) << 10)
#define DESC_NO_EXECUTE (UINT64_C(3) << 53) /* PXN and UXN */

#define INDEX(address) ((address) / BOARD_BLOCK_SIZE)

extern const uint64_t mmu_level1_table[LEVEL1_ENTRIES];

__attribute__((aligned(4096))) const uint64_t mmu_level1_table[LEVEL1_ENTRIES] = {
    [INDEX(BOARD_DEVICE_BASE)] =
        BOARD_DEVICE_BASE | DESC_BLOCK | DESC_ATTR(MMU_ATTR_DEVICE) | DESC_ACCESSED | DESC_NO_EXECUTE,
    [INDEX(BOARD_RAM_BASE)] =
        BOARD_RAM_BASE | DESC_BLOCK | DESC_ATTR(MMU_ATTR_NORMAL) | DESC_ACCESSED | DESC_INNER_SHAREABLE,
};
