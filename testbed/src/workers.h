/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Disk I/O in virtual time.
 *
 * QEMU's block layer gives reads, writes and flushes of an image file to worker threads, which take
 * as long as the host's disk takes. Here the cores wait at the end of a round until each worker either
 * sleeps or is held before its system call. Then all requests of that round get the virtual time at which
 * they may continue. When that time has come, the cores wait until the calls are done. So a request takes
 * a fixed virtual time, rounded up to a round.
 */
#ifndef WORKERS_H
#define WORKERS_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

/* The time that a read, write or flush takes, in nanoseconds. */
void workers_set_latency(int64_t latency);

/* Whether the cores must stop at this time for the workers: a request started, or a held worker may continue. */
bool workers_are_due(int64_t now);

/* When the next held worker may continue; NEVER: no worker is held. */
int64_t workers_deadline(void);

/*
 * Waits until all workers sleep or are held before a system call, and lets those continue whose time has
 * come. Returns whether there were any: then call it again.
 */
bool workers_settle(void);

/* Lets all workers finish their requests, whatever the time, and waits until they have. */
void workers_finish(void);

/* pthread_cond_signal(), of what may be the condition on which workers sleep. */
int workers_signal(pthread_cond_t *condition);

/* System calls that workers made. */
uint64_t workers_calls(void);

#endif
