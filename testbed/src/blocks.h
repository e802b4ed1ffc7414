/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Blocks: what is known of a translation block when QEMU translates it, so that executing it costs
 * as little as possible.
 */
#ifndef BLOCKS_H
#define BLOCKS_H

#include "qemu-api.h"

#include <stdbool.h>
#include <stdint.h>

#define EXCEPTION_LEVELS 4

struct block {
    uint64_t start; /* guest virtual address */
    uint32_t bytes;
    uint16_t instructions;
    uint8_t el;       /* exception level: part of what QEMU translates for, so fixed */
    uint8_t spin;     /* index of the lock function it belongs to, see counters.h; 0: none */
    bool looks; /* at EL2, has a read of ISR_EL1: whether an interrupt waits */
    uint8_t acknowledges; /* at EL2, ends with a read of ICC_IAR1_EL1 into X0 + this - 1; 0: not so */
    bool sends;       /* ends with a write to ICC_SGI1R_EL1: an interrupt to another core */
    uint32_t class;   /* the four in one, to compare at once: see counters.h */
    bool wait;        /* ends with WFI, WFE or YIELD (or a form with a timeout) */
    bool yields;      /* ends with WFE or YIELD: QEMU then always goes on to the next core */
    bool indirect;    /* ends with a branch to a register, a return not included */
    uint64_t target;  /* of the direct branch that ends it; 0: there is none */
    uint64_t id;      /* what it adds to the hash of the run */
    uint64_t runs;    /* times that it was executed */
    uint64_t taken_back; /* instructions counted by `runs` that were not executed after all */
    uint64_t polled;     /* instructions' worth of time that passed in WFE or YIELD at its end */
    struct block *same_hash;
};

/* Called by QEMU for each block that it translates. */
void blocks_translated(qemu_plugin_id_t id, struct qemu_plugin_tb *tb);

/* Calls `visit` for each block there ever was. */
void blocks_each(void (*visit)(struct block *block, void *data), void *data);

#endif
