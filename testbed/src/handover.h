/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * QEMU's main loop ("main") and the thread that runs the cores take turns.
 *
 * The main loop handles devices: bottom halves, file descriptors, timers other than the guest's.
 * In plain QEMU it runs concurrently with the cores, at times that depend on the host. Here it runs only
 * while the cores are stopped at the end of a round, and only if the guest (or a worker, workers.h) has
 * made work for it, or one of its timers has expired in virtual time.
 *
 * What comes from outside (a key, a network packet, a signal) is let in at the end of the
 * round in which it arrives, or after a second of host time if the round does not end, and counted: a run with such events may not be repeatable.
 */
#ifndef HANDOVER_H
#define HANDOVER_H

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

/*
 * How main has the cores stop when something has come from outside and the round does not end. `interrupt` is
 * called in main's thread, while the cores run.
 */
void handover_set_interrupt(void (*interrupt)(void));

/* From now on both take turns; main has the first turn. */
void handover_start(void);

/* Whether they take turns. */
bool handover_has_started(void);

/* The calling thread will run the cores. Outside events up to now were part of building the machine and do not count. */
void handover_join(void);

/* Whether there is such a thread. */
bool handover_has_joined(void);

/* Whether main waits for its turn and has work at this time. */
bool handover_is_wanted(int64_t now);

/* Whether main has the turn. */
bool handover_main_runs(void);

/* Whether main waits for its turn; else main runs, or waits for something that the cores must do. */
bool handover_main_waits(void);

/* When main needs the turn at the latest; NEVER if it waits for events only. */
int64_t handover_deadline(void);

/*
 * Waits until main has given the turn back, or waits for something that the cores must do. All
 * functions that wait are called by the thread that runs the cores, without the big lock.
 */
void handover_wait(void);

/* Gives main the turn. */
void handover_grant(void);

/*
 * All cores sleep, and either there is no event in virtual time, or main does not wait for its turn, so time
 * must not advance: waits until that changes. `time_can_pass`: there is an event in
 * virtual time. `is_due`: whether workers need the cores to stop at this time.
 */
void handover_wait_for_event(bool time_can_pass, bool (*is_due)(int64_t now));

/* Wakes the thread that runs the cores if it waits in one of the functions above. */
void handover_notify(void);

/* A worker, or the thread that runs the cores, made work for main. */
void handover_nudge(void);

/* Something happened that the guest did not cause. */
void handover_outside_event(void);

/* Number of such events. */
uint64_t handover_outside_events(void);

/*
 * QEMU's condition on which the cores wait while all are idle was signalled. The flag is cleared
 * by handover_take_kick().
 */
bool handover_take_kick(void);

/* The condition on which the cores wait while all are idle. */
void handover_set_halt_condition(const pthread_cond_t *condition);

/* pthread_cond_wait() of the main loop: it waits for something that the cores must do. */
int handover_wait_for_cores(pthread_cond_t *condition, pthread_mutex_t *mutex);

/* The calling thread is about to signal this condition. */
void handover_note_signal(const pthread_cond_t *condition);

/* An event descriptor: only QEMU's own threads write to it, so what arrives there is no event from outside. */
void handover_add_internal(int fd);
bool handover_is_internal(int fd);

/*
 * ppoll() of the main loop without the big lock: waits for its turn. `timeout` is in nanoseconds, NEVER
 * for none.
 */
int handover_poll(struct pollfd *fds, nfds_t count, int64_t timeout, const sigset_t *mask);

#endif
