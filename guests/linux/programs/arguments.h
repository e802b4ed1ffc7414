/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Arguments NAME=NUMBER of a program. */
#ifndef ARGUMENTS_H
#define ARGUMENTS_H

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "number.h"

/* One that the program knows. */
struct argument {
    const char *name; /* with its "=" */
    uint64_t *to;
    uint64_t least;
    uint64_t most;
};

/* Reads all arguments: false if one is not among the `count` of `known`, which is printed with what is (`usage`). */
static inline bool arguments_read(int argc, char **argv, const struct argument *known, size_t count,
                                  const char *usage) {
    for (int i = 1; i < argc; i++) {
        bool read = false;

        for (size_t k = 0; k < count; k++) {
            size_t length = strlen(known[k].name);

            if (strncmp(argv[i], known[k].name, length) == 0) {
                read = number_read(argv[i] + length, known[k].least, known[k].most, known[k].to);
            }
        }
        if (!read) {
            fprintf(stderr, "%s: %s is not allowed; known are %s\n", argv[0], argv[i], usage);
            return false;
        }
    }
    return true;
}

#endif
