/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Per-core counters: instructions at each exception level, time lost by waiting, time in lock
 * functions, and what exits.h counts.
 *
 * Blocks carry a class: exception level, lock function, and whether it acknowledges, sends or
 * checks for an interrupt, in one number. The plugin counts only when a core goes from a block of one class to
 * a block of another class, so counting costs little.
 */
#ifndef COUNTERS_H
#define COUNTERS_H

#include "core.h"

#include <stdint.h>

/* Most lock functions. */
#define MAX_SPIN_FUNCTIONS 32 /* including number 0, which stands for none */

/* What all cores together did in one lock function. */
struct spin {
    const char *function;
    uint64_t entries;      /* times that a core entered it, by a call or by the return from an interrupt */
    uint64_t instructions;
    uint64_t polled;       /* time lost in it by WFE and YIELD, in instructions */
    uint64_t longest;      /* the longest stay, instructions and waiting together */
};

uint32_t counters_class(const struct block *block);

void counters_start(struct core *core);

/* The core is about to execute a block of another class than the last one. */
void counters_change(struct core *core, const struct block *next);

/* The core loses so much time, in instructions, by WFE or YIELD. */
void counters_polled(struct core *core, int64_t instructions);

/* The core continues after it slept. */
void counters_resumed(struct core *core);

/* The run ends: counts what the core has not finished. */
void counters_finish(struct core *core);

/* Adds a function to those whose time counts as spinning. */
void counters_add_spin_function(const char *name);

/* The number of the lock function that an address belongs to; 0: none. */
uint8_t counters_spin_function(int el, uint64_t address);

/* What was counted in lock functions until now, by number. */
void counters_copy_spins(struct spin to[MAX_SPIN_FUNCTIONS]);

/* Sets these counts to zero. */
void counters_forget_spins(void);

#endif
