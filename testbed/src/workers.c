/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "workers.h"

#include "clock.h"
#include "handover.h"
#include "qemu.h"
#include "real.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>

/* QEMU's own limit is 64; a few other threads count as workers until they are known. */
#define MAX_WORKERS 128
/* How long to wait, in host time, for a new thread to show that it is a worker. */
#define NEW_THREAD_S 2
#define NOT_SET (-1)

enum worker_state {
    WORKER_NONE,    /* free place */
    WORKER_NEW,     /* a thread that has not begun to run */
    WORKER_STARTED, /* runs, and is not yet known to be a worker */
    WORKER_BUSY,
    WORKER_ASLEEP, /* waits for a request */
    WORKER_HELD,   /* waits before a system call until its time */
};

struct worker {
    enum worker_state state;
    const pthread_cond_t *condition; /* asleep: on this one */
    int64_t due;                     /* held: until this time; NOT_SET until the cores stop */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;  /* for the thread in workers_settle() */
static pthread_cond_t released = PTHREAD_COND_INITIALIZER; /* for held workers */
static struct worker workers[MAX_WORKERS];
static int worker_count; /* places ever used */
static _Atomic int unsettled; /* workers that run, and held ones that have no time yet */
static _Atomic int64_t next_due = NEVER;
static int64_t latency;
static uint64_t calls;
static __thread struct worker *self;

void workers_set_latency(int64_t ns)
{
    latency = ns;
}

static bool is_unsettled(const struct worker *worker)
{
    return worker->state == WORKER_NEW || worker->state == WORKER_STARTED ||
           worker->state == WORKER_BUSY ||
           (worker->state == WORKER_HELD && worker->due == NOT_SET);
}

/* With the lock held: updates what other threads read without it. */
static void update(void)
{
    int number = 0;
    int64_t due = NEVER;

    for (int i = 0; i < worker_count; i++) {
        number += is_unsettled(&workers[i]);
        if (workers[i].state == WORKER_HELD && workers[i].due != NOT_SET && workers[i].due < due)
            due = workers[i].due;
    }
    unsettled = number;
    next_due = due;
    real.cond_broadcast(&changed);
}

bool workers_are_due(int64_t now)
{
    return unsettled || next_due <= now;
}

int64_t workers_deadline(void)
{
    return next_due;
}

uint64_t workers_calls(void)
{
    return calls;
}

/* With the lock held. */
static bool any_is(enum worker_state state)
{
    for (int i = 0; i < worker_count; i++)
        if (workers[i].state == state)
            return true;
    return false;
}

/* With the lock held: new threads had time to act; those that did not are no workers. */
static void forget_started(void)
{
    for (int i = 0; i < worker_count; i++)
        if (workers[i].state == WORKER_STARTED)
            workers[i].state = WORKER_NONE;
    handover_outside_event();
}

/* With the lock held: waits until no worker is on its way to sleep or to a system call. */
static void wait_until_still(void)
{
    struct timespec until;

    real.clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += NEW_THREAD_S;
    while (any_is(WORKER_BUSY) || any_is(WORKER_STARTED)) {
        if (!any_is(WORKER_STARTED))
            real.cond_wait(&changed, &lock);
        else if (real.cond_timedwait(&changed, &lock, &until) == ETIMEDOUT)
            forget_started();
    }
}

/*
 * With the lock held: gives held workers without a time their time, and lets due workers and new threads
 * continue.
 */
static bool release(int64_t now, int64_t delay)
{
    bool any = false;

    for (int i = 0; i < worker_count; i++)
        if (workers[i].state == WORKER_HELD && workers[i].due == NOT_SET)
            workers[i].due = now + delay;
    for (int i = 0; i < worker_count; i++) {
        struct worker *worker = &workers[i];

        if (worker->state == WORKER_NEW)
            worker->state = WORKER_STARTED;
        else if (worker->state == WORKER_HELD && worker->due <= now)
            worker->state = WORKER_BUSY;
        else
            continue;
        any = true;
    }
    if (any)
        real.cond_broadcast(&released);
    return any;
}

bool workers_settle(void)
{
    int64_t now = clock_now();
    bool any;

    pthread_mutex_lock(&lock);
    any = unsettled;
    wait_until_still();
    while (release(now, latency)) {
        any = true;
        wait_until_still();
    }
    update();
    pthread_mutex_unlock(&lock);
    return any;
}

void workers_finish(void)
{
    pthread_mutex_lock(&lock);
    do
        wait_until_still();
    while (release(NEVER, 0));
    update();
    pthread_mutex_unlock(&lock);
}

/* With the lock held. */
static struct worker *free_place(void)
{
    for (int i = 0; i < MAX_WORKERS; i++)
        if (workers[i].state == WORKER_NONE) {
            if (i >= worker_count)
                worker_count = i + 1;
            return &workers[i];
        }
    fail("more than %d worker threads", MAX_WORKERS);
}

/* The calling thread's place; it gets one if it has none yet. Lock held. */
static struct worker *my_place(void)
{
    if (!self || self->state == WORKER_NONE)
        self = free_place();
    return self;
}

/* Before a system call of the block layer: waits until its time has come. */
static void hold(void)
{
    struct worker *worker;

    if (!handover_has_joined() || thread_kind == THREAD_MAIN || thread_kind == THREAD_CORES)
        return;
    thread_kind = THREAD_WORKER;
    pthread_mutex_lock(&lock);
    worker = my_place();
    worker->state = WORKER_HELD;
    worker->due = NOT_SET;
    calls++;
    update();
    pthread_mutex_unlock(&lock);
    handover_notify();
    pthread_mutex_lock(&lock);
    while (worker->state == WORKER_HELD)
        real.cond_wait(&released, &lock);
    pthread_mutex_unlock(&lock);
}

/*
 * QEMU starts another worker for a request if none sleeps. So a worker that is woken must be seen to
 * be awake when the next request comes, however close.
 */
int workers_signal(pthread_cond_t *condition)
{
    bool wakes = false;
    int result;

    if (!handover_has_joined() || thread_kind == THREAD_WORKER)
        return real.cond_signal(condition);
    pthread_mutex_lock(&lock);
    for (int i = 0; i < worker_count && !wakes; i++)
        if (workers[i].state == WORKER_ASLEEP && workers[i].condition == condition) {
            /* One of the sleepers will take the request; it does not matter which. */
            workers[i].state = WORKER_BUSY;
            wakes = true;
        }
    update();
    pthread_mutex_unlock(&lock);
    result = real.cond_signal(condition);
    if (!wakes)
        return result;
    pthread_mutex_lock(&lock);
    wait_until_still();
    pthread_mutex_unlock(&lock);
    return result;
}

/* The calling worker woke. If another worker's place was marked busy instead, corrects that. */
static void note_wake(const pthread_cond_t *condition)
{
    pthread_mutex_lock(&lock);
    if (self->state == WORKER_ASLEEP) {
        for (int i = 0; i < worker_count; i++)
            if (&workers[i] != self && workers[i].state == WORKER_BUSY &&
                workers[i].condition == condition) {
                workers[i].state = WORKER_ASLEEP;
                break;
            }
        self->state = WORKER_BUSY;
    }
    self->condition = NULL;
    update();
    pthread_mutex_unlock(&lock);
}

/*
 * QEMU's workers are its only threads that wait with a timeout: for the next request. They sleep
 * without one here, since the limit is on the virtual clock, and so never end because there is no request.
 */
EXPORTED int pthread_cond_timedwait(pthread_cond_t *condition, pthread_mutex_t *mutex,
                                    const struct timespec *until)
{
    int result;

    if (!engaged || thread_kind == THREAD_MAIN || thread_kind == THREAD_CORES ||
        !qemu_contains(__builtin_return_address(0)))
        return real.cond_timedwait(condition, mutex, until);
    thread_kind = THREAD_WORKER;
    pthread_mutex_lock(&lock);
    my_place();
    self->state = WORKER_ASLEEP;
    self->condition = condition;
    update();
    pthread_mutex_unlock(&lock);
    result = real.cond_wait(condition, mutex);
    note_wake(condition);
    return result;
}

/* A thread that ends leaves its place. */
static void leave_place(void *place)
{
    struct worker *worker = place;

    pthread_mutex_lock(&lock);
    worker->state = WORKER_NONE;
    update();
    pthread_mutex_unlock(&lock);
}

struct start {
    void *(*routine)(void *);
    void *argument;
    struct worker *place;
};

static void *run_thread(void *data)
{
    struct start start = *(struct start *)data;
    void *result;

    free(data);
    self = start.place;
    pthread_mutex_lock(&lock);
    while (self->state == WORKER_NEW)
        real.cond_wait(&released, &lock);
    pthread_mutex_unlock(&lock);
    pthread_cleanup_push(leave_place, start.place);
    result = start.routine(start.argument);
    pthread_cleanup_pop(1);
    return result;
}

/*
 * Threads that QEMU starts while the machine runs count as workers until they are known not to be.
 * They start when the cores are stopped, for the same reason as in workers_signal().
 */
EXPORTED int pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
                            void *(*routine)(void *), void *argument)
{
    struct start *start;
    int result;

    if (!handover_has_joined() || !qemu_contains(__builtin_return_address(0)))
        return real.thread_create(thread, attributes, routine, argument);
    start = allocate(sizeof(*start));
    start->routine = routine;
    start->argument = argument;
    pthread_mutex_lock(&lock);
    start->place = free_place();
    start->place->state = WORKER_NEW;
    update();
    pthread_mutex_unlock(&lock);
    result = real.thread_create(thread, attributes, run_thread, start);
    if (result) {
        leave_place(start->place);
        free(start);
    }
    return result;
}

EXPORTED ssize_t pread64(int fd, void *to, size_t length, off64_t at)
{
    hold();
    return real.pread(fd, to, length, at);
}

EXPORTED ssize_t pwrite64(int fd, const void *from, size_t length, off64_t at)
{
    hold();
    return real.pwrite(fd, from, length, at);
}

EXPORTED ssize_t preadv64(int fd, const struct iovec *to, int count, off64_t at)
{
    hold();
    return real.preadv(fd, to, count, at);
}

EXPORTED ssize_t pwritev64(int fd, const struct iovec *from, int count, off64_t at)
{
    hold();
    return real.pwritev(fd, from, count, at);
}

EXPORTED int fdatasync(int fd)
{
    hold();
    return real.fdatasync(fd);
}
