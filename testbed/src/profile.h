/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Where the time went: instructions and waiting by exception level and function. */
#ifndef PROFILE_H
#define PROFILE_H

#include <stddef.h>
#include <stdint.h>

struct profile_entry {
    int el;
    const char *function; /* NULL: no name known */
    uint64_t instructions;
    uint64_t polled; /* instructions' worth of time passed while it polled, with WFE and YIELD */
};

/* Adds up all blocks; the entry with most instructions and waiting comes first. */
struct profile_entry *profile_make(size_t *count);

#endif
