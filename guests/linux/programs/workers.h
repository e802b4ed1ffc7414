/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A fixed amount of work, shared by parallel processes.
 *
 * Each process takes the next piece when it has finished one, as `make -j` hands out jobs, so a
 * process on a slow processor does less, and the time to the end measures the whole machine.
 */
#ifndef WORKERS_H
#define WORKERS_H

#include <stdint.h>

#define WORKERS_MAX 64

struct workers {
    uint64_t total;  /* units of work */
    uint64_t piece;  /* units taken at once */
    uint64_t count;  /* processes, up to WORKERS_MAX */
    uint64_t pinned; /* not 0: process n may run only on the n-th processor online (modulo their number) */
};

/* Does `units` of work as process `worker` (from 0), of which it is the first if `first` is 0.
 * Returns 0, or not 0 to end with failure. */
typedef int worker_function(unsigned worker, uint64_t first, uint64_t units);

/*
 * Runs the work, prints "done=A,B,…": the units that each process did. Returns the exit status: 0 if
 * all is done.
 */
int workers_run(const struct workers *workers, worker_function *work);

/* Reads "NAME=NUMBER" arguments into *workers: total, piece, count, pinned. Explains and exits if one is wrong. */
void workers_arguments(int argc, char **argv, struct workers *workers);

#endif
