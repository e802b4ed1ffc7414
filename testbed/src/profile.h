/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Where the time went: instructions and time lost by WFE and YIELD, for each exception level and function, and for lock
 * functions; in the whole run, or between the last passes of two marks. A block, or a stay in a lock function, that is
 * unfinished at a mark counts as a whole on one side of it.
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
    uint64_t polled; /* time lost by WFE and YIELD, in instructions */
};

struct profile {
    struct profile_entry *entries; /* most time first */
    size_t count;
    int64_t from, to; /* nanoseconds */
    uint64_t executed[EXCEPTION_LEVELS]; /* sum of all entries */
    uint64_t polled;
    struct spin spins[MAX_SPIN_FUNCTIONS]; /* from 1; the first entry without a name ends the list */
};

/* A core passes a mark at this time, in nanoseconds. */
void profile_mark(uint64_t number, int64_t at);

/* At the end of the run. */
struct profile profile_end(void);

#endif
