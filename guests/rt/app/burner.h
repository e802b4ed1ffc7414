/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The load: a task that keeps the core busy for a given share of each burst period. Share and
 * period are counted on the clock, not in work done: a burst ends at a fixed time, whatever
 * interrupted it. With a table the task walks through it meanwhile, again and again, and changes each word: so it has a working set.
 */
#ifndef BURNER_H
#define BURNER_H

#include "bootargs.h"

/* Creates the task, unless the load is 0. Before the scheduler starts. */
void burner_create(const struct parameters *parameters);

/* How many words of the table were changed. */
uint64_t burner_walked(void);

/* For how long it has been running, bursts and pauses. */
uint64_t burner_ticks(void);

/* Ends the current burst at once and all later ones. */
void burner_stop(void);

#endif
