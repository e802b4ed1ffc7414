/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "accounting.h"

#include <string.h>

#include "check.h"

/* 1 ms at 62.5 MHz, beginning at 1000: due times 63500, 126000, 188500, … */
#define ORIGIN UINT64_C(1000)
#define PERIOD UINT64_C(62500)
#define DUE(k) (ORIGIN + PERIOD * (k))

static struct histogram histogram;

static struct accounting start_after(uint64_t warmup) {
    memset(&histogram, 0, sizeof histogram);
    return accounting_start(due_chain_start(ORIGIN, 1000000, 62500000), warmup);
}

static struct accounting start(void) {
    return start_after(0);
}

static void latencies(void) {
    struct accounting a = start();

    CHECK_EQUAL(accounting_average(&a), 0);
    accounting_job(&a, &histogram, DUE(1) + 30);
    accounting_job(&a, &histogram, DUE(2) + 10);
    accounting_job(&a, &histogram, DUE(3) + 22);
    CHECK_EQUAL(a.jobs, 3);
    CHECK_EQUAL(a.late, 0);
    CHECK_EQUAL(a.lost, 0);
    CHECK_EQUAL(a.latency_min, 10);
    CHECK_EQUAL(a.latency_max, 30);
    CHECK_EQUAL(accounting_average(&a), 21); /* 62 / 3, rounded */
    CHECK_EQUAL(histogram.total, 3);
    CHECK_EQUAL(histogram.buckets[22], 1);

    /* Before its due time: no latency, not a huge one. */
    accounting_job(&a, &histogram, DUE(4) - 5);
    CHECK_EQUAL(a.latency_min, 0);
    CHECK_EQUAL(a.latency_max, 30);
}

static void late_begins_at_the_next_due_time(void) {
    struct accounting a = start();

    accounting_job(&a, &histogram, DUE(2) - 1);
    CHECK_EQUAL(a.late, 0);
    accounting_job(&a, &histogram, DUE(3));
    CHECK_EQUAL(a.late, 1);
    CHECK_EQUAL(a.latency_max, PERIOD);
}

/* Three due times pass before the first job: all run, two of them late, none is lost. */
static void a_backlog_is_caught_up(void) {
    struct accounting a = start();

    accounting_job(&a, &histogram, DUE(3) + 40);
    accounting_job(&a, &histogram, DUE(3) + 50);
    accounting_job(&a, &histogram, DUE(3) + 60);
    CHECK_EQUAL(a.jobs, 3);
    CHECK_EQUAL(a.late, 2);
    CHECK_EQUAL(a.lost, 0);
    CHECK_EQUAL(a.latency_max, 2 * PERIOD + 40);
    CHECK_EQUAL(a.latency_min, 60);
    CHECK_EQUAL(accounting_missing(&a, DUE(3) + 70), 0);
}

static void giving_up_skips_one_due_time(void) {
    struct accounting a = start();

    accounting_give_up(&a);
    accounting_job(&a, &histogram, DUE(2) + 8);
    CHECK_EQUAL(a.lost, 1);
    CHECK_EQUAL(a.jobs, 1);
    CHECK_EQUAL(a.late, 0);
    CHECK_EQUAL(a.latency_max, 8);
}

/* Releases that never happened are found by the clock, one period after they were due. */
static void missing_jobs_are_found_by_the_clock(void) {
    struct accounting a = start();

    CHECK_EQUAL(accounting_missing(&a, ORIGIN), 0);
    CHECK_EQUAL(accounting_missing(&a, DUE(1)), 0);
    CHECK_EQUAL(accounting_missing(&a, DUE(2) - 1), 0);
    CHECK_EQUAL(accounting_missing(&a, DUE(2)), 1);
    CHECK_EQUAL(accounting_missing(&a, DUE(6)), 5);
    accounting_job(&a, &histogram, DUE(6) + 1);
    CHECK_EQUAL(accounting_missing(&a, DUE(6) + 2), 4);
}

/* A late job, one that is given up, then the first that counts: its due time is the third. */
static void nothing_of_the_warm_up_counts(void) {
    struct accounting a = start_after(2);

    accounting_job(&a, &histogram, DUE(2) + 40);
    accounting_give_up(&a);
    CHECK_EQUAL(a.jobs, 0);
    CHECK_EQUAL(a.late, 0);
    CHECK_EQUAL(a.lost, 0);
    CHECK_EQUAL(a.latency_max, 0);
    CHECK_EQUAL(histogram.total, 0);
    accounting_job(&a, &histogram, DUE(3) + 12);
    CHECK_EQUAL(a.jobs, 1);
    CHECK_EQUAL(a.latency_min, 12);
    CHECK_EQUAL(a.latency_max, 12);
    CHECK_EQUAL(histogram.total, 1);
    accounting_give_up(&a);
    CHECK_EQUAL(a.lost, 1);
}

/* The guest is stopped in its warm-up and beyond it: only due times after the warm-up are missing. */
static void missing_jobs_of_the_warm_up_do_not_count(void) {
    struct accounting a = start_after(3);

    CHECK_EQUAL(accounting_missing(&a, DUE(1)), 0);
    CHECK_EQUAL(accounting_missing(&a, DUE(4)), 0);
    CHECK_EQUAL(accounting_missing(&a, DUE(5) - 1), 0);
    CHECK_EQUAL(accounting_missing(&a, DUE(5)), 1);
    CHECK_EQUAL(accounting_missing(&a, DUE(6)), 2);
    accounting_job(&a, &histogram, DUE(6) + 1);
    CHECK_EQUAL(accounting_missing(&a, DUE(6) + 2), 2);
}

void test_accounting(void) {
    latencies();
    late_begins_at_the_next_due_time();
    a_backlog_is_caught_up();
    giving_up_skips_one_due_time();
    missing_jobs_are_found_by_the_clock();
    nothing_of_the_warm_up_counts();
    missing_jobs_of_the_warm_up_do_not_count();
}
