/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Virtual time: the only time that QEMU sees.
 *
 * Time stands still except where schedule.c and boundary.c move it: by the length of a round when
 * every core has had its quantum, and to the next timer when all cores sleep. While a core
 * executes, the instructions it has executed in its quantum are added.
 */
#ifndef CLOCK_H
#define CLOCK_H

#include <stdint.h>

/* Sets the speed of a core in instructions per virtual microsecond. Call once, before any other. */
void clock_set_speed(uint64_t instructions_per_us);

/* Nanoseconds since the virtual machine started. */
int64_t clock_now(void);

/* As clock_now(), on QEMU's scale, which starts elsewhere: for values that come from QEMU. */
int64_t clock_now_qemu(void);

/* When the present round started. */
int64_t clock_round_start(void);

/* Moves time on by what so many instructions take; the rounding error is carried, not lost. */
void clock_advance(int64_t instructions);

/* Moves time on to a later moment, given as clock_now() counts. An earlier moment changes nothing. */
void clock_jump(int64_t to);

/* How many instructions after the start of the round it is `at` or later. */
int64_t clock_instructions_until(int64_t at);

/* Lets nobody read an earlier time any more. */
void clock_see(int64_t at);

/* What so many instructions take, in nanoseconds, rounded down. */
int64_t clock_ns(int64_t instructions);

/* The host's own time since this process started, in seconds: for the report only. */
double clock_host_seconds(void);

#endif
