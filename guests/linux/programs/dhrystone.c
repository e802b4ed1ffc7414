/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Runs Dhrystone 2.1 in parallel processes: dhrystone [total=LOOPS] [count=PROCESSES] [piece=LOOPS] [pinned=1]
 *
 * The benchmark itself is not in this repository: `dhry` comes from a package, see ../build.sh.
 */
#include <stdio.h>

#include "workers.h"

/* From dhry_1.c. Its loop counts from 1 up to, and without, `number_of_runs`. */
void dhry(int number_of_runs);
extern int Int_Glob;
extern int Bool_Glob;
extern char Ch_1_Glob;
extern char Ch_2_Glob;
extern int Arr_1_Glob[50];
extern int Arr_2_Glob[50][50];

#define RUNS_MAX 100000000 /* of one call: its counters are of type int */

/* The values that Dhrystone's own report says there should be. */
static int result_is_right(uint64_t runs) {
    return Int_Glob == 5 && Bool_Glob == 1 && Ch_1_Glob == 'A' && Ch_2_Glob == 'B' &&
           Arr_1_Glob[8] == 7 && Arr_2_Glob[8][7] == (int)runs + 10;
}

static int work(unsigned worker, uint64_t first, uint64_t units) {
    (void)first;
    dhry((int)units + 1);
    if (!result_is_right(units)) {
        fprintf(stderr, "dhrystone: process %u: the benchmark's variables have wrong values\n", worker);
        return 1;
    }
    return 0;
}

int main(int argc, char **argv) {
    struct workers workers = {.total = 1000000, .piece = 10000, .count = 1};

    workers_arguments(argc, argv, &workers);
    if (workers.piece > RUNS_MAX) {
        workers.piece = RUNS_MAX;
    }
    return workers_run(&workers, work);
}
