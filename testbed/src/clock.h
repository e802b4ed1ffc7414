/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Virtual time: the only time that QEMU sees.
 *
 * Time advances only where schedule.c and boundary.c advance it: by the length of a round when
 * every core has had its quantum, and to the next timer when all cores sleep. While a core
 * executes, the instructions it has executed in its quantum are added.
 */
#ifndef CLOCK_H
#define CLOCK_H

#include <stdint.h>

/*
 * Sets the speed of a core in instructions per virtual microsecond, and the function that returns how
 * many instructions of its quantum the core that executes has executed. Call once, before any other.
 */
void clock_set_up(uint64_t instructions_per_us, int64_t (*progress)(void));

/* Nanoseconds since the virtual machine started. */
int64_t clock_now(void);

/* As clock_now(), on QEMU's scale, which starts elsewhere: for values that come from QEMU. */
int64_t clock_now_qemu(void);

/* When this round started. */
int64_t clock_round_start(void);

/* Advances time by what so many instructions take; the rounding error is carried over to the next call. */
void clock_advance(int64_t instructions);

/* Advances time to `to`, on the scale of clock_now(). An earlier time changes nothing. */
void clock_jump(int64_t to);

/* Number of instructions from the start of the round until the time is `at` or later. */
int64_t clock_instructions_until(int64_t at);

/* From now on no core reads a time before `at`. */
void clock_see(int64_t at);

/* The time that so many instructions take, in nanoseconds, rounded down. */
int64_t clock_ns(int64_t instructions);

/* The host's time since this process started, in seconds: for the report only. */
double clock_host_seconds(void);

#endif
