/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A histogram of latencies in counter ticks that is exact where it matters and never overflows.
 *
 * Below 2048 ticks (33 µs at 62.5 MHz) every value has its own bucket. Above, each doubling of the
 * value is divided into 1024 buckets, so a bucket is never wider than 1/1024 of the values in it.
 *
 * Pure: no hardware, tested on the host.
 */
#ifndef HISTOGRAM_H
#define HISTOGRAM_H

#include <stddef.h>
#include <stdint.h>

#define HISTOGRAM_EXACT_BITS 11
#define HISTOGRAM_VALUE_BITS 36 /* larger values are counted as the largest: 18 minutes at 62.5 MHz */
#define HISTOGRAM_EXACT (1u << HISTOGRAM_EXACT_BITS)
#define HISTOGRAM_PER_DOUBLING (HISTOGRAM_EXACT / 2)
#define HISTOGRAM_BUCKETS \
    (HISTOGRAM_EXACT + (HISTOGRAM_VALUE_BITS - HISTOGRAM_EXACT_BITS) * HISTOGRAM_PER_DOUBLING)

struct histogram {
    uint64_t total;
    uint64_t buckets[HISTOGRAM_BUCKETS];
};

void histogram_add(struct histogram *histogram, uint64_t value);

/* The smallest value that falls into bucket `index` (0..HISTOGRAM_BUCKETS; one beyond the last is
 * allowed and gives the end of the range). */
uint64_t histogram_bucket_start(size_t index);

/*
 * The smallest power of two, in ticks, such that at most `rows_max` (at least 1) of the rows of this width,
 * which start at its multiples, hold values. A value counts where its bucket starts.
 */
uint64_t histogram_row_width(const struct histogram *histogram, size_t rows_max);

/*
 * The smallest bucket end v such that at least `per_mille` thousandths of the values (1..1000) are
 * at most v: exact below 2048 ticks, else at most 1/1024 too high. 0 if there are no values.
 */
uint64_t histogram_quantile(const struct histogram *histogram, uint32_t per_mille);

#endif
