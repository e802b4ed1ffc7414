/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Rounds: each core executes a quantum of instructions, one core after the other, then virtual
 * time moves on by that quantum. So the cores run in parallel in virtual time, on one host thread,
 * and in the same order in every run.
 *
 * Everything here runs in the thread that runs the cores, or while that thread stands still.
 */
#ifndef SCHEDULE_H
#define SCHEDULE_H

#include "blocks.h"
#include "counters.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct core {
    void *cpu; /* QEMU's CPUState; NULL for the stand-in while no core executes */
    int index;
    uint64_t executed; /* instructions, since the start */
    /* `executed` at the virtual start of the quantum, and where the quantum is used up. */
    int64_t quantum_start, quantum_end;
    /*
     * Instructions that count for the next quantum already: a block went past the end of the last
     * quantum, or the core was interrupted and goes on in the same one.
     */
    int64_t carry;
    bool served;            /* has had its quantum in this round */
    bool polls;             /* waits with WFE or YIELD for the round to end */
    int64_t polls_from;     /* instructions of the quantum executed before that */
    bool slept;             /* left its quantum to wait for an interrupt, or powered off */
    int64_t slept_at;       /* instructions of this round that had passed by then */
    bool woken;             /* and something has woken it since */
    bool leaving;           /* was told to make room for the next core */
    const struct block *last; /* the block it executed last */
    struct counters counters;
};

struct schedule_totals {
    uint64_t rounds;
    uint64_t sleeps; /* times that all cores fell asleep */
    uint64_t hash;   /* of everything executed, in order, with the time of each quantum */
};

/*
 * Quantum in instructions. A seed other than 0 makes each round up to an eighth longer or shorter
 * and gives each core a start of its own: another lawful run of the same system.
 */
void schedule_set_up(uint64_t quantum, uint64_t seed);

/*
 * Writes a line for each quantum: time in nanoseconds, core, instructions it has executed, hash. Where
 * two runs differ for the first time is where to look for the reason.
 */
void schedule_set_trace(FILE *to);

/* Ends the run when virtual time has come to `at`, in nanoseconds. */
void schedule_set_end(int64_t at);

/* Makes the core with this index known. Called by the thread that runs the cores, for each once. */
void schedule_add_core(int index);

/*
 * Called at the start of every block, as QEMU calls back: counts the block and, when the quantum is
 * used up, ends it. `vcpu` is the core that QEMU translated the block for, not the one that executes.
 */
void schedule_block(unsigned vcpu, void *executed_block);

/* Called when no core executes any more: other parties may now use the time. */
void schedule_pause(void);

/* As schedule_pause(), and all cores sleep or have ended: what is left of the round is dropped. */
void schedule_sleep(void);

/*
 * Has the present round end when the next event is due, as far as it is known now. Called when no
 * core executes, after something may have set a timer.
 */
void schedule_limit_round(void);

/* The core that executes has just sent an interrupt: a sleeping core that it wakes goes on from now. */
void schedule_wake(void);

/* Has the quantum that runs end at this time, if that is within it: the core has set a timer. */
void schedule_cut(int64_t at);

/* Asks for an orderly end if its time has come. */
void schedule_check_end(void);

/* The time set by schedule_set_end(); NEVER if there is none, or if it has come. */
int64_t schedule_end(void);

/* Instructions of the current quantum that the current core has executed. */
int64_t schedule_progress(void);

/*
 * The time at which the current core was this many instructions ago, on its own time line: unlike
 * clock_now() it is not held back to what other cores have read.
 */
int64_t schedule_time_before(int64_t instructions);

/* The core that executes. */
struct core *schedule_core(void);

int schedule_cores(void);
struct core *schedule_core_at(int index);
const struct schedule_totals *schedule_totals(void);

/* Puts a value into the hash of the run. */
void schedule_hash(uint64_t value);

#endif
