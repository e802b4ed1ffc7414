/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "clock.h"

#include "qemu.h"
#include "real.h"

#include <stdatomic.h>

/*
 * What QEMU's clock reads when the machine starts. Not 0, since QEMU computes differences to times
 * before the start; the same in each run, since it shows in the guest's view of time.
 */
#define START 1000000000
#define NS_PER_S 1000000000
#define NS_PER_US 1000
/* Longer than any round, and short enough not to overflow in the computation. */
#define MAX_PRECISE_NS 10000000000

static uint64_t per_us = 1000;
static int64_t (*core_progress)(void);
/* Threads that do not take turns (handover.h) may read the time at any moment. */
static _Atomic int64_t now; /* at the start of the round */
static int64_t left_over;   /* of the division in clock_advance */
/*
 * The latest time that any core has read. Cores execute their quanta of one round one after the
 * other, so a core may execute later what is earlier in virtual time. If it then has a message from
 * a core that executed before it, time must not appear to run backwards.
 */
static _Atomic int64_t latest;
static struct timespec host_start;

void clock_set_up(uint64_t instructions_per_us, int64_t (*progress)(void))
{
    core_progress = progress;
    per_us = instructions_per_us;
    real.clock_gettime(CLOCK_MONOTONIC, &host_start);
}

int64_t clock_ns(int64_t instructions)
{
    return instructions * NS_PER_US / (int64_t)per_us;
}

int64_t clock_round_start(void)
{
    return atomic_load_explicit(&now, memory_order_relaxed);
}

int64_t clock_now(void)
{
    int64_t at = clock_round_start();
    int64_t floor = atomic_load_explicit(&latest, memory_order_relaxed);

    if (thread_kind == THREAD_CORES)
        at += clock_ns(core_progress());
    if (at < floor)
        return floor;
    if (thread_kind == THREAD_CORES)
        atomic_store_explicit(&latest, at, memory_order_relaxed);
    return at;
}

int64_t clock_now_qemu(void)
{
    return clock_now() + START;
}

void clock_advance(int64_t instructions)
{
    int64_t thousandths = instructions * NS_PER_US + left_over;

    atomic_fetch_add(&now, thousandths / (int64_t)per_us);
    left_over = thousandths % (int64_t)per_us;
}

int64_t clock_instructions_until(int64_t at)
{
    int64_t ns = at - clock_round_start();
    int64_t thousandths;

    if (ns <= 0)
        return 0;
    if (ns > MAX_PRECISE_NS)
        return INT64_MAX;
    thousandths = ns * (int64_t)per_us - left_over;
    return (thousandths + NS_PER_US - 1) / NS_PER_US;
}

void clock_see(int64_t at)
{
    if (at > atomic_load_explicit(&latest, memory_order_relaxed))
        atomic_store_explicit(&latest, at, memory_order_relaxed);
}

void clock_jump(int64_t to)
{
    if (to > atomic_load(&now))
        atomic_store(&now, to);
}

double clock_host_seconds(void)
{
    struct timespec t;

    real.clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)(t.tv_sec - host_start.tv_sec) +
           (double)(t.tv_nsec - host_start.tv_nsec) / NS_PER_S;
}

/* Replaces the C library's function, for QEMU's own calls: libraries get the host's time. */
EXPORTED int clock_gettime(clockid_t id, struct timespec *to)
{
    if (!engaged || id != CLOCK_MONOTONIC || !qemu_contains(__builtin_return_address(0)))
        return real.clock_gettime(id, to);
    int64_t at = clock_now_qemu();
    to->tv_sec = at / NS_PER_S;
    to->tv_nsec = at % NS_PER_S;
    return 0;
}
