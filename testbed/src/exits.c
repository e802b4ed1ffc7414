/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "exits.h"

#include "registers.h"

#include <stdio.h>
#include <string.h>

/* Arm Architecture Reference Manual, D1.3.1: the table is 2 KiB, an entry 128 bytes. */
#define VECTOR_TABLE_SIZE 0x800
#define VECTOR_SIZE 0x80
#define VECTOR_LOWER_SYNC 8
#define VECTOR_LOWER_SYNC_AARCH32 12
/* ESR_EL2, D19.2.37 (exception classes and the syndrome of a system register access). */
#define ESR_EC_SHIFT 26
#define ESR_EC_MASK 0x3f
#define EC_HVC64 0x16
#define EC_SMC64 0x17
#define EC_SYSREG 0x18
#define ISS_SYSREG_MASK 0x3ffc1e /* Op0, Op2, Op1, CRn, CRm: all but Rt and the direction */
#define ISS_SYSREG_READ 1

/* ICC_IAR1_EL1, 12.11.24 of the GIC's specification. */
#define IAR_INTID_MASK 0xffffff

static struct exit_sum sums[EXIT_CAUSES];
static bool reads_causes = true;

void exits_read_causes(bool yes)
{
    reads_causes = yes;
}

static bool is_same(const struct exit_cause *a, const struct exit_cause *b)
{
    return a->kind == b->kind && a->vector == b->vector && a->class == b->class &&
           a->detail == b->detail && a->intid == b->intid && a->end == b->end &&
           a->steps == b->steps;
}

static struct exit_sum *find_sum(const struct exit_cause *cause)
{
    struct exit_sum *sum = sums;

    for (; sum < sums + EXIT_CAUSES - 1 && sum->cause.kind; sum++)
        if (is_same(&sum->cause, cause))
            return sum;
    /* The last place collects the rest. */
    if (!sum->cause.kind)
        sum->cause = *cause;
    return sum;
}

static void begin(struct core *core, const struct exit_cause *cause, uint64_t address)
{
    if (trails_recorded)
        trail_begin(core);
    core->counters.exit = (struct exit){
        .cause = *cause,
        .begun = core->executed,
        .looked = core->executed,
        .looked_in = address,
        .passed = core->executed,
        .at = core_time_before(core, 0),
        .guest = reads_causes ? registers_read(REGISTER_VTTBR_EL2) : 0,
    };
}

/* Why the core is about to execute this block at EL2, coming from a lower level. */
static struct exit_cause read_cause(const struct core *core, const struct block *first)
{
    struct exit_cause cause = {.kind = EXIT_START};
    uint64_t table = first->start & -(uint64_t)VECTOR_TABLE_SIZE;
    uint64_t syndrome;

    if (!core->executed)
        return cause;
    cause.kind = EXIT_EXCEPTION;
    if (!reads_causes)
        return cause;
    if (first->start % VECTOR_SIZE || table != registers_read(REGISTER_VBAR_EL2)) {
        cause.kind = EXIT_START;
        return cause;
    }
    cause.vector = (uint8_t)(first->start % VECTOR_TABLE_SIZE / VECTOR_SIZE);
    if (cause.vector != VECTOR_LOWER_SYNC && cause.vector != VECTOR_LOWER_SYNC_AARCH32)
        return cause;
    syndrome = registers_read(REGISTER_ESR_EL2);
    cause.class = (uint8_t)(syndrome >> ESR_EC_SHIFT & ESR_EC_MASK);
    if (cause.class == EC_HVC64 || cause.class == EC_SMC64)
        cause.detail = (uint32_t)registers_read(REGISTER_X0);
    else if (cause.class == EC_SYSREG)
        cause.detail = (uint32_t)syndrome & (ISS_SYSREG_MASK | ISS_SYSREG_READ);
    return cause;
}

void exits_begin(struct core *core, const struct block *first)
{
    struct exit_cause cause = read_cause(core, first);

    begin(core, &cause, first->start);
}

void exits_acknowledged(struct core *core, int general)
{
    struct exit_cause *cause = &core->counters.exit.cause;
    uint32_t intid;

    if (!reads_causes || cause->intid)
        return;
    intid = (uint32_t)registers_read(REGISTER_X0 + general) & IAR_INTID_MASK;
    cause->intid = intid + 1;
}

void exits_looked(struct core *core, uint64_t address)
{
    struct exit *open = &core->counters.exit;
    uint64_t deaf = core->executed - open->looked;

    if (deaf > open->deaf.instructions) {
        open->deaf = (struct exit_stretch){deaf, open->looked_in, address};
        open->deaf_from = open->looked_after;
        open->deaf_to = trail_length(core);
    }
    open->looked = core->executed;
    open->looked_after = trail_length(core);
    open->looked_in = address;
}

void exits_step(struct core *core, int step, uint64_t executed)
{
    struct exit *open = &core->counters.exit;

    if (!reads_causes || open->cause.kind == EXIT_NONE || open->cause.steps >> step & 1)
        return;
    open->cause.steps |= (uint16_t)(1 << step);
    open->steps[step] = executed - open->passed;
    open->passed = executed;
}

static void add_part(struct exit_part *part, uint64_t instructions)
{
    part->sum += instructions;
    if (instructions > part->most)
        part->most = instructions;
}

void exits_end(struct core *core, enum exit_end how)
{
    struct exit *open = &core->counters.exit;
    uint64_t instructions = core->executed - open->begun;
    struct exit_sum *sum;
    int bucket = 0;

    if (open->cause.kind == EXIT_NONE)
        return;
    if (!reads_causes)
        how = EXIT_RETURNS;
    else if (how == EXIT_RETURNS)
        how = registers_read(REGISTER_VTTBR_EL2) == open->guest ? EXIT_STAYS : EXIT_SWITCHES;
    open->cause.end = how;
    exits_looked(core, core->last->start);
    if (trails_recorded) {
        char name[EXIT_NAME];

        exits_describe(&open->cause, name, sizeof(name));
        trail_end(core, name, exits_end_name(&open->cause));
    }
    sum = find_sum(&open->cause);
    open->cause.kind = EXIT_NONE;
    while (bucket < EXIT_BUCKETS - 1 && instructions >> (bucket + 1))
        bucket++;
    sum->exits++;
    sum->instructions += instructions;
    sum->histogram[bucket]++;
    for (int step = 0; step < EXIT_STEPS; step++)
        if (open->cause.steps >> step & 1)
            add_part(&sum->steps[step], open->steps[step]);
    add_part(&sum->rest, core->executed - open->passed);
    if (open->deaf.instructions > sum->deaf.instructions) {
        sum->deaf = open->deaf;
        if (trails_recorded)
            trail_copy(core, open->deaf_from, open->deaf_to, &sum->deaf_trail);
    }
    if (instructions > sum->most) {
        sum->most = instructions;
        sum->most_at = open->at;
        sum->most_core = (uint8_t)core->index;
    }
}

void exits_resume(struct core *core)
{
    const struct exit_cause wake = {.kind = EXIT_WAKE};

    exits_end(core, EXIT_SLEEPS);
    begin(core, &wake, core->last->start);
}

const struct exit_sum *exits_sum(int number)
{
    return number < EXIT_CAUSES && sums[number].cause.kind ? &sums[number] : NULL;
}

const char *exits_end_name(const struct exit_cause *cause)
{
    static const char *const names[] = {
        [EXIT_UNFINISHED] = "unfinished",
        [EXIT_SLEEPS] = "sleeps",
        [EXIT_STAYS] = "stays",
        [EXIT_SWITCHES] = "switches",
        [EXIT_RETURNS] = NULL,
    };

    return names[cause->end];
}

/* Exception classes that can come from a lower level; others are shown by number. */
static const char *class_name(uint8_t class)
{
    switch (class) {
    case 0x00: return "unknown instruction";
    case 0x01: return "WFI or WFE";
    case 0x07: return "floating point";
    case EC_HVC64: return "HVC";
    case EC_SMC64: return "SMC";
    case EC_SYSREG: return "system register";
    case 0x19: return "SVE";
    case 0x20: return "instruction abort";
    case 0x22: return "PC alignment";
    case 0x24: return "data abort";
    case 0x30: return "breakpoint";
    case 0x32: return "software step";
    case 0x34: return "watchpoint";
    case 0x3c: return "BRK";
    default: return NULL;
    }
}

static void describe_synchronous(const struct exit_cause *cause, char *text, size_t length)
{
    const char *name = class_name(cause->class);
    uint32_t iss = cause->detail;

    if (!name)
        snprintf(text, length, "EC 0x%02x", cause->class);
    else if (cause->class == EC_HVC64 || cause->class == EC_SMC64)
        snprintf(text, length, "%s 0x%08x", name, cause->detail);
    else if (cause->class == EC_SYSREG)
        /* ISS: Op0 21:20, Op2 19:17, Op1 16:14, CRn 13:10, CRm 4:1. */
        snprintf(text, length, "%s S%u_%u_C%u_C%u_%u", iss & ISS_SYSREG_READ ? "MRS" : "MSR",
                 iss >> 20 & 3, iss >> 14 & 7, iss >> 10 & 15, iss >> 1 & 15, iss >> 17 & 7);
    else
        snprintf(text, length, "%s", name);
}

void exits_describe(const struct exit_cause *cause, char *text, size_t length)
{
    static const char *const types[] = {"synchronous", "IRQ", "FIQ", "SError"};
    static const char *const origins[] = {" from EL2 with SP_EL0", " from EL2", "", " from AArch32"};

    if (cause->kind == EXIT_START)
        snprintf(text, length, "start of a core");
    else if (cause->kind == EXIT_WAKE)
        snprintf(text, length, "wake from waiting at EL2");
    else if (!reads_causes)
        snprintf(text, length, "any");
    else if (cause->vector == VECTOR_LOWER_SYNC)
        describe_synchronous(cause, text, length);
    else
        snprintf(text, length, "%s%s", types[cause->vector % 4], origins[cause->vector / 4]);
}
