/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A load of some of the CPUs: duty threads=N instructions=N period=US count=N apart=US
 *
 * Each thread does a piece of work of so many instructions in each period, `count` times. Thread n begins `apart` x n after
 * the first one. A piece that is late is done all the same, as soon as the one before it has ended. Without threads
 * (threads=0) it only sleeps for as long as the pieces would take.
 *
 * A thread passes mark 3 when it begins a piece, and mark 4 when it has done it, with the number of the piece, from 1.
 * Prints "pieces=N median_us=N longest_us=N": how long pieces took, from when they were due until they were done.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arguments.h"
#include "clock.h"
#include "mark.h"

#define NS_PER_US 1000u
#define THREADS_MAX 64
#define COUNT_MAX 100000
#define PERIOD_MAX 10000000
#define INSTRUCTIONS_MAX 10000000000u
/* From the start until the first piece is due: all threads run then. */
#define START_NS 20000000u
/* One turn of the loop of work(). */
#define LOOP_INSTRUCTIONS 2

struct parameters {
    uint64_t threads;
    uint64_t instructions;
    uint64_t period_us;
    uint64_t count;
    uint64_t apart_us;
};

static struct parameters parameters = {
    .threads = 1, .instructions = 1000000, .period_us = 10000, .count = 100, .apart_us = 0};
static uint64_t start_ns;
/* In microseconds: how long each piece of each thread took. */
static uint32_t *taken_us;

static void work(uint64_t instructions) {
    uint64_t turns = instructions / LOOP_INSTRUCTIONS + 1;

    __asm__ volatile("1: subs %0, %0, #1\n\tb.ne 1b" : "+r"(turns) : : "cc");
}

static void *run(void *number) {
    uint64_t thread = (uint64_t)(uintptr_t)number;
    uint64_t due = start_ns + thread * parameters.apart_us * NS_PER_US;
    uint32_t *taken = taken_us + thread * parameters.count;

    for (uint64_t piece = 0; piece < parameters.count; piece++) {
        sleep_until(due);
        MARK(MARK_PIECE, piece + 1);
        work(parameters.instructions);
        MARK(MARK_PIECE_DONE, piece + 1);
        taken[piece] = (uint32_t)((now_ns() - due) / NS_PER_US);
        due += parameters.period_us * NS_PER_US;
    }
    return NULL;
}

static int compare(const void *left, const void *right) {
    uint32_t a = *(const uint32_t *)left;
    uint32_t b = *(const uint32_t *)right;

    return (a > b) - (a < b);
}

static bool read_arguments(int argc, char **argv) {
    const struct argument known[] = {
        {"threads=", &parameters.threads, 0, THREADS_MAX},
        {"instructions=", &parameters.instructions, 0, INSTRUCTIONS_MAX},
        {"period=", &parameters.period_us, 1, PERIOD_MAX},
        {"count=", &parameters.count, 1, COUNT_MAX},
        {"apart=", &parameters.apart_us, 0, PERIOD_MAX},
    };

    return arguments_read(argc, argv, known, sizeof known / sizeof known[0],
                          "threads=N instructions=N period=US count=N apart=US");
}

int main(int argc, char **argv) {
    pthread_t threads[THREADS_MAX];
    uint64_t pieces;

    if (!read_arguments(argc, argv)) {
        return 2;
    }
    start_ns = now_ns() + START_NS;
    if (parameters.threads == 0) {
        sleep_until(start_ns + parameters.count * parameters.period_us * NS_PER_US);
        return 0;
    }
    pieces = parameters.threads * parameters.count;
    taken_us = calloc(pieces, sizeof *taken_us);
    if (taken_us == NULL) {
        fprintf(stderr, "duty: no memory for %llu pieces\n", (unsigned long long)pieces);
        return 1;
    }
    for (uint64_t thread = 0; thread < parameters.threads; thread++) {
        int error = pthread_create(&threads[thread], NULL, run, (void *)(uintptr_t)thread);

        if (error != 0) {
            fprintf(stderr, "duty: cannot start a thread: %s\n", strerror(error));
            return 1;
        }
    }
    for (uint64_t thread = 0; thread < parameters.threads; thread++) {
        pthread_join(threads[thread], NULL);
    }
    qsort(taken_us, pieces, sizeof *taken_us, compare);
    printf("pieces=%llu median_us=%u longest_us=%u\n", (unsigned long long)pieces, taken_us[(pieces - 1) / 2],
           taken_us[pieces - 1]);
    return 0;
}
