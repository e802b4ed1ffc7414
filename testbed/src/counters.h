/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Per-core counters: instructions at each exception level, time forfeited by waiting, time in lock
 * functions, and what visits.h adds.
 *
 * Blocks carry a class: exception level, lock function, and whether it acknowledges or sends an
 * interrupt, in one number. Counting happens only when a core goes from a block of one class to one of another, so
 * it costs next to nothing.
 */
#ifndef COUNTERS_H
#define COUNTERS_H

#include "blocks.h"
#include "visits.h"

#include <stdint.h>

/* Lock functions that can be told apart. */
#define MAX_SPIN_FUNCTIONS 32 /* number 0, which stands for none, included */

struct core;

struct counters {
    uint32_t class;       /* of the block executed last */
    uint64_t class_since; /* instructions the core had executed when it came to this class */
    uint64_t executed[EXCEPTION_LEVELS];
    uint64_t polled; /* instructions' worth of time that passed while it polled, with WFE and YIELD */
    uint64_t polled_before; /* `polled` when the core came to this class */
    struct visit visit;
};

/* What all cores together did in one lock function. */
struct spin {
    const char *function;
    uint64_t entries;      /* times that a core came to it, from its caller or from an interrupt */
    uint64_t instructions;
    uint64_t polled;       /* instructions' worth of time forfeited in it by WFE and YIELD */
    uint64_t longest;      /* the longest stay, instructions and waiting together */
};

uint32_t counters_class(const struct block *block);

void counters_start(struct core *core);

/* The core is about to execute a block of another class than the last one. */
void counters_change(struct core *core, const struct block *next);

/* So much time passes for the core after WFE or YIELD, in instructions' worth. */
void counters_polled(struct core *core, int64_t instructions);

/* The core goes on after it slept. */
void counters_resumed(struct core *core);

/* Closes what is open, so that the figures are complete. */
void counters_finish(struct core *core);

/* Adds a function to those whose time counts as spinning. */
void counters_add_spin_function(const char *name);

/* The number of the lock function that an address belongs to; 0: none. */
uint8_t counters_spin_function(int el, uint64_t address);

/* What was counted in lock functions until now, by number. */
void counters_copy_spins(struct spin to[MAX_SPIN_FUNCTIONS]);

/* Begins to count them anew. */
void counters_forget_spins(void);

#endif
