/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "boundary.h"

#include "clock.h"
#include "handover.h"
#include "qemu.h"
#include "schedule.h"
#include "util.h"
#include "workers.h"

/* Nanoseconds until the guest's next timer; NEVER if none is set. */
static int64_t until_timer(void)
{
    int64_t ns = qemu.clock_deadline_ns_all(QEMU_CLOCK_VIRTUAL, QEMU_TIMER_ATTR_ALL);

    return ns < 0 ? NEVER : ns;
}

static int64_t earlier(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t next_timer(void)
{
    int64_t ns = until_timer();

    return ns == NEVER ? NEVER : clock_now() + ns;
}

static int64_t next_event(void)
{
    int64_t next = earlier(next_timer(), handover_deadline());

    next = earlier(next, workers_deadline());
    return earlier(next, schedule_end());
}

static bool is_due(int64_t at, int64_t event)
{
    return event <= at || handover_main_runs() || handover_is_wanted(at) || workers_are_due(at);
}

void boundary_nudge(void)
{
    handover_nudge();
    schedule_cut(next_timer());
}

/*
 * Lets the workers and the main loop do all their work of this time. The workers come first, so that main sees
 * all that they complete at once and in one order. The caller holds the big lock.
 */
static void let_others_run(void)
{
    qemu.bql_unlock();
    for (;;) {
        handover_wait();
        if (workers_settle())
            continue;
        if (!handover_is_wanted(clock_now()))
            break;
        handover_grant();
    }
    qemu.bql_lock(__FILE__, __LINE__);
}

/* Does everything that is due at this time. */
static void do_what_is_due(void)
{
    do
        let_others_run();
    while (until_timer() == 0 && qemu.clock_run_timers(QEMU_CLOCK_VIRTUAL));
}

/* QEMU calls this outside of all cores, with the big lock held. */
static void work(void *cpu, run_on_cpu_data data)
{
    (void)cpu;
    (void)data;
    schedule_pause();
    do_what_is_due();
    schedule_limit_round();
}

static void request(void *cpu)
{
    qemu.async_run_on_cpu(cpu, work, (run_on_cpu_data){.number = 0});
}

/* Has QEMU interrupt all cores, so also a core that takes exceptions without end and executes no instruction. */
static void interrupt_cores(void)
{
    if (schedule_cores())
        request(schedule_core_at(0)->cpu);
}

void boundary_set_up(void)
{
    static const struct schedule_events events = {
        .next = next_event,
        .is_due = is_due,
        .request = request,
    };

    schedule_set_events(&events);
    handover_set_interrupt(interrupt_cores);
}

void boundary_sleep(void)
{
    int64_t next;

    handover_take_kick();
    /* If main stops the machine, this waits until the process ends. */
    qemu.bql_unlock();
    handover_wait();
    qemu.bql_lock(__FILE__, __LINE__);
    schedule_sleep();
    let_others_run();
    /* The main loop may have woken a core. */
    if (handover_take_kick()) {
        schedule_limit_round();
        return;
    }
    next = next_event();
    /* Time does not advance while main waits for the cores, for example to stop the machine. */
    if (next == NEVER || !handover_main_waits()) {
        qemu.bql_unlock();
        handover_wait_for_event(next != NEVER, workers_are_due);
        qemu.bql_lock(__FILE__, __LINE__);
        return;
    }
    clock_jump(next);
    schedule_hash((uint64_t)next);
    schedule_check_end();
    do_what_is_due();
    schedule_limit_round();
}
