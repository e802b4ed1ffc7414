/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Replacements of C library functions through which QEMU's main loop and the thread that runs the cores
 * wait for each other. The other replacements are in clock.c (time) and workers.c (disk I/O).
 */
#include "boundary.h"
#include "clock.h"
#include "handover.h"
#include "qemu.h"
#include "real.h"
#include "workers.h"

#include <sys/eventfd.h>
#include <unistd.h>

#define NS_PER_S 1000000000ll
/* A timeout of more than this many seconds means: no timeout. */
#define FOREVER_S 1000000
/* Host time after which to look for workers again. */
#define WORKER_START_NS 1000000

static int64_t nanoseconds(const struct timespec *timeout)
{
    if (!timeout || timeout->tv_sec > FOREVER_S)
        return NEVER;
    return timeout->tv_sec * NS_PER_S + timeout->tv_nsec;
}

/*
 * A poll with the big lock held: the caller waits for the end of disk I/O. The cores
 * are stopped, so the I/O takes no virtual time.
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
        /* A worker that is not known yet may reach a system call, or the caller does not wait for a disk. */
        ready = real.ppoll(fds, count, &shortly, mask);
        workers_finish();
    }
    return ready;
}

EXPORTED int ppoll(struct pollfd *fds, nfds_t count, const struct timespec *timeout,
                   const sigset_t *mask)
{
    bool takes_part = thread_kind == THREAD_MAIN || thread_kind == THREAD_CORES;

    if (!handover_has_started() || !takes_part || (timeout && !timeout->tv_sec && !timeout->tv_nsec))
        return real.ppoll(fds, count, timeout, mask);
    if (qemu.bql_locked())
        return poll_for_workers(fds, count, timeout, mask);
    if (thread_kind == THREAD_MAIN)
        return handover_poll(fds, count, nanoseconds(timeout), mask);
    return real.ppoll(fds, count, timeout, mask);
}

EXPORTED int eventfd(unsigned value, int flags)
{
    int fd = real.eventfd(value, flags);

    handover_add_internal(fd);
    return fd;
}

EXPORTED ssize_t write(int fd, const void *from, size_t length)
{
    ssize_t written = real.write(fd, from, length);

    if (!handover_has_started() || length != sizeof(uint64_t) || !handover_is_internal(fd))
        return written;
    if (thread_kind == THREAD_CORES)
        boundary_nudge();
    else if (thread_kind == THREAD_WORKER)
        handover_nudge();
    else if (thread_kind == THREAD_OTHER)
        handover_outside_event();
    /* What main itself writes, it sees when it polls. */
    return written;
}

EXPORTED int pthread_cond_wait(pthread_cond_t *condition, pthread_mutex_t *mutex)
{
    if (handover_has_started() && thread_kind == THREAD_CORES) {
        handover_set_halt_condition(condition);
        boundary_sleep();
        return 0;
    }
    if (!handover_has_started() || thread_kind != THREAD_MAIN)
        return real.cond_wait(condition, mutex);
    return handover_wait_for_cores(condition, mutex);
}

EXPORTED int pthread_cond_broadcast(pthread_cond_t *condition)
{
    handover_note_signal(condition);
    return real.cond_broadcast(condition);
}

EXPORTED int pthread_cond_signal(pthread_cond_t *condition)
{
    handover_note_signal(condition);
    return workers_signal(condition);
}
