/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A chain of absolute due times, `origin + k * period` for k = 1, 2, …, in counter ticks.
 *
 * A period in nanoseconds is seldom a whole number of ticks. The chain carries the fraction along,
 * so no due time is more than one tick off however long it runs, and two chains with one origin
 * coincide in exactly the same tick whenever their periods do. That is what lets the
 * release and FreeRTOS's tick share one timer interrupt.
 *
 * Pure: no hardware, tested on the host.
 */
#ifndef DUECHAIN_H
#define DUECHAIN_H

#include <stdint.h>

#define NS_PER_SECOND UINT64_C(1000000000)

struct due_chain {
    uint64_t next;     /* the next due time, in ticks, rounded down */
    uint64_t whole;    /* the period: whole ticks … */
    uint64_t part;     /* … and billionths of a tick, below NS_PER_SECOND */
    uint64_t fraction; /* rounding error of `next`, in billionths of a tick */
};

/*
 * First due time: `origin` + one period. `period_ns` must be at least one tick long and at most
 * 1000 s, `frequency_hz` at most 10 GHz; larger values would overflow.
 */
struct due_chain due_chain_start(uint64_t origin, uint64_t period_ns, uint64_t frequency_hz);

/* Advances by one period. */
void due_chain_step(struct due_chain *chain);

/* Moves `next` beyond `now` and returns how many due times (at or before `now`) that passed. */
uint64_t due_chain_advance(struct due_chain *chain, uint64_t now);

/* Conversions, rounded down. `frequency_hz` as above. */
uint64_t ticks_to_ns(uint64_t ticks, uint64_t frequency_hz);
uint64_t ns_to_ticks(uint64_t ns, uint64_t frequency_hz);

#endif
