/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "counters.h"

#include "blocks.h"
#include "symbols.h"
#include "util.h"
#include "exits.h"

#include <string.h>

/* Linux's functions in which a core only waits for another core. */
static struct spin spins[MAX_SPIN_FUNCTIONS] = {
    {0}, /* number 0 stands for none */
    {.function = "queued_spin_lock_slowpath"},
    {.function = "queued_read_lock_slowpath"},
    {.function = "queued_write_lock_slowpath"},
    {.function = "osq_lock"},
    {.function = "mutex_spin_on_owner"},
    {.function = "rwsem_spin_on_owner"},
    {.function = "smp_call_function_many_cond"},
    {.function = "smp_call_function_single"},
    {.function = "multi_cpu_stop"},
};
static int spin_count = 10;

void counters_add_spin_function(const char *name)
{
    if (spin_count == MAX_SPIN_FUNCTIONS)
        fail("--spin %s: at most %d functions", name, MAX_SPIN_FUNCTIONS - 1);
    spins[spin_count++].function = name;
}

uint8_t counters_spin_function(int el, uint64_t address)
{
    const char *name = symbols_find(el, address);

    if (name)
        for (int i = 1; i < spin_count; i++)
            if (!strcmp(name, spins[i].function))
                return (uint8_t)i;
    return 0;
}

void counters_copy_spins(struct spin to[MAX_SPIN_FUNCTIONS])
{
    memcpy(to, spins, sizeof(spins));
}

void counters_forget_spins(void)
{
    for (int i = 0; i < spin_count; i++)
        spins[i] = (struct spin){.function = spins[i].function};
}

/*
 * Of a class, bits 1:0: exception level; 7:2: lock function; 8, 9, 10: acknowledges, sends, checks for an
 * interrupt.
 */
#define CLASS_LEVEL 0x3
#define CLASS_SPIN_SHIFT 2
#define CLASS_SPIN 0x3f
#define CLASS_ACKNOWLEDGES 0x100
#define CLASS_SENDS 0x200
#define CLASS_LOOKS 0x400
/* No block has this class. */
#define CLASS_NONE 0x800

uint32_t counters_class(const struct block *block)
{
    return block->el | (uint32_t)block->spin << CLASS_SPIN_SHIFT |
           (block->acknowledges ? CLASS_ACKNOWLEDGES : 0) | (block->sends ? CLASS_SENDS : 0) |
           (block->looks ? CLASS_LOOKS : 0);
}

static int level_of(uint32_t class)
{
    return class & CLASS_LEVEL;
}

/* Counts what the core did since its class last changed. */
static void count_class(struct core *core)
{
    struct counters *counters = &core->counters;
    struct spin *spin = &spins[counters->class >> CLASS_SPIN_SHIFT & CLASS_SPIN];
    uint64_t instructions = core->executed - counters->class_since;
    uint64_t polled = counters->polled - counters->polled_before;

    counters->executed[level_of(counters->class)] += instructions;
    if (spin != spins) {
        spin->entries++;
        spin->instructions += instructions;
        spin->polled += polled;
        if (instructions + polled > spin->longest)
            spin->longest = instructions + polled;
    }
    counters->class_since = core->executed;
    counters->polled_before = counters->polled;
}

void counters_start(struct core *core)
{
    /* So the first block counts as a change. */
    core->counters.class = CLASS_NONE;
}

void counters_change(struct core *core, const struct block *next)
{
    struct counters *counters = &core->counters;
    uint32_t from = counters->class;

    if (core->executed)
        count_class(core);
    counters->class = next->class;
    if (from & CLASS_ACKNOWLEDGES)
        exits_acknowledged(core, core->last->acknowledges - 1);
    if (next->el == 2 && (level_of(from) != 2 || !core->executed))
        exits_begin(core, next);
    else if (next->el != 2 && level_of(from) == 2)
        exits_end(core, EXIT_RETURNS);
    else if (next->looks || from & CLASS_ACKNOWLEDGES)
        exits_looked(core, next->start);
}

void counters_polled(struct core *core, int64_t instructions)
{
    struct block *last = (struct block *)core->last;

    core->counters.polled += (uint64_t)instructions;
    last->polled += (uint64_t)instructions;
}

void counters_resumed(struct core *core)
{
    if (level_of(core->counters.class) == 2)
        exits_resume(core);
}

void counters_finish(struct core *core)
{
    if (core->executed)
        count_class(core);
    if (level_of(core->counters.class) == 2)
        exits_end(core, EXIT_UNFINISHED);
}
