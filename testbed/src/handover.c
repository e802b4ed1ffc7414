/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "handover.h"

#include "boundary.h"
#include "clock.h"
#include "qemu.h"
#include "real.h"
#include "workers.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define MAX_FD 4096
#define NS_PER_S 1000000000ll
/* A timeout of more than this many seconds means: no timeout. */
#define FOREVER_S 1000000
/* Host time after which to look for workers again. */
#define WORKER_START_NS 1000000

enum main_state {
    MAIN_RUNS,
    MAIN_WAITS_FOR_TURN,
    MAIN_WAITS_FOR_CORES, /* in a condition variable: the cores must go on */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static _Atomic enum main_state state = MAIN_RUNS;
static _Atomic int64_t deadline = NEVER;
static atomic_bool started, joined, nudged, outside, kicked;
static _Atomic uint64_t outside_events;
static int turn_fd = -1; /* readable: main has the turn */
static pthread_cond_t *halt_condition;
static _Atomic(pthread_cond_t *) main_condition; /* main waits on it for the cores */
/* Event descriptors: written to by QEMU's own threads, so they are not the outside. */
static atomic_bool internal[MAX_FD];

static void set_state(enum main_state to)
{
    pthread_mutex_lock(&lock);
    state = to;
    real.cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

void handover_start(void)
{
    turn_fd = real.eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (turn_fd < 0)
        fail("no event descriptor: %s", strerror(errno));
    started = true;
}

bool handover_has_started(void)
{
    return started;
}

void handover_join(void)
{
    thread_kind = THREAD_CORES;
    outside_events = 0;
    joined = true;
}

bool handover_has_joined(void)
{
    return joined;
}

bool handover_main_runs(void)
{
    return state == MAIN_RUNS;
}

bool handover_main_waits(void)
{
    return state == MAIN_WAITS_FOR_TURN;
}

int64_t handover_deadline(void)
{
    return state == MAIN_WAITS_FOR_TURN ? deadline : NEVER;
}

bool handover_is_wanted(int64_t now)
{
    return state == MAIN_WAITS_FOR_TURN && (nudged || outside || deadline <= now);
}

void handover_wait(void)
{
    pthread_mutex_lock(&lock);
    while (state == MAIN_RUNS)
        real.cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
}

void handover_grant(void)
{
    const uint64_t one = 1;

    nudged = false;
    outside = false;
    state = MAIN_RUNS;
    if (real.write(turn_fd, &one, sizeof(one)) != sizeof(one))
        fail("cannot wake the main loop: %s", strerror(errno));
    handover_wait();
}

void handover_wait_for_event(bool time_can_pass)
{
    pthread_mutex_lock(&lock);
    while (!kicked && !handover_is_wanted(clock_now()) && !workers_are_due(clock_now())) {
        if (state == MAIN_WAITS_FOR_TURN && (time_can_pass || deadline != NEVER))
            break;
        real.cond_wait(&changed, &lock);
    }
    pthread_mutex_unlock(&lock);
}

void handover_notify(void)
{
    pthread_mutex_lock(&lock);
    real.cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

void handover_nudge(void)
{
    nudged = true;
}

void handover_outside_event(void)
{
    outside_events++;
    outside = true;
    handover_notify();
}

uint64_t handover_outside_events(void)
{
    return outside_events;
}

bool handover_take_kick(void)
{
    return atomic_exchange(&kicked, false);
}

static bool is_internal(int fd)
{
    return fd >= 0 && fd < MAX_FD && internal[fd];
}

/*
 * Gives up main's turn and sleeps until it gets it again. Meanwhile it watches the descriptors
 * that the outside world writes to.
 */
static void wait_for_turn(const struct pollfd *fds, nfds_t count, const sigset_t *mask)
{
    struct pollfd watched[count + 1];
    nfds_t number = 1;

    watched[0] = (struct pollfd){.fd = turn_fd, .events = POLLIN};
    for (nfds_t i = 0; i < count; i++)
        if (!is_internal(fds[i].fd))
            watched[number++] = fds[i];
    set_state(MAIN_WAITS_FOR_TURN);
    for (;;) {
        int ready = real.ppoll(watched, number, NULL, mask);
        uint64_t turns;

        if (ready < 0 && errno != EINTR)
            fail("poll: %s", strerror(errno));
        if (ready > 0 && watched[0].revents && read(turn_fd, &turns, sizeof(turns)) > 0)
            return;
        /* Said once; main looks at the descriptors itself when it has the turn. */
        handover_outside_event();
        number = 1;
    }
}

static int64_t nanoseconds(const struct timespec *timeout)
{
    if (!timeout || timeout->tv_sec > FOREVER_S)
        return NEVER;
    return timeout->tv_sec * NS_PER_S + timeout->tv_nsec;
}

/* The main loop's own poll: nothing else holds it, so it can wait for its turn. */
static int poll_in_turn(struct pollfd *fds, nfds_t count, int64_t timeout, const sigset_t *mask)
{
    const struct timespec at_once = {0, 0};
    int64_t until = timeout == NEVER ? NEVER : clock_now() + timeout;

    for (;;) {
        int ready = real.ppoll(fds, count, &at_once, mask);

        if (ready || clock_now() >= until)
            return ready;
        deadline = until;
        wait_for_turn(fds, count, mask);
    }
}

/*
 * A poll with the big lock held: the caller waits for disk I/O to end before it goes on. Cores
 * stand still, so the I/O takes no virtual time.
 */
static int poll_for_workers(struct pollfd *fds, nfds_t count, const struct timespec *timeout,
                            const sigset_t *mask)
{
    const struct timespec at_once = {0, 0}, shortly = {0, WORKER_START_NS};
    int ready;

    workers_finish();
    ready = real.ppoll(fds, count, &at_once, mask);
    if (!ready && nanoseconds(timeout) != NEVER) {
        clock_jump(clock_now() + nanoseconds(timeout));
        return 0;
    }
    while (!ready) {
        /* A worker that is not known yet may come to a system call, or it is no disk that is waited for. */
        ready = real.ppoll(fds, count, &shortly, mask);
        workers_finish();
    }
    return ready;
}

EXPORTED int ppoll(struct pollfd *fds, nfds_t count, const struct timespec *timeout,
                   const sigset_t *mask)
{
    bool takes_part = thread_kind == THREAD_MAIN || thread_kind == THREAD_CORES;

    if (!started || !takes_part || (timeout && !timeout->tv_sec && !timeout->tv_nsec))
        return real.ppoll(fds, count, timeout, mask);
    if (qemu.bql_locked())
        return poll_for_workers(fds, count, timeout, mask);
    if (thread_kind == THREAD_MAIN)
        return poll_in_turn(fds, count, nanoseconds(timeout), mask);
    return real.ppoll(fds, count, timeout, mask);
}

EXPORTED int eventfd(unsigned value, int flags)
{
    int fd = real.eventfd(value, flags);

    if (fd >= 0 && fd < MAX_FD)
        internal[fd] = true;
    return fd;
}

EXPORTED ssize_t write(int fd, const void *from, size_t length)
{
    ssize_t written = real.write(fd, from, length);

    if (!started || length != sizeof(uint64_t) || !is_internal(fd))
        return written;
    if (thread_kind == THREAD_CORES)
        boundary_nudge();
    else if (thread_kind == THREAD_WORKER)
        handover_nudge();
    else if (thread_kind == THREAD_OTHER)
        handover_outside_event();
    /* Main sees its own notes when it polls. */
    return written;
}

EXPORTED int pthread_cond_wait(pthread_cond_t *condition, pthread_mutex_t *mutex)
{
    int result;

    if (started && thread_kind == THREAD_CORES) {
        halt_condition = condition;
        boundary_sleep();
        return 0;
    }
    if (!started || thread_kind != THREAD_MAIN)
        return real.cond_wait(condition, mutex);
    main_condition = condition;
    set_state(MAIN_WAITS_FOR_CORES);
    result = real.cond_wait(condition, mutex);
    main_condition = NULL;
    set_state(MAIN_RUNS);
    return result;
}

static void note_signal(pthread_cond_t *condition)
{
    if (!started)
        return;
    if (thread_kind == THREAD_CORES) {
        /* Main has the turn from here on, not from when the host wakes it. */
        if (condition == main_condition)
            set_state(MAIN_RUNS);
    } else if (condition == halt_condition) {
        kicked = true;
        handover_notify();
    }
}

EXPORTED int pthread_cond_broadcast(pthread_cond_t *condition)
{
    note_signal(condition);
    return real.cond_broadcast(condition);
}

EXPORTED int pthread_cond_signal(pthread_cond_t *condition)
{
    note_signal(condition);
    return workers_signal(condition);
}
