/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * QEMU's main loop and the cores take turns.
 *
 * The main loop handles devices: bottom halves, file descriptors, timers other than the guest's.
 * Left alone it runs beside the cores, at moments that the host decides. Here it runs only while
 * the cores stand still at the end of a round, and only when there is something for it to do that
 * the guest (or a worker, workers.h) caused, or when virtual time has come to one of its timers.
 *
 * What comes from outside (a key, a network packet, a signal) still gets in, at the end of the
 * round in which it arrives. It is counted, since a run with such events need not be repeatable.
 */
#ifndef HANDOVER_H
#define HANDOVER_H

#include <stdbool.h>
#include <stdint.h>

/* Starts the taking of turns; main has the first one. */
void handover_start(void);

/* Whether they take turns. */
bool handover_has_started(void);

/* The calling thread will run the cores. What happened until now was part of building the machine. */
void handover_join(void);

/* Whether there is such a thread. */
bool handover_has_joined(void);

/* Whether main waits for its turn and has a reason to get it at this time. */
bool handover_is_wanted(int64_t now);

/* Whether main has the turn. */
bool handover_main_runs(void);

/* Whether main waits for its turn; else it runs, or waits for something that the cores must do. */
bool handover_main_waits(void);

/* When main wants the turn at the latest; NEVER if it waits for events only. */
int64_t handover_deadline(void);

/*
 * Waits until main has given the turn back, or waits for something that the cores must do. All
 * functions that wait are called by the thread that runs the cores, without the big lock.
 */
void handover_wait(void);

/* Gives main the turn. */
void handover_grant(void);

/*
 * All cores sleep, and either nothing will ever happen in virtual time or main is not ready to let it
 * pass: waits until that changes. `time_can_pass`: something of the cores' own is to come.
 */
void handover_wait_for_event(bool time_can_pass);

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

#endif
