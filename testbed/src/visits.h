/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Visits to EL2: how many instructions the hypervisor executes each time a core enters it, by the
 * cause of the entry.
 *
 * A visit is what a core executes at EL2 without a break. If it waits there (WFI in the
 * hypervisor's idle loop), the visit ends and another one begins when it goes on.
 *
 * A visit may pass steps, marks with the numbers from VISIT_STEP_FIRST on: then it counts apart from
 * those with the same cause that pass others, and the way to each step is known.
 */
#ifndef VISITS_H
#define VISITS_H

#include "blocks.h"

#include <stdint.h>

#define VISIT_CAUSES 512
#define VISIT_BUCKETS 24
/* Numbers of the marks that are steps of a visit, at EL2. */
#define VISIT_STEP_FIRST 0xff00
#define VISIT_STEPS 16

struct core;

/* Why EL2 was entered. */
enum visit_kind {
    VISIT_NONE,
    VISIT_START,     /* the core's first instructions: boot, or PSCI CPU_ON */
    VISIT_WAKE,      /* goes on after waiting at EL2 */
    VISIT_EXCEPTION, /* by the vector given */
};

/* How a visit ended. */
enum visit_end {
    VISIT_UNFINISHED, /* by the end of the run */
    VISIT_SLEEPS,     /* in WFI at EL2, or with the core off */
    VISIT_STAYS,      /* in the guest that it came from: VTTBR_EL2 is the same */
    VISIT_SWITCHES,   /* in another guest */
    VISIT_RETURNS,    /* in a guest, not known in which */
};

/* What tells one kind of visit from another. */
struct visit_cause {
    enum visit_kind kind;
    uint8_t vector; /* 0 to 15: offset from VBAR_EL2 divided by 0x80 */
    uint8_t class;  /* ESR_EL2.EC, of synchronous exceptions from a lower level */
    uint32_t detail; /* SMC, HVC: function (W0); system register access: its encoding; else 0 */
    uint32_t intid; /* of the interrupt acknowledged first, plus 1; 0: none */
    enum visit_end end;
    uint16_t steps; /* bit n: it passed step n */
};

/* Instructions on a part of the way, over all visits of one cause, and in the one with most. */
struct visit_part {
    uint64_t sum, most;
};

/* Instructions between two looks for interrupts, and the code at either end. */
struct visit_stretch {
    uint64_t instructions, from, to;
};

/* All visits of one cause. */
struct visit_sum {
    struct visit_cause cause;
    uint64_t visits, instructions;
    struct visit_stretch deaf; /* the longest without a look for interrupts */
    uint64_t most; /* instructions in the longest visit */
    int64_t most_at; /* when that visit began, in nanoseconds */
    uint8_t most_core;
    struct visit_part steps[VISIT_STEPS]; /* to each, from the one passed before it or the entry */
    struct visit_part rest; /* from the last step to the end */
    uint64_t histogram[VISIT_BUCKETS]; /* bucket i: 2^i to 2^(i+1) - 1 instructions */
};

/* The open visit of a core. */
struct visit {
    struct visit_cause cause; /* kind VISIT_NONE: there is none */
    uint64_t begun;           /* instructions the core had executed by then */
    uint64_t looked;          /* the same when it last looked for interrupts */
    uint64_t looked_in;       /* address of the code where it did */
    struct visit_stretch deaf; /* the longest without a look until then */
    int64_t at;
    uint64_t guest; /* VTTBR_EL2 */
    uint64_t passed;                /* instructions the core had executed at the last step */
    uint64_t steps[VISIT_STEPS];    /* instructions to each step that it passed, see struct visit_sum */
};

/* Whether to tell causes apart, which takes reading registers; without, all visits count as one. */
void visits_read_causes(bool yes);

void visits_enter(struct core *core, const struct block *first);
/* The core has read ICC_IAR1_EL1 into this general register. */
void visits_acknowledged(struct core *core, int general);
/* The core, which is at this address, looks for interrupts, with ISR_EL1, or has just looked with ICC_IAR1_EL1. */
void visits_looked(struct core *core, uint64_t address);
/* The core, which had executed so many instructions before, passes a step of its visit. Only its first
   pass counts. */
void visits_step(struct core *core, int step, uint64_t executed);
/* `how` is VISIT_RETURNS if the core goes to a lower level. */
void visits_leave(struct core *core, enum visit_end how);
void visits_resume(struct core *core);

/* By number, from 0; NULL behind the last one. */
const struct visit_sum *visits_sum(int number);

/* A name for people, in `text`. */
void visits_describe(const struct visit_cause *cause, char *text, size_t length);

/* How the visit ended, in a word; NULL: not known. */
const char *visits_end(const struct visit_cause *cause);

#endif
