/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Measures one run of a command: measure RUN OUTPUT COMMAND [ARGUMENT...]
 *
 * Passes mark 1 with the value RUN, runs the command with its output in the file OUTPUT, passes
 * mark 2, and prints the seconds between. Ends with the command's exit status.
 */
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "mark.h"
#include "number.h"

#define STATUS_CANNOT_RUN 126
#define STATUS_KILLED 128 /* plus the number of the signal, as in shells */

extern char **environ;

static double now(void) {
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static int run(const char *output, char **command) {
    posix_spawn_file_actions_t files;
    pid_t child;
    int status;
    int error;

    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, output, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    posix_spawn_file_actions_adddup2(&files, STDOUT_FILENO, STDERR_FILENO);
    error = posix_spawnp(&child, command[0], &files, NULL, command, environ);
    if (error == 0 && waitpid(child, &status, 0) == child) {
        return WIFEXITED(status) ? WEXITSTATUS(status) : STATUS_KILLED + WTERMSIG(status);
    }
    fprintf(stderr, "measure: cannot run %s with output to %s: %s\n", command[0], output,
            strerror(error != 0 ? error : errno));
    return STATUS_CANNOT_RUN;
}

int main(int argc, char **argv) {
    uint64_t number;

    if (argc < 4 || !number_read(argv[1], 0, UINT64_MAX, &number)) {
        fprintf(stderr, "usage: measure RUN OUTPUT COMMAND [ARGUMENT...]   RUN is a number\n");
        return 2;
    }
    MARK(MARK_BEGIN, number);
    double begin = now();
    int status = run(argv[2], argv + 3);
    double end = now();
    MARK(MARK_END, number);
    printf("%.6f\n", end - begin);
    return status;
}
