/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Where the time went: instructions and waiting by exception level and function, and in lock functions; of the
 * whole run, or between two marks, the last time that they were passed. What is under way at a mark, a block or a
 * stay in a lock function, counts on one side of it.
 */
#ifndef PROFILE_H
#define PROFILE_H

#include "counters.h"

#include <stddef.h>
#include <stdint.h>

/* In place of the name of a function that has none and is in the upper half of the addresses. */
#define PROFILE_UPPER_HALF "?upper"

struct profile_entry {
    int el;
    const char *function; /* NULL: no name known, lower half of the addresses */
    uint64_t instructions;
    uint64_t polled; /* instructions' worth of time passed while it polled, with WFE and YIELD */
};

struct profile {
    struct profile_entry *entries; /* the one with most instructions and waiting comes first */
    size_t count;
    int64_t from, to; /* nanoseconds */
    uint64_t executed[EXCEPTION_LEVELS]; /* sum of all entries */
    uint64_t polled;
    struct spin spins[MAX_SPIN_FUNCTIONS]; /* from 1; the first without a name is behind the last */
};

/* A core passes a mark at this time, in nanoseconds. */
void profile_mark(uint64_t number, int64_t at);

/* At the end of the run. */
struct profile profile_end(void);

#endif
