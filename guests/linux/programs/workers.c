/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#define _GNU_SOURCE
#include "workers.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "arguments.h"

#define CACHE_LINE 64
/* The text of a macro's value. */
#define TEXT(value) TEXT_OF(value)
#define TEXT_OF(value) #value

struct tally {
    _Alignas(CACHE_LINE) uint64_t done;
};

/* What the processes share. */
struct shared {
    atomic_uint_fast64_t next; /* first unit that no process has taken */
    struct tally tallies[WORKERS_MAX];
};

static void give_up(const char *what) {
    perror(what);
    exit(1);
}

static void pin(unsigned worker) {
    cpu_set_t online;
    cpu_set_t one;
    unsigned skip;

    if (sched_getaffinity(0, sizeof online, &online) != 0) {
        give_up("sched_getaffinity");
    }
    skip = worker % (unsigned)CPU_COUNT(&online);
    for (size_t cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (CPU_ISSET(cpu, &online) && skip-- == 0) {
            CPU_ZERO(&one);
            CPU_SET(cpu, &one);
            break;
        }
    }
    if (sched_setaffinity(0, sizeof one, &one) != 0) {
        give_up("sched_setaffinity");
    }
}

static int work_off(const struct workers *workers, worker_function *work, struct shared *shared,
                    unsigned worker) {
    for (;;) {
        uint64_t first = atomic_fetch_add(&shared->next, workers->piece);
        uint64_t left = first < workers->total ? workers->total - first : 0;
        uint64_t units = left < workers->piece ? left : workers->piece;

        if (units == 0) {
            return 0;
        }
        if (work(worker, first, units) != 0) {
            return 1;
        }
        shared->tallies[worker].done += units;
    }
}

int workers_run(const struct workers *workers, worker_function *work) {
    struct shared *shared =
        mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    bool failed = false;
    int status;

    if (shared == MAP_FAILED) {
        give_up("mmap");
    }
    for (unsigned worker = 0; worker < workers->count; worker++) {
        pid_t child = fork();

        if (child < 0) {
            give_up("fork");
        }
        if (child == 0) {
            if (workers->pinned != 0) {
                pin(worker);
            }
            _exit(work_off(workers, work, shared, worker));
        }
    }
    for (unsigned worker = 0; worker < workers->count; worker++) {
        if (wait(&status) < 0 || status != 0) {
            failed = true;
        }
    }
    for (unsigned worker = 0; worker < workers->count; worker++) {
        printf("%s%llu", worker == 0 ? "done=" : ",", (unsigned long long)shared->tallies[worker].done);
    }
    printf("\n");
    return failed ? 1 : 0;
}

void workers_arguments(int argc, char **argv, struct workers *workers) {
    const struct argument known[] = {
        {"total=", &workers->total, 1, UINT32_MAX},
        {"piece=", &workers->piece, 1, UINT32_MAX},
        {"count=", &workers->count, 1, WORKERS_MAX},
        {"pinned=", &workers->pinned, 0, 1},
    };

    if (!arguments_read(argc, argv, known, sizeof known / sizeof known[0],
                        "total=N piece=N count=N (up to " TEXT(WORKERS_MAX) ") pinned=0|1")) {
        exit(2);
    }
}
