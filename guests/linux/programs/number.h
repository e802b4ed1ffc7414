/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Numbers on the command line. */
#ifndef NUMBER_H
#define NUMBER_H

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

/* Reads a decimal number from `least` to `most`: false if `text` is anything else. */
static inline bool number_read(const char *text, uint64_t least, uint64_t most, uint64_t *number) {
    char *end;

    if (text[0] < '0' || text[0] > '9') {
        return false;
    }
    errno = 0;
    *number = strtoull(text, &end, 10);
    return errno == 0 && *end == '\0' && *number >= least && *number <= most;
}

#endif
