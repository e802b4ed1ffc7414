/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The load: a task that keeps the core busy for a given share of each burst period. Share and
 * period are counted on the clock, not in work done: a burst ends at a fixed time, whatever
 * interrupted it.
 */
#ifndef BURNER_H
#define BURNER_H

#include "bootargs.h"

/* Creates the task, unless the load is 0. Before the scheduler starts. */
void burner_create(const struct parameters *parameters);

/* Ends the current burst at once and all later ones. */
void burner_stop(void);

#endif
