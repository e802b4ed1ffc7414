/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The blocks that a core executes in an exit to EL2, in order, so that it can be told where an exit's instructions are:
 * summed over the exits of one kind, and one by one for the longest stretch without a check for interrupts.
 */
#ifndef TRAIL_H
#define TRAIL_H

#include "blocks.h"
#include "core.h"

#include <stdbool.h>
#include <stddef.h>

/* An exit of more blocks keeps the first ones only. */
#define TRAIL_BLOCKS 8192

/* Part of a trail. */
struct trail_part {
    const struct block **blocks; /* allocated; NULL: not recorded */
    size_t count;
};

/* What `--trails CAUSE:END` names; false if there is no colon. Trails are recorded from now on. */
bool trail_record(const char *cause_and_end);
extern bool trails_recorded;

/* An exit begins on this core. */
void trail_begin(const struct core *core);
/* The core executes a block at EL2. */
void trail_add(const struct core *core, struct block *block);
/* How many blocks the exit has executed so far. */
size_t trail_length(const struct core *core);
/* Copies the blocks from number `from` up to number `to`, and frees what was in `part`. */
void trail_copy(const struct core *core, size_t from, size_t to, struct trail_part *part);
/* The exit ends. Its blocks are counted if it is of the kind that was named. */
void trail_end(const struct core *core, const char *cause, const char *end);

/* How many exits were counted; `block->trail_runs` has how often each block was executed in them. */
uint64_t trail_exits(void);

#endif
