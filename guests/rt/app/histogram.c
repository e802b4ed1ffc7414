/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "histogram.h"

#define VALUE_MAX ((UINT64_C(1) << HISTOGRAM_VALUE_BITS) - 1)

static size_t bucket_of(uint64_t value) {
    if (value < HISTOGRAM_EXACT) {
        return value;
    }
    if (value > VALUE_MAX) {
        value = VALUE_MAX;
    }
    /* The bits below the leading HISTOGRAM_EXACT_BITS are dropped. */
    unsigned leading = 63u - (unsigned)__builtin_clzll(value);
    unsigned dropped = leading + 1 - HISTOGRAM_EXACT_BITS;
    return (size_t)dropped * HISTOGRAM_PER_DOUBLING + (value >> dropped);
}

void histogram_add(struct histogram *histogram, uint64_t value) {
    histogram->buckets[bucket_of(value)]++;
    histogram->total++;
}

uint64_t histogram_bucket_start(size_t index) {
    if (index < HISTOGRAM_EXACT) {
        return index;
    }
    uint64_t dropped = index / HISTOGRAM_PER_DOUBLING - 1;
    return (index - dropped * HISTOGRAM_PER_DOUBLING) << dropped;
}

static size_t rows_with_values(const struct histogram *histogram, uint64_t width) {
    uint64_t before = UINT64_MAX;
    size_t rows = 0;

    for (size_t i = 0; i < HISTOGRAM_BUCKETS; i++) {
        if (histogram->buckets[i] != 0) {
            uint64_t row = histogram_bucket_start(i) / width;
            rows += row != before;
            before = row;
        }
    }
    return rows;
}

uint64_t histogram_row_width(const struct histogram *histogram, size_t rows_max) {
    uint64_t width = 1;

    /* There is but one row of the full range, so this ends. */
    while (width <= VALUE_MAX && rows_with_values(histogram, width) > rows_max) {
        width *= 2;
    }
    return width;
}

uint64_t histogram_quantile(const struct histogram *histogram, uint32_t per_mille) {
    /* Rounded up, in two steps that cannot overflow. */
    uint64_t wanted = histogram->total / 1000 * per_mille +
                      (histogram->total % 1000 * per_mille + 999) / 1000;
    uint64_t seen = 0;

    if (wanted == 0) {
        return 0;
    }
    for (size_t i = 0; i < HISTOGRAM_BUCKETS; i++) {
        seen += histogram->buckets[i];
        if (seen >= wanted) {
            return histogram_bucket_start(i + 1) - 1;
        }
    }
    return VALUE_MAX;
}
