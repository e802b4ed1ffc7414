/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The C library's own versions of the functions that this object replaces, and whether the
 * replacements are active.
 *
 * The object is preloaded, so it may be in a process that is not QEMU, or in QEMU before
 * the plugin is set up. It is `engaged` only in a QEMU whose command line also names it as plugin.
 */
#ifndef REAL_H
#define REAL_H

#include "qemu-api.h"
#include "util.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>

struct c_library {
    int (*clock_gettime)(clockid_t, struct timespec *);
    int (*ppoll)(struct pollfd *, nfds_t, const struct timespec *, const sigset_t *);
    ssize_t (*write)(int, const void *, size_t);
    int (*eventfd)(unsigned, int);
    int (*cond_wait)(pthread_cond_t *, pthread_mutex_t *);
    int (*cond_timedwait)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
    int (*cond_signal)(pthread_cond_t *);
    int (*cond_broadcast)(pthread_cond_t *);
    int (*thread_create)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    ssize_t (*pread)(int, void *, size_t, off_t);
    ssize_t (*pwrite)(int, const void *, size_t, off_t);
    ssize_t (*preadv)(int, const struct iovec *, int, off_t);
    ssize_t (*pwritev)(int, const struct iovec *, int, off_t);
    int (*fdatasync)(int);
};

/* The functions, looked up on first use: other libraries' constructors may call before ours. */
const struct c_library *c_library(void);
#define real (*c_library())

extern bool engaged;

/* What a thread does, as far as it is known. */
enum thread_kind {
    THREAD_OTHER,  /* not known, or without influence on the guest */
    THREAD_MAIN,   /* QEMU's main loop: devices, bottom halves, the host's file descriptors */
    THREAD_CORES,  /* runs all cores in turn */
    THREAD_WORKER, /* does disk I/O for the block layer */
};

extern __thread enum thread_kind thread_kind;

#endif
