/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Disk I/O in virtual time.
 *
 * QEMU's block layer gives reads, writes and flushes of an image file to worker threads, which end
 * when the host's disk pleases. Here the cores wait at the end of a round until each worker either
 * sleeps or stands before its system call; from then on the request has a virtual time at which it
 * may go on, the same for all requests of that round; and when that time has come, the cores wait
 * until the call is done. So a request takes a fixed virtual time, rounded up to a round.
 */
#ifndef WORKERS_H
#define WORKERS_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

/* The time that a read, write or flush takes, in nanoseconds. */
void workers_set_latency(int64_t latency);

/* Whether the cores must stop at this time to look after the workers: they started, or may go on. */
bool workers_are_due(int64_t now);

/* When the next worker may go on; NEVER: none stands before a system call. */
int64_t workers_deadline(void);

/*
 * Waits until all workers sleep or stand before a system call, and lets those go on whose time has
 * come. Returns whether there were any: then there may be more to do.
 */
bool workers_settle(void);

/* Lets all workers finish what they have, whatever the time, and waits for that. */
void workers_finish(void);

/* pthread_cond_signal(), of what may be the condition on which workers sleep. */
int workers_signal(pthread_cond_t *condition);

/* System calls that workers made. */
uint64_t workers_calls(void);

#endif
