/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Passes a mark of the exact clock, for scripts: mark N [VALUE], N from 0 to 15. */
#include <stdio.h>
#include <stdlib.h>

#include "mark.h"
#include "number.h"

#define CASE(number)         \
    case number:             \
        MARK(number, value); \
        break

int main(int argc, char **argv) {
    uint64_t number;
    uint64_t value = 0;

    if (argc < 2 || argc > 3 || !number_read(argv[1], 0, 15, &number) ||
        (argc == 3 && !number_read(argv[2], 0, UINT64_MAX, &value))) {
        fprintf(stderr, "usage: mark N [VALUE]   N from 0 to 15, VALUE 0 if absent\n");
        return 2;
    }
    switch (number) {
        CASE(0);
        CASE(1);
        CASE(2);
        CASE(3);
        CASE(4);
        CASE(5);
        CASE(6);
        CASE(7);
        CASE(8);
        CASE(9);
        CASE(10);
        CASE(11);
        CASE(12);
        CASE(13);
        CASE(14);
        CASE(15);
    }
    return 0;
}
