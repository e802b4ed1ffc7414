/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The plugin's arguments; README.md describes each. */
#ifndef OPTIONS_H
#define OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* More than the number of any mark. */
#define NO_MARK UINT64_MAX

struct options {
    uint64_t quantum;             /* instructions */
    uint64_t instructions_per_us; /* of each core */
    uint64_t seed;
    uint64_t disk_us;             /* virtual time that a disk request takes */
    uint64_t end_us;              /* 0: no end */
    uint64_t end_mark;            /* NO_MARK: none ends the run */
    uint64_t profile_from;        /* the mark that restarts profile and spin counts; NO_MARK: they begin at power on */
    uint64_t profile_to;          /* the mark whose last pass after that ends them; NO_MARK: they end with the run */
    uint64_t top;                 /* functions in the profile */
    const char *json;             /* file for the results; NULL: none */
    const char *trace;            /* file for a line per quantum; NULL: none */
};

extern struct options options;

/*
 * Reads the arguments, each `name=value`. Returns false, with a message, if one is wrong. Messages name
 * an option as `--name value`, as users of `run` write it.
 */
bool options_read(int count, char **arguments);

#endif
