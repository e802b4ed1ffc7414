/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What is known of a translation block once QEMU has translated it. All that can be found out then is
 * stored, so that counting an execution of the block costs little.
 */
#ifndef BLOCKS_H
#define BLOCKS_H

#include <stdbool.h>
#include <stdint.h>


struct block {
    uint64_t start; /* guest virtual address */
    uint32_t bytes;
    uint16_t instructions;
    uint8_t el;       /* exception level: QEMU translates for one level, so it is fixed */
    uint8_t spin;     /* index of its lock function, see counters.h; 0: none */
    bool looks;       /* at EL2, reads ISR_EL1: checks for pending interrupts */
    uint8_t acknowledges; /* at EL2, ends with a read of ICC_IAR1_EL1 into X0 + this - 1; 0: not so */
    bool sends;       /* ends with a write to ICC_SGI1R_EL1: an interrupt to another core */
    uint32_t class;   /* el, spin, acknowledges, sends and looks in one number, see counters.h */
    bool wait;        /* ends with WFI, WFE or YIELD (or a form with a timeout) */
    bool yields;      /* ends with WFE or YIELD: QEMU then always continues with the next core */
    bool indirect;    /* ends with a branch to a register, a return not included */
    uint64_t target;  /* of the direct branch that ends it; 0: there is none */
    uint64_t id;      /* what it adds to the hash of the run */
    uint64_t runs;    /* number of executions */
    uint64_t trail_runs; /* number of executions in the exits that `--trails` names */
    uint64_t taken_back; /* instructions counted by `runs` that were not executed after all */
    uint64_t polled;     /* time lost by WFE or YIELD at its end, in instructions */
    struct block *same_hash;
};

/* The block with these properties: the known one, or a new one. QEMU translates the same code many times. */
struct block *blocks_find(const struct block *wanted);

/* Calls `each` for every block that was ever translated. */
void blocks_each(void (*each)(struct block *block, void *data), void *data);

#endif
