/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "schedule.h"

#include "blocks.h"
#include "clock.h"
#include "counters.h"
#include "qemu.h"
#include "trail.h"
#include "util.h"

#include <inttypes.h>

static struct core cores[MAX_CORES];
static int core_count;
static uint64_t quantum = 1000;
static int64_t full_length = 1000;  /* the quantum of this round, if there is no event before its end */
static int64_t round_length = 1000; /* the quantum of this round: up to the next event */
static int64_t event = NEVER;       /* time of the next event */
static const struct schedule_events *events;
static bool cut; /* this quantum ends before the round: the core has set a timer */
static int64_t round_progress;      /* most instructions that a core has executed in this round */
static int64_t end = NEVER;
static bool end_requested;
static uint64_t random_state; /* 0: no seed */
static struct schedule_totals totals = {.hash = 0xcbf29ce484222325};
static void *const volatile *current_cpu;
static FILE *trace;

/* Placeholder while no core executes, so that the first block of any core counts as a change. */
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
    full_length = round_length = next_round_length();
}

void schedule_set_events(const struct schedule_events *source)
{
    events = source;
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

/* Whether the core executes when its turn comes: it neither sleeps nor is off. */
static bool is_ready(const struct core *core)
{
    return !qemu.cpu_thread_is_idle(core->cpu);
}

static struct core *find_core(const void *cpu)
{
    for (int i = 0; i < core_count; i++)
        if (cores[i].cpu == cpu)
            return &cores[i];
    fail("a core that QEMU did not announce executes");
}

/* Ends the turn of the core that executed until now. */
static void leave(void)
{
    struct core *core = running;
    int64_t progress = (int64_t)core->executed - core->quantum_start;

    if (core == &no_core)
        return;
    if (progress > round_progress)
        round_progress = progress < round_length ? progress : round_length;
    core->leaving = false;
    if (core->last->sends)
        schedule_wake();
    core->slept = !is_ready(core);
    if (core->slept) {
        core->slept_at = progress;
        core->carry = 0;
    } else if (progress >= round_length) {
        core->carry = progress - round_length;
    } else if (core->last->yields) {
        /* The core loses the rest of its quantum. */
        core->polls = true;
        core->polls_from = progress;
        core->carry = 0;
    } else {
        /* Was interrupted, and continues in this round. */
        core->carry = progress;
        core->served = false;
    }
    running = &no_core;
}

void schedule_limit_round(void)
{
    int64_t until;

    event = events->next();
    until = clock_instructions_until(event);
    if (until > full_length)
        until = full_length;
    /* Longer only if no core has had its quantum yet. */
    if (until > round_progress && (until < round_length || !round_progress))
        round_length = until;
    /* Events at this time have woken them: an SGI later in the round does not wake them again. */
    for (int i = 0; i < core_count; i++)
        cores[i].woken |= cores[i].slept && is_ready(&cores[i]);
}

void schedule_wake(void)
{
    /* May be past the end of the round, if the last block is: then the core continues in the next round. */
    int64_t at = (int64_t)running->executed - running->quantum_start;

    for (int i = 0; i < core_count; i++) {
        struct core *core = &cores[i];

        if (!core->slept || core->woken || !is_ready(core))
            continue;
        core->woken = true;
        core->served = false;
        core->carry = at > core->slept_at ? at : core->slept_at;
    }
}

/* Starts a new round `length` instructions after the start of the last one. */
static void new_round(int64_t length)
{
    clock_advance(length);
    for (int i = 0; i < core_count; i++) {
        struct core *core = &cores[i];

        if (core->polls && core->polls_from < length)
            counters_polled(core, length - core->polls_from);
        core->polls = false;
        core->served = false;
        core->slept_at = 0;
    }
    round_progress = 0;
    full_length = round_length = next_round_length();
    schedule_check_end();
    schedule_limit_round();
}

void schedule_check_end(void)
{
    if (end_requested || clock_now() < end)
        return;
    end_requested = true;
    qemu.system_shutdown_request(SHUTDOWN_CAUSE_HOST_QMP_QUIT);
}

/*
 * Whether it is this core's turn. QEMU goes through the cores in order, but starts behind one that
 * was interrupted. Here each round goes through them in order, so the first core always reads the exact
 * time (see clock.c).
 */
static bool is_in_turn(const struct core *core)
{
    const struct core *behind = core->served ? cores + core_count : core;

    for (const struct core *other = cores; other < behind; other++)
        if (other != core && !other->served && is_ready(other))
            return false;
    return true;
}

/* Ends the turn of the core before it has executed anything. `from`: return address in the code of the block. */
_Noreturn static void send_back(struct core *core, const void *from)
{
    qemu.cpu_exit(core->cpu);
    qemu.cpu_loop_exit_restore(core->cpu, (uintptr_t)from);
}

/* Another core executes, or the same one in another quantum. */
static __attribute__((noinline)) struct core *change(const void *from)
{
    struct core *core = find_core(*current_cpu);
    bool first = !totals.rounds;

    leave();
    if (!is_in_turn(core))
        send_back(core, from);
    if (core->served || first) {
        totals.rounds++;
        new_round(first ? 0 : round_length);
        if (first || events->is_due(clock_round_start(), event)) {
            events->request(core->cpu);
            send_back(core, from);
        }
    }
    core->served = true;
    if (core->carry >= round_length) {
        /* Its last block was longer than the rest of that round and all of this one. */
        core->carry -= round_length;
        send_back(core, from);
    }
    core->quantum_start = (int64_t)core->executed - core->carry;
    core->quantum_end = core->quantum_start + round_length;
    core->carry = 0;
    running = core;
    cut = false;
    schedule_hash((uint64_t)clock_now() << 4 | (uint64_t)core->index);
    if (trace)
        fprintf(trace, "%" PRId64 " %d %" PRIu64 " %016" PRIx64 "\n", clock_now(), core->index,
                core->executed, totals.hash);
    if (core->slept)
        counters_resumed(core);
    core->slept = core->woken = false;
    return core;
}

/* The core executes the last block of its quantum. */
static __attribute__((noinline)) void end_quantum(struct core *core)
{
    core->quantum_end = INT64_MAX;
    core->leaving = true;
    if (cut)
        events->request(core->cpu);
    else
        qemu.cpu_exit(core->cpu);
}

/*
 * A block is counted when it starts. If it then touches a device, QEMU stops it there, executes
 * that one instruction in a block of its own (for which this plugin is not called) and continues with
 * a new block behind it. What the first block did not execute must be taken back.
 *
 * So a block that starts within the last one follows a device access, unless the last block
 * branched there. A return never leads into its own block, since what it returns to starts one; an
 * indirect branch may, so nothing is taken back after one.
 */
static __attribute__((noinline)) void take_back(struct core *core, const struct block *block)
{
    struct block *last = (struct block *)core->last;
    uint64_t done = (block->start - last->start) / 4;
    uint64_t excess = last->instructions - done;

    if (last->el != block->el || last->indirect || last->target == block->start)
        return;
    core->executed -= excess;
    last->taken_back += excess;
}

void schedule_block(unsigned vcpu, void *executed_block)
{
    struct block *block = executed_block;
    struct core *core = running;

    (void)vcpu;
    if (unlikely(*current_cpu != core->cpu || core->leaving || core->last->yields))
        core = change(__builtin_return_address(0));
    if (unlikely(block->start - core->last->start - 1 < (uint64_t)core->last->bytes - 1))
        take_back(core, block);
    if (unlikely(block->class != core->counters.class)) {
        counters_change(core, block);
        if (core->last->sends)
            schedule_wake();
    }
    core->executed += block->instructions;
    core->last = block;
    block->runs++;
    if (unlikely(trails_recorded) && block->el == 2)
        trail_add(core, block);
    schedule_hash(block->id);
    if (unlikely((int64_t)core->executed >= core->quantum_end))
        end_quantum(core);
}

void schedule_cut(int64_t at)
{
    struct core *core = running;
    int64_t end_of_quantum = core->quantum_start + clock_instructions_until(at);

    if (core == &no_core || clock_instructions_until(at) >= round_length ||
        end_of_quantum >= core->quantum_end)
        return;
    core->quantum_end = end_of_quantum;
    cut = true;
}

void schedule_pause(void)
{
    /* The core has set a timer within its quantum, and the timer is due now. */
    if (cut && running != &no_core)
        clock_see(core_time_before(running, 0));
    cut = false;
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
