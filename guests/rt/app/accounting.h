/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Counts the jobs of the periodic task: how many ran, how late, and how many never ran.
 * All times are in counter ticks.
 *
 * Pure: no hardware, tested on the host.
 */
#ifndef ACCOUNTING_H
#define ACCOUNTING_H

#include <stdint.h>

#include "duechain.h"
#include "histogram.h"

struct accounting {
    struct due_chain due; /* due time of the next job */
    uint64_t warmup;      /* due times that still pass before the first that counts */
    uint64_t jobs;        /* jobs that ran */
    uint64_t late;        /* of these, those that began at or after the next due time */
    uint64_t lost;        /* due times whose job was given up */
    uint64_t latency_min; /* dispatch latency of the jobs that ran; min is UINT64_MAX before any */
    uint64_t latency_max;
    uint64_t latency_sum;
};

/* Begins with the due times of `due`, none of which has passed. What becomes of the first `warmup` of them is not counted. */
struct accounting accounting_start(struct due_chain due, uint64_t warmup);

/* The next job began at `now`. If it counts, its latency also goes into `histogram`. */
void accounting_job(struct accounting *accounting, struct histogram *histogram, uint64_t now);

/* The next job is given up: its due time passed and it will not run. */
void accounting_give_up(struct accounting *accounting);

/*
 * How many due times that count are at least one whole period old at `now` and yet had no job and
 * were not given up. This follows from the clock alone, so it also counts releases that the timer
 * interrupt missed.
 */
uint64_t accounting_missing(const struct accounting *accounting, uint64_t now);

/* Average latency, to the nearest tick; 0 without jobs. */
uint64_t accounting_average(const struct accounting *accounting);

#endif
