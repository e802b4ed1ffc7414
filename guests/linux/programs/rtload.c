/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A real-time load inside Linux: rtload cpu=N load=PERCENT [burst=MS] [tick=US]
 *
 * Two SCHED_FIFO threads on one CPU, as the tasks of the FreeRTOS guest: one wakes at every tick, and the one below it
 * spins for the given share of every burst. Runs until it is killed.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "arguments.h"
#include "clock.h"

#define NS_PER_MS 1000000u
#define NS_PER_US 1000u
#define PRIORITY_TICK 95
#define PRIORITY_BURN 90
#define CPU_MAX 255
#define PERCENT_MAX 99
#define PERIOD_MAX 1000000

struct parameters {
    uint64_t cpu;
    uint64_t load_percent;
    uint64_t burst_ms;
    uint64_t tick_us;
};

static struct parameters parameters = {.cpu = 0, .load_percent = 0, .burst_ms = 500, .tick_us = 1000};

/* The first multiple of `period` after `due` that is not in the past. */
static uint64_t next_due(uint64_t due, uint64_t period) {
    uint64_t now = now_ns();
    uint64_t next = due + period;

    return next > now ? next : now + period - (now - due) % period;
}

static void *tick(void *unused) {
    uint64_t period = parameters.tick_us * NS_PER_US;
    uint64_t due = now_ns();

    (void)unused;
    for (;;) {
        due = next_due(due, period);
        sleep_until(due);
    }
    return NULL;
}

static void *burn(void *unused) {
    uint64_t period = parameters.burst_ms * NS_PER_MS;
    uint64_t busy = period * parameters.load_percent / 100;
    uint64_t due = now_ns();

    (void)unused;
    for (;;) {
        while (now_ns() < due + busy) {
        }
        due = next_due(due, period);
        sleep_until(due);
    }
    return NULL;
}

/* Starts a thread with this priority on the CPU of the parameters. Returns 0, or an error number. */
static int start(pthread_t *thread, void *(*function)(void *), int priority) {
    const struct sched_param param = {.sched_priority = priority};
    pthread_attr_t attributes;
    cpu_set_t cpus;

    CPU_ZERO(&cpus);
    CPU_SET(parameters.cpu, &cpus);
    pthread_attr_init(&attributes);
    pthread_attr_setinheritsched(&attributes, PTHREAD_EXPLICIT_SCHED);
    pthread_attr_setschedpolicy(&attributes, SCHED_FIFO);
    pthread_attr_setschedparam(&attributes, &param);
    pthread_attr_setaffinity_np(&attributes, sizeof cpus, &cpus);
    return pthread_create(thread, &attributes, function, NULL);
}

static bool read_arguments(int argc, char **argv) {
    const struct argument known[] = {
        {"cpu=", &parameters.cpu, 0, CPU_MAX},
        {"load=", &parameters.load_percent, 0, PERCENT_MAX},
        {"burst=", &parameters.burst_ms, 1, PERIOD_MAX},
        {"tick=", &parameters.tick_us, 1, PERIOD_MAX},
    };

    return arguments_read(argc, argv, known, sizeof known / sizeof known[0],
                          "cpu=N load=PERCENT burst=MS tick=US");
}

int main(int argc, char **argv) {
    pthread_t threads[2];
    int error = 0;

    if (!read_arguments(argc, argv)) {
        return 2;
    }
    if (mlockall(MCL_CURRENT | MCL_FUTURE) != 0) {
        perror("rtload: mlockall");
        return 1;
    }
    error = start(&threads[0], tick, PRIORITY_TICK);
    if (error == 0 && parameters.load_percent > 0) {
        error = start(&threads[1], burn, PRIORITY_BURN);
    }
    if (error != 0) {
        fprintf(stderr, "rtload: cannot start a thread: %s\n", strerror(error));
        return 1;
    }
    pthread_join(threads[0], NULL);
    return 0;
}
