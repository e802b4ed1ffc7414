/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "visits.h"

#include "registers.h"
#include "schedule.h"

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

static struct visit_sum sums[VISIT_CAUSES];
static bool reads_causes = true;

void visits_read_causes(bool yes)
{
    reads_causes = yes;
}

static bool is_same(const struct visit_cause *a, const struct visit_cause *b)
{
    return a->kind == b->kind && a->vector == b->vector && a->class == b->class &&
           a->detail == b->detail && a->intid == b->intid && a->end == b->end &&
           a->steps == b->steps;
}

static struct visit_sum *find_sum(const struct visit_cause *cause)
{
    struct visit_sum *sum = sums;

    for (; sum < sums + VISIT_CAUSES - 1 && sum->cause.kind; sum++)
        if (is_same(&sum->cause, cause))
            return sum;
    /* The last place collects what finds no other. */
    if (!sum->cause.kind)
        sum->cause = *cause;
    return sum;
}

static void begin(struct core *core, const struct visit_cause *cause, uint64_t address)
{
    core->counters.visit = (struct visit){
        .cause = *cause,
        .begun = core->executed,
        .looked = core->executed,
        .looked_in = address,
        .passed = core->executed,
        .at = schedule_time_before(0),
        .guest = reads_causes ? registers_read(REGISTER_VTTBR_EL2) : 0,
    };
}

/* Why the core is about to execute this block at EL2, coming from a lower level. */
static struct visit_cause read_cause(const struct core *core, const struct block *first)
{
    struct visit_cause cause = {.kind = VISIT_START};
    uint64_t table = first->start & -(uint64_t)VECTOR_TABLE_SIZE;
    uint64_t syndrome;

    if (!core->executed)
        return cause;
    cause.kind = VISIT_EXCEPTION;
    if (!reads_causes)
        return cause;
    if (first->start % VECTOR_SIZE || table != registers_read(REGISTER_VBAR_EL2)) {
        cause.kind = VISIT_START;
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

void visits_enter(struct core *core, const struct block *first)
{
    struct visit_cause cause = read_cause(core, first);

    begin(core, &cause, first->start);
}

void visits_acknowledged(struct core *core, int general)
{
    struct visit_cause *cause = &core->counters.visit.cause;
    uint32_t intid;

    if (!reads_causes || cause->intid)
        return;
    intid = (uint32_t)registers_read(REGISTER_X0 + general) & IAR_INTID_MASK;
    cause->intid = intid + 1;
}

void visits_looked(struct core *core, uint64_t address)
{
    struct visit *visit = &core->counters.visit;
    uint64_t deaf = core->executed - visit->looked;

    if (deaf > visit->deaf.instructions)
        visit->deaf = (struct visit_stretch){deaf, visit->looked_in, address};
    visit->looked = core->executed;
    visit->looked_in = address;
}

void visits_step(struct core *core, int step, uint64_t executed)
{
    struct visit *visit = &core->counters.visit;

    if (!reads_causes || visit->cause.kind == VISIT_NONE || visit->cause.steps >> step & 1)
        return;
    visit->cause.steps |= (uint16_t)(1 << step);
    visit->steps[step] = executed - visit->passed;
    visit->passed = executed;
}

static void add_part(struct visit_part *part, uint64_t instructions)
{
    part->sum += instructions;
    if (instructions > part->most)
        part->most = instructions;
}

void visits_leave(struct core *core, enum visit_end how)
{
    struct visit *visit = &core->counters.visit;
    uint64_t instructions = core->executed - visit->begun;
    struct visit_sum *sum;
    int bucket = 0;

    if (visit->cause.kind == VISIT_NONE)
        return;
    if (!reads_causes)
        how = VISIT_RETURNS;
    else if (how == VISIT_RETURNS)
        how = registers_read(REGISTER_VTTBR_EL2) == visit->guest ? VISIT_STAYS : VISIT_SWITCHES;
    visit->cause.end = how;
    visits_looked(core, core->last->start);
    sum = find_sum(&visit->cause);
    visit->cause.kind = VISIT_NONE;
    while (bucket < VISIT_BUCKETS - 1 && instructions >> (bucket + 1))
        bucket++;
    sum->visits++;
    sum->instructions += instructions;
    sum->histogram[bucket]++;
    for (int step = 0; step < VISIT_STEPS; step++)
        if (visit->cause.steps >> step & 1)
            add_part(&sum->steps[step], visit->steps[step]);
    add_part(&sum->rest, core->executed - visit->passed);
    if (visit->deaf.instructions > sum->deaf.instructions)
        sum->deaf = visit->deaf;
    if (instructions > sum->most) {
        sum->most = instructions;
        sum->most_at = visit->at;
        sum->most_core = (uint8_t)core->index;
    }
}

void visits_resume(struct core *core)
{
    const struct visit_cause wake = {.kind = VISIT_WAKE};

    visits_leave(core, VISIT_SLEEPS);
    begin(core, &wake, core->last->start);
}

const struct visit_sum *visits_sum(int number)
{
    return number < VISIT_CAUSES && sums[number].cause.kind ? &sums[number] : NULL;
}

const char *visits_end(const struct visit_cause *cause)
{
    static const char *const names[] = {
        [VISIT_UNFINISHED] = "unfinished",
        [VISIT_SLEEPS] = "sleeps",
        [VISIT_STAYS] = "stays",
        [VISIT_SWITCHES] = "switches",
        [VISIT_RETURNS] = NULL,
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

static void describe_synchronous(const struct visit_cause *cause, char *text, size_t length)
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

void visits_describe(const struct visit_cause *cause, char *text, size_t length)
{
    static const char *const types[] = {"synchronous", "IRQ", "FIQ", "SError"};
    static const char *const origins[] = {" from EL2 with SP_EL0", " from EL2", "", " from AArch32"};

    if (cause->kind == VISIT_START)
        snprintf(text, length, "start of a core");
    else if (cause->kind == VISIT_WAKE)
        snprintf(text, length, "wake from waiting at EL2");
    else if (!reads_causes)
        snprintf(text, length, "any");
    else if (cause->vector == VECTOR_LOWER_SYNC)
        describe_synchronous(cause, text, length);
    else
        snprintf(text, length, "%s%s", types[cause->vector % 4], origins[cause->vector / 4]);
}
