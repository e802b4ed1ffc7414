/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The host tests' only tool: a check that names itself when it fails, and a fixed random source. */
#ifndef CHECK_H
#define CHECK_H

#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>

extern unsigned checks_done;
extern unsigned checks_failed;

#define CHECK(condition)                                                         \
    do {                                                                         \
        checks_done++;                                                           \
        if (!(condition)) {                                                      \
            checks_failed++;                                                     \
            fprintf(stderr, "%s:%d: failed: %s\n", __FILE__, __LINE__, #condition); \
        }                                                                        \
    } while (0)

#define CHECK_EQUAL(actual, expected)                                                        \
    do {                                                                                     \
        uint64_t actual_ = (actual);                                                         \
        uint64_t expected_ = (expected);                                                     \
        checks_done++;                                                                       \
        if (actual_ != expected_) {                                                          \
            checks_failed++;                                                                 \
            fprintf(stderr, "%s:%d: %s is %" PRIu64 ", expected %" PRIu64 "\n", __FILE__,     \
                    __LINE__, #actual, actual_, expected_);                                  \
        }                                                                                    \
    } while (0)

/* xorshift64*: the same sequence in every run, so that a failure can be repeated. */
static inline uint64_t random_next(uint64_t *state) {
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return *state * UINT64_C(0x2545F4914F6CDD1D);
}

void test_fdt(void);
void test_bootargs(void);
void test_histogram(void);
void test_duechain(void);
void test_accounting(void);
void test_virtqueue(void);

#endif
