/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the plugin stores about a core. schedule.c owns the cores.
 */
#ifndef CORE_H
#define CORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define EXCEPTION_LEVELS 4
/* Steps of an exit to EL2, see exits.h. */
#define EXIT_STEPS 16

/* Why EL2 was entered. */
enum exit_kind {
    EXIT_NONE,
    EXIT_START,     /* the core's first instructions: boot, or PSCI CPU_ON */
    EXIT_WAKE,      /* continues after waiting at EL2 */
    EXIT_EXCEPTION, /* an exception, by the vector given */
};

/* How an exit ended. */
enum exit_end {
    EXIT_UNFINISHED, /* by the end of the run */
    EXIT_SLEEPS,     /* in WFI at EL2, or with the core off */
    EXIT_STAYS,      /* in the guest that the exit came from: VTTBR_EL2 is the same */
    EXIT_SWITCHES,   /* in another guest */
    EXIT_RETURNS,    /* in a guest that is not known */
};

/* Exits are counted separately for each of these. */
struct exit_cause {
    enum exit_kind kind;
    uint8_t vector; /* 0 to 15: offset from VBAR_EL2 divided by 0x80 */
    uint8_t class;  /* ESR_EL2.EC, of synchronous exceptions from a lower level */
    uint32_t detail; /* SMC, HVC: function (W0); system register access: its encoding; else 0 */
    uint32_t intid; /* of the interrupt acknowledged first, plus 1; 0: none */
    enum exit_end end;
    uint16_t steps; /* bit n: the exit passed step n */
};

/* Instructions of a part of the exits with one cause: their sum, and the largest number. */
struct exit_part {
    uint64_t sum, most;
};

/* Instructions between two checks for interrupts, and the addresses of the code at either end. */
struct exit_stretch {
    uint64_t instructions, from, to;
};

/* The exit that a core handles. */
struct exit {
    struct exit_cause cause; /* kind EXIT_NONE: there is none */
    uint64_t begun;           /* instructions the core had executed when it began */
    uint64_t looked;          /* the same when it last checked for interrupts */
    uint64_t looked_in;       /* address of the code that checked */
    struct exit_stretch deaf; /* the longest without a check so far */
    size_t looked_after;      /* blocks executed before the last check, see trail.h */
    size_t deaf_from, deaf_to; /* the same at either end of the longest stretch */
    int64_t at;
    uint64_t guest; /* VTTBR_EL2 */
    uint64_t passed;                /* instructions the core had executed at the last step */
    uint64_t steps[EXIT_STEPS];    /* instructions to each step that the exit passed, see struct exit_sum */
};

struct counters {
    uint32_t class;       /* of the block executed last */
    uint64_t class_since; /* instructions the core had executed when this class began */
    uint64_t executed[EXCEPTION_LEVELS];
    uint64_t polled; /* time lost by WFE and YIELD, in instructions */
    uint64_t polled_before; /* `polled` when this class began */
    struct exit exit;
};

struct block;

struct core {
    void *cpu; /* QEMU's CPUState; NULL in the placeholder for the time when no core executes */
    int index;
    uint64_t executed; /* instructions, since the start */
    /* `executed` at the virtual start of the quantum, and at its end. */
    int64_t quantum_start, quantum_end;
    /*
     * Instructions that already count for the next quantum: a block went past the end of the last
     * quantum, or the core was interrupted and continues in the same one.
     */
    int64_t carry;
    bool served;            /* has had its quantum in this round */
    bool polls;             /* waits with WFE or YIELD for the round to end */
    int64_t polls_from;     /* instructions of the quantum executed before that */
    bool slept;             /* left its quantum to sleep in WFI, or is powered off */
    int64_t slept_at;       /* how far into this round, in instructions */
    bool woken;             /* was woken after that */
    bool leaving;           /* must let the next core execute */
    const struct block *last; /* the block that the core executed last */
    struct counters counters;
};

/*
 * The time at which the core was this many instructions ago, on its own time line: unlike clock_now() it
 * is not raised to the latest time that another core has read.
 */
int64_t core_time_before(const struct core *core, int64_t instructions);

#endif
