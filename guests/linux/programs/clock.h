/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The monotonic clock, in nanoseconds. */
#ifndef CLOCK_H
#define CLOCK_H

#include <errno.h>
#include <stdint.h>
#include <time.h>

#define NS_PER_SECOND 1000000000u

static inline uint64_t now_ns(void) {
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * NS_PER_SECOND + (uint64_t)time.tv_nsec;
}

static inline void sleep_until(uint64_t ns) {
    const struct timespec time = {
        .tv_sec = (time_t)(ns / NS_PER_SECOND),
        .tv_nsec = (long)(ns % NS_PER_SECOND),
    };

    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, NULL) == EINTR) {
    }
}

#endif
