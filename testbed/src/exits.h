/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Exits to EL2: how many instructions the hypervisor executes for each, by the
 * cause of the entry.
 *
 * An exit is all that a core executes at EL2 up to the next entry to a guest. If the core sleeps there
 * (WFI in the hypervisor's idle loop), the exit ends, and another one begins when the core wakes.
 *
 * An exit may pass steps, marks with the numbers from EXIT_STEP_FIRST on. It is then counted apart from
 * those with the same cause that pass others, and the way to each step is known.
 */
#ifndef EXITS_H
#define EXITS_H

#include "blocks.h"
#include "core.h"
#include "trail.h"

#include <stddef.h>
#include <stdint.h>

#define EXIT_CAUSES 512
#define EXIT_BUCKETS 24
/* Room for the name of a cause. */
#define EXIT_NAME 64
/* Mark with the number of step 0. */
#define EXIT_STEP_FIRST 0xff00

/* All exits of one cause. */
struct exit_sum {
    struct exit_cause cause;
    uint64_t exits, instructions;
    struct exit_stretch deaf; /* the longest without a check for interrupts */
    struct trail_part deaf_trail; /* its blocks */
    uint64_t most; /* instructions in the longest exit */
    int64_t most_at; /* when that exit began, in nanoseconds */
    uint8_t most_core;
    struct exit_part steps[EXIT_STEPS]; /* to each, from the step before it or from the start of the exit */
    struct exit_part rest; /* from the last step to the end */
    uint64_t histogram[EXIT_BUCKETS]; /* bucket i: 2^i to 2^(i+1) - 1 instructions */
};

/* Whether to read the registers that tell the causes apart; else all exits count as one cause. */
void exits_read_causes(bool yes);

void exits_begin(struct core *core, const struct block *first);
/* The core has read ICC_IAR1_EL1 into this general register. */
void exits_acknowledged(struct core *core, int general);
/* The core, which is at this address, checks for interrupts with ISR_EL1, or has just done so with ICC_IAR1_EL1. */
void exits_looked(struct core *core, uint64_t address);
/* The core passes a step of its exit, after `executed` instructions. Only the first pass of a step counts. */
void exits_step(struct core *core, int step, uint64_t executed);
/* `how` is EXIT_RETURNS if the core goes to a lower level. */
void exits_end(struct core *core, enum exit_end how);
void exits_resume(struct core *core);

/* Sums by number, from 0; NULL after the last one. */
const struct exit_sum *exits_sum(int number);

/* Writes a readable name of the cause to `text`. */
void exits_describe(const struct exit_cause *cause, char *text, size_t length);

/* How the exit ended, in a word; NULL: not known. */
const char *exits_end_name(const struct exit_cause *cause);

#endif
