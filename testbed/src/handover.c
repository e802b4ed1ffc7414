/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "handover.h"

#include "clock.h"
#include "real.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define MAX_FD 4096
/* Host time that an event from outside waits for the end of the round: far more than a round takes. */
#define PATIENCE_S 1

enum main_state {
    MAIN_RUNS,
    MAIN_WAITS_FOR_TURN,
    MAIN_WAITS_FOR_CORES, /* in a condition variable: the cores must continue */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static _Atomic enum main_state state = MAIN_RUNS;
static _Atomic int64_t deadline = NEVER;
static atomic_bool started, joined, nudged, outside, kicked;
static _Atomic uint64_t outside_events;
static void (*interrupt_cores)(void);
static int turn_fd = -1; /* readable: main has the turn */
static const pthread_cond_t *halt_condition;
static _Atomic(const pthread_cond_t *) main_condition; /* main waits on it for the cores */
/* Event descriptors, which only QEMU's own threads write to. */
static atomic_bool internal[MAX_FD];

static void set_state(enum main_state to)
{
    pthread_mutex_lock(&lock);
    state = to;
    real.cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

void handover_set_interrupt(void (*interrupt)(void))
{
    interrupt_cores = interrupt;
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

void handover_wait_for_event(bool time_can_pass, bool (*is_due)(int64_t now))
{
    pthread_mutex_lock(&lock);
    while (!kicked && !handover_is_wanted(clock_now()) && !is_due(clock_now())) {
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

bool handover_is_internal(int fd)
{
    return fd >= 0 && fd < MAX_FD && internal[fd];
}

/*
 * Gives up main's turn and sleeps until it gets it again. Meanwhile it watches the descriptors
 * that the outside world writes to.
 */
static void wait_for_turn(const struct pollfd *fds, nfds_t count, const sigset_t *mask)
{
    const struct timespec patience = {PATIENCE_S, 0};
    struct pollfd watched[count + 1];
    nfds_t number = 1;
    bool noted = false;

    watched[0] = (struct pollfd){.fd = turn_fd, .events = POLLIN};
    for (nfds_t i = 0; i < count; i++)
        if (!handover_is_internal(fds[i].fd))
            watched[number++] = fds[i];
    set_state(MAIN_WAITS_FOR_TURN);
    for (;;) {
        int ready = real.ppoll(watched, number, noted ? &patience : NULL, mask);
        uint64_t turns;

        if (ready < 0 && errno != EINTR)
            fail("poll: %s", strerror(errno));
        if (ready > 0 && watched[0].revents && read(turn_fd, &turns, sizeof(turns)) > 0)
            return;
        if (!ready) {
            /* The round does not end: a core takes exceptions without end, and executes no instruction. */
            interrupt_cores();
            continue;
        }
        /* Reported once; main polls the descriptors itself when it has the turn. */
        handover_outside_event();
        noted = true;
        number = 1;
    }
}

int handover_poll(struct pollfd *fds, nfds_t count, int64_t timeout, const sigset_t *mask)
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

void handover_add_internal(int fd)
{
    if (fd >= 0 && fd < MAX_FD)
        internal[fd] = true;
}

void handover_set_halt_condition(const pthread_cond_t *condition)
{
    halt_condition = condition;
}

int handover_wait_for_cores(pthread_cond_t *condition, pthread_mutex_t *mutex)
{
    int result;

    main_condition = condition;
    set_state(MAIN_WAITS_FOR_CORES);
    result = real.cond_wait(condition, mutex);
    main_condition = NULL;
    set_state(MAIN_RUNS);
    return result;
}

void handover_note_signal(const pthread_cond_t *condition)
{
    if (!started)
        return;
    if (thread_kind == THREAD_CORES) {
        /* Main has the turn from now on, not only when the host has woken it. */
        if (condition == main_condition)
            set_state(MAIN_RUNS);
    } else if (condition == halt_condition) {
        kicked = true;
        handover_notify();
    }
}
