/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "histogram.h"

#include <stdlib.h>
#include <string.h>

#include "check.h"

static struct histogram histogram;

static void clear(void) {
    memset(&histogram, 0, sizeof histogram);
}

/* The bucket that one value falls into, found from the outside. */
static size_t bucket_of(uint64_t value) {
    clear();
    histogram_add(&histogram, value);
    for (size_t i = 0; i < HISTOGRAM_BUCKETS; i++) {
        if (histogram.buckets[i] != 0) {
            return i;
        }
    }
    return HISTOGRAM_BUCKETS;
}

static void buckets_cover_every_value(void) {
    const uint64_t end = UINT64_C(1) << HISTOGRAM_VALUE_BITS;

    CHECK_EQUAL(histogram_bucket_start(0), 0);
    CHECK_EQUAL(histogram_bucket_start(HISTOGRAM_BUCKETS), end);
    for (size_t i = 0; i < HISTOGRAM_BUCKETS; i++) {
        uint64_t start = histogram_bucket_start(i);
        uint64_t width = histogram_bucket_start(i + 1) - start;
        CHECK(width >= 1 && width <= 1 + start / HISTOGRAM_PER_DOUBLING);
        CHECK(start >= HISTOGRAM_EXACT || width == 1);
    }
    /* Both ends of some buckets of each width, and what lies beyond the range. */
    for (size_t i = 0; i < HISTOGRAM_BUCKETS; i += 509) {
        CHECK_EQUAL(bucket_of(histogram_bucket_start(i)), i);
        CHECK_EQUAL(bucket_of(histogram_bucket_start(i + 1) - 1), i);
    }
    CHECK_EQUAL(bucket_of(end - 1), HISTOGRAM_BUCKETS - 1);
    CHECK_EQUAL(bucket_of(end), HISTOGRAM_BUCKETS - 1);
    CHECK_EQUAL(bucket_of(UINT64_MAX), HISTOGRAM_BUCKETS - 1);
}

static void rows_are_as_narrow_as_their_number_allows(void) {
    clear();
    CHECK_EQUAL(histogram_row_width(&histogram, 1), 1);

    /* Far apart, but few. */
    histogram_add(&histogram, 0);
    histogram_add(&histogram, 100);
    histogram_add(&histogram, 100);
    histogram_add(&histogram, 1000);
    CHECK_EQUAL(histogram_row_width(&histogram, 3), 1);
    CHECK_EQUAL(histogram_row_width(&histogram, 2), 128);
    CHECK_EQUAL(histogram_row_width(&histogram, 1), 1024);
    histogram_add(&histogram, UINT64_MAX);
    CHECK_EQUAL(histogram_row_width(&histogram, 1), UINT64_C(1) << HISTOGRAM_VALUE_BITS);

    /* 1000 values beside each other, from the middle of a row. */
    clear();
    for (uint64_t value = 7; value < 1007; value++) {
        histogram_add(&histogram, value);
    }
    CHECK_EQUAL(histogram_row_width(&histogram, 1000), 1);
    CHECK_EQUAL(histogram_row_width(&histogram, 999), 2);
    CHECK_EQUAL(histogram_row_width(&histogram, 501), 2);
    CHECK_EQUAL(histogram_row_width(&histogram, 500), 4);
}

static void quantiles_of_known_values(void) {
    clear();
    CHECK_EQUAL(histogram_quantile(&histogram, 999), 0);

    histogram_add(&histogram, 5);
    CHECK_EQUAL(histogram_quantile(&histogram, 1), 5);
    CHECK_EQUAL(histogram_quantile(&histogram, 999), 5);
    CHECK_EQUAL(histogram_quantile(&histogram, 1000), 5);

    /* 1..1000: the 99.9 % quantile is the 999th value. */
    clear();
    for (uint64_t value = 1; value <= 1000; value++) {
        histogram_add(&histogram, value);
    }
    CHECK_EQUAL(histogram_quantile(&histogram, 500), 500);
    CHECK_EQUAL(histogram_quantile(&histogram, 999), 999);
    CHECK_EQUAL(histogram_quantile(&histogram, 1000), 1000);

    /* One outlier in 1001 values is not seen at 99.9 %, two in 1001 are. */
    clear();
    for (unsigned i = 0; i < 1000; i++) {
        histogram_add(&histogram, 7);
    }
    histogram_add(&histogram, 100);
    CHECK_EQUAL(histogram_quantile(&histogram, 999), 7);
    histogram.buckets[7]--;
    histogram_add(&histogram, 100);
    histogram.total--;
    CHECK_EQUAL(histogram_quantile(&histogram, 999), 100);
}

static int compare(const void *a, const void *b) {
    uint64_t left = *(const uint64_t *)a;
    uint64_t right = *(const uint64_t *)b;

    return left < right ? -1 : left > right;
}

/* Against a sorted array: never below the true quantile, at most 1/1024 above. */
static void quantiles_of_random_values(void) {
    enum { COUNT = 5000 };
    static uint64_t values[COUNT];
    static const uint32_t per_milles[] = {1, 10, 500, 900, 990, 999, 1000};
    uint64_t state = 0x415;

    for (unsigned round = 0; round < 20; round++) {
        unsigned bits = 4 + round * 32 / 20;
        clear();
        for (size_t i = 0; i < COUNT; i++) {
            values[i] = random_next(&state) & ((UINT64_C(1) << bits) - 1);
            histogram_add(&histogram, values[i]);
        }
        CHECK_EQUAL(histogram.total, COUNT);
        qsort(values, COUNT, sizeof values[0], compare);
        for (size_t i = 0; i < sizeof per_milles / sizeof per_milles[0]; i++) {
            size_t rank = (COUNT * per_milles[i] + 999) / 1000;
            uint64_t exact = values[rank - 1];
            uint64_t found = histogram_quantile(&histogram, per_milles[i]);
            CHECK(found >= exact && found <= exact + exact / HISTOGRAM_PER_DOUBLING);
        }
    }
}

void test_histogram(void) {
    buckets_cover_every_value();
    rows_are_as_narrow_as_their_number_allows();
    quantiles_of_known_values();
    quantiles_of_random_values();
}
