/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The real-time task. It is released at each due time of the timer's release chain and measures
 * its own dispatch latency: from the due time to the first instruction of its job.
 */
#ifndef PERIODIC_H
#define PERIODIC_H

#include "accounting.h"
#include "bootargs.h"

/* Creates the task. Before the scheduler starts. */
void periodic_create(const struct parameters *parameters);

/*
 * The figures at this moment, for a task of lower priority; `lost` includes missing jobs that
 * only the clock shows. The histogram is not copied: it may be ahead of the copy by what ran since.
 */
struct accounting periodic_snapshot(void);
const struct histogram *periodic_histogram(void);

#endif
