/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "schedule.h"

#include "boundary.h"
#include "clock.h"
#include "qemu.h"
#include "util.h"

#include <inttypes.h>

/* How far a core that is put out of its quanta again and again may fall behind, in quanta. */
#define MAX_DEBT 4

static struct core cores[MAX_CORES];
static int core_count;
static uint64_t quantum = 1000;
static int64_t round_length = 1000; /* the quantum of this round */
static int64_t round_progress;      /* instructions of the core that got furthest in this round */
static int64_t end = NEVER;
static bool started, end_requested;
static uint64_t random_state; /* 0: no seed */
static struct schedule_totals totals = {.hash = 0xcbf29ce484222325};
static void *const volatile *current_cpu;
static FILE *trace;

/* Stands in while no core executes, so that the first block of any core counts as a change. */
static const struct block no_block = {.bytes = 1};
static struct core no_core = {.last = &no_block};
static struct core *running = &no_core;

/* The step of Fowler, Noll and Vo's hash, on whole words. */
void schedule_hash(uint64_t value)
{
    totals.hash = (totals.hash ^ value) * 0x100000001b3;
}

/* Marsaglia's xorshift generator. */
static uint64_t random_number(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

static int64_t next_round_length(void)
{
    uint64_t eighth = quantum / 8;

    if (!random_state)
        return (int64_t)quantum;
    return (int64_t)(quantum - eighth + random_number() % (2 * eighth + 1));
}

void schedule_set_up(uint64_t instructions, uint64_t seed)
{
    quantum = instructions;
    /* Neighbouring seeds must not give neighbouring sequences: spread the bits. */
    random_state = seed * 0x9e3779b97f4a7c15;
    if (random_state)
        for (int i = 0; i < 8; i++)
            random_number();
    round_length = next_round_length();
}

void schedule_set_trace(FILE *to)
{
    trace = to;
}

void schedule_set_end(int64_t at)
{
    end = at;
}

int64_t schedule_end(void)
{
    return end_requested ? NEVER : end;
}

void schedule_add_core(int index)
{
    struct core *core;

    if (index < 0 || index >= MAX_CORES)
        fail("core %d: at most %d cores are supported", index, MAX_CORES);
    core = &cores[index];
    current_cpu = qemu_current_cpu();
    core->cpu = qemu.get_cpu(index);
    core->index = index;
    core->last = &no_block;
    if (random_state)
        core->carry = (int64_t)(random_number() % quantum);
    counters_start(core);
    if (index >= core_count)
        core_count = index + 1;
}

static struct core *find_core(const void *cpu)
{
    for (int i = 0; i < core_count; i++)
        if (cores[i].cpu == cpu)
            return &cores[i];
    fail("a core that QEMU did not announce executes");
}

/* Accounts for the core that executed until now. */
static void leave(void)
{
    struct core *core = running;
    int64_t progress = (int64_t)core->executed - core->quantum_start;

    if (core == &no_core)
        return;
    if (progress > round_progress)
        round_progress = progress < round_length ? progress : round_length;
    core->leaving = false;
    if (progress >= round_length) {
        core->carry = progress - round_length;
    } else if (core->last->wait) {
        /* It waits: what is left of the quantum passes without it. */
        core->polls = core->last->yields;
        core->polls_from = progress > 0 ? progress : 0;
        core->carry = 0;
    } else {
        /* It goes on in this round if its turn comes again, else it has the rest to its credit. */
        core->carry = progress;
        core->served = false;
        core->interrupted = true;
    }
    running = &no_core;
}

/* Starts a new round `length` instructions after the start of the last one. */
static void new_round(int64_t length)
{
    clock_advance(length);
    for (int i = 0; i < core_count; i++) {
        struct core *core = &cores[i];

        if (core->interrupted) {
            core->carry -= length;
            if (core->carry < -MAX_DEBT * length)
                core->carry = -MAX_DEBT * length;
        }
        if (core->polls && core->polls_from < length)
            counters_polled(core, length - core->polls_from);
        core->polls = false;
        core->interrupted = false;
        core->served = false;
    }
    round_progress = 0;
    round_length = next_round_length();
}

static void end_round(struct core *next)
{
    totals.rounds++;
    new_round(round_length);
    schedule_check_end();
    if (boundary_is_due())
        boundary_request(next->cpu);
}

void schedule_check_end(void)
{
    if (end_requested || clock_now() < end)
        return;
    end_requested = true;
    qemu.system_shutdown_request(SHUTDOWN_CAUSE_HOST_QMP_QUIT);
}

/* Another core executes, or the same one in another quantum. */
static struct core *change(void)
{
    struct core *core = find_core(*current_cpu);

    leave();
    if (core->served)
        end_round(core);
    core->served = true;
    core->interrupted = false;
    core->quantum_start = (int64_t)core->executed - core->carry;
    core->quantum_end = core->quantum_start + round_length;
    core->carry = 0;
    running = core;
    schedule_hash((uint64_t)clock_now() << 4 | (uint64_t)core->index);
    if (trace)
        fprintf(trace, "%" PRId64 " %d %" PRIu64 " %016" PRIx64 "\n", clock_now(), core->index,
                core->executed, totals.hash);
    if (core->last->wait && !core->last->yields)
        counters_resumed(core);
    if (!started) {
        started = true;
        boundary_request(core->cpu);
    }
    return core;
}

/*
 * A block is counted when it starts. If it then touches a device, QEMU stops it there, executes
 * that one instruction in a block of its own (for which this plugin is not called) and goes on with
 * a new block behind it: what the first block did not execute must be taken back.
 *
 * So a block that starts within the last one follows a device access, unless the last block
 * branched there. A return never leads into its own block, since what it returns to starts one; an
 * indirect branch may, and is believed.
 */
static void take_back(struct core *core, const struct block *block)
{
    struct block *last = (struct block *)core->last;
    uint64_t done = (block->start - last->start) / 4;
    uint64_t excess = last->instructions - done;

    if (last->el != block->el || last->indirect || last->target == block->start)
        return;
    core->executed -= excess;
    last->taken_back += excess;
}

void schedule_block(struct block *block)
{
    struct core *core = running;

    if (unlikely(*current_cpu != core->cpu || core->leaving || core->last->yields))
        core = change();
    if (unlikely(block->start - core->last->start - 1 < (uint64_t)core->last->bytes - 1))
        take_back(core, block);
    if (unlikely(block->class != core->counters.class))
        counters_change(core, block);
    core->executed += block->instructions;
    core->last = block;
    block->runs++;
    schedule_hash(block->id);
    if (unlikely((int64_t)core->executed >= core->quantum_end)) {
        core->quantum_end = INT64_MAX;
        core->leaving = true;
        qemu.cpu_exit(core->cpu);
    }
}

void schedule_pause(void)
{
    leave();
}

void schedule_sleep(void)
{
    leave();
    if (!round_progress)
        return;
    totals.sleeps++;
    new_round(round_progress);
}

int64_t schedule_progress(void)
{
    int64_t progress = (int64_t)running->executed - running->quantum_start;

    if (running == &no_core || progress < 0)
        return 0;
    return progress < round_length ? progress : round_length;
}

int64_t schedule_time_before(int64_t instructions)
{
    return clock_round_start() +
           clock_ns((int64_t)running->executed - running->quantum_start - instructions);
}

struct core *schedule_core(void)
{
    return running;
}

int schedule_cores(void)
{
    return core_count;
}

struct core *schedule_core_at(int index)
{
    return &cores[index];
}

const struct schedule_totals *schedule_totals(void)
{
    return &totals;
}
