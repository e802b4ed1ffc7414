/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Rounds: each core executes a quantum of instructions, one core after the other, then virtual
 * time advances by that quantum. So the cores run in parallel in virtual time, on one host thread,
 * and in the same order in every run.
 *
 * Everything here runs in the thread that runs the cores, or while that thread is stopped.
 */
#ifndef SCHEDULE_H
#define SCHEDULE_H

#include "core.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct schedule_totals {
    uint64_t rounds;
    uint64_t sleeps; /* times that all cores fell asleep */
    uint64_t hash;   /* of all blocks executed, in order, and of the start of each quantum */
};

/*
 * Quantum in instructions. A seed other than 0 makes each round up to an eighth longer or shorter
 * and gives each core another start: another possible run of the same system.
 */
void schedule_set_up(uint64_t quantum, uint64_t seed);

/* What the scheduler asks about events between rounds; boundary.c answers. */
struct schedule_events {
    /* The next time at which anything happens, as far as it is known now; NEVER if nothing will. */
    int64_t (*next)(void);
    /* Whether anything is due at this time, if next() was `event` when the round started. Called once a round. */
    bool (*is_due)(int64_t at, int64_t event);
    /* Has everything that is due done as soon as the core that executes has finished its block. */
    void (*request)(void *cpu);
};

void schedule_set_events(const struct schedule_events *source);

/*
 * Writes a line for each quantum: time in nanoseconds, core, instructions it has executed, hash. Where
 * two runs differ for the first time is where to look for the reason.
 */
void schedule_set_trace(FILE *to);

/* Ends the run when virtual time has come to `at`, in nanoseconds. */
void schedule_set_end(int64_t at);

/* Adds the core with this index. Called once for each core, by the thread that runs the cores. */
void schedule_add_core(int index);

/*
 * Called at the start of every block, as QEMU calls back: counts the block and, when the quantum is
 * used up, ends it. `vcpu` is the core that QEMU translated the block for, not the one that executes.
 */
void schedule_block(unsigned vcpu, void *executed_block);

/* Called when no core executes any more: now the main loop and workers may run. */
void schedule_pause(void);

/* As schedule_pause(), and all cores sleep or have ended: the rest of the round is skipped. */
void schedule_sleep(void);

/*
 * Has the present round end when the next event is due, as far as it is known now. Called when no
 * core executes, after something may have set a timer.
 */
void schedule_limit_round(void);

/* The core that executes has just sent an interrupt: a sleeping core that it wakes continues from now. */
void schedule_wake(void);

/* The core that executes has set a timer: its quantum ends at this time, if that is within it. */
void schedule_cut(int64_t at);

/* Shuts the machine down if the time set by schedule_set_end() has come. */
void schedule_check_end(void);

/* The time set by schedule_set_end(); NEVER if there is none, or if it is over. */
int64_t schedule_end(void);

/* Instructions of the current quantum that the current core has executed. */
int64_t schedule_progress(void);

/* The core that executes. */
struct core *schedule_core(void);

int schedule_cores(void);
struct core *schedule_core_at(int index);
const struct schedule_totals *schedule_totals(void);

/* Puts a value into the hash of the run. */
void schedule_hash(uint64_t value);

#endif
