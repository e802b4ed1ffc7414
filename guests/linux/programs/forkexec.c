/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Processes and files, in parallel processes: forkexec [total=ROUNDS] [count=PROCESSES] [pinned=1]
 *
 * A round forks a child that executes /bin/true and waits for it; then it creates, writes, renames,
 * reads and unlinks files, in a directory per process under the current one.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "workers.h"

#define FILES 4            /* of a round */
#define FILE_SIZE 16384    /* bytes */

static int failed(unsigned worker, const char *what) {
    fprintf(stderr, "forkexec: process %u: %s: %m\n", worker, what);
    return 1;
}

static int run_a_program(unsigned worker) {
    int status;
    pid_t child = fork();

    if (child == 0) {
        execl("/bin/true", "true", (char *)NULL);
        _exit(127);
    }
    if (child < 0) {
        return failed(worker, "fork");
    }
    if (waitpid(child, &status, 0) != child || status != 0) {
        return failed(worker, "/bin/true");
    }
    return 0;
}

/* Writes `content` to a new file, renames it, reads it back and compares, unlinks it. */
static int use_a_file(unsigned worker, const char *content) {
    char back[FILE_SIZE];
    int file = open("new", O_WRONLY | O_CREAT | O_EXCL, 0666);

    if (file < 0) {
        return failed(worker, "create");
    }
    if (write(file, content, FILE_SIZE) != FILE_SIZE || close(file) != 0) {
        return failed(worker, "write");
    }
    if (rename("new", "renamed") != 0) {
        return failed(worker, "rename");
    }
    file = open("renamed", O_RDONLY);
    if (file < 0 || read(file, back, FILE_SIZE) != FILE_SIZE || close(file) != 0 ||
        memcmp(content, back, FILE_SIZE) != 0) {
        return failed(worker, "read");
    }
    return unlink("renamed") == 0 ? 0 : failed(worker, "unlink");
}

/* Enters the directory of this process; it is made with the first round. */
static int enter_directory(unsigned worker) {
    static int entered;
    char name[32];

    if (entered) {
        return 0;
    }
    entered = 1;
    snprintf(name, sizeof name, "worker-%u", worker);
    mkdir(name, 0777); /* it may exist from the run before */
    return chdir(name) == 0 ? 0 : failed(worker, "directory");
}

static int work(unsigned worker, uint64_t first, uint64_t units) {
    char content[FILE_SIZE];

    if (enter_directory(worker) != 0) {
        return 1;
    }
    for (uint64_t round = first; round < first + units; round++) {
        memset(content, (int)(round % 251), sizeof content);
        if (run_a_program(worker) != 0) {
            return 1;
        }
        for (int i = 0; i < FILES; i++) {
            if (use_a_file(worker, content) != 0) {
                return 1;
            }
        }
    }
    return 0;
}

int main(int argc, char **argv) {
    struct workers workers = {.total = 100, .piece = 1, .count = 1};

    workers_arguments(argc, argv, &workers);
    return workers_run(&workers, work);
}
