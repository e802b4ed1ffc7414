/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "duechain.h"

#include "check.h"

/* origin + k * period, computed the direct way in 128 bits. */
static uint64_t exact(uint64_t origin, uint64_t k, uint64_t period_ns, uint64_t frequency_hz) {
    return origin + (uint64_t)((unsigned __int128)k * period_ns * frequency_hz / NS_PER_SECOND);
}

static const uint64_t frequencies[] = {1000000,  19200000,   24000000,   62500000,
                                       54000000, 1000000000, 33333333, UINT64_C(10000000000)};
static const uint64_t periods[] = {50000,   51000,   125000,     333333,      1000000,
                                   1234567, 7000000, 1000000000, UINT64_C(60000000000)};

#define FOR_EACH(index, array) for (size_t index = 0; index < sizeof array / sizeof array[0]; index++)

static void does_not_drift(void) {
    FOR_EACH(f, frequencies) FOR_EACH(p, periods) {
        struct due_chain chain = due_chain_start(1000, periods[p], frequencies[f]);
        unsigned wrong = 0;
        for (uint64_t k = 1; k <= 3000; k++) {
            wrong += chain.next != exact(1000, k, periods[p], frequencies[f]);
            due_chain_step(&chain);
        }
        CHECK_EQUAL(wrong, 0);
    }
}

/* The reason for the fractions: 8 × 125 us is 1 ms, though 125 us is 7812.5 ticks of 62.5 MHz. */
static void coincides_with_the_tick(void) {
    FOR_EACH(f, frequencies) {
        struct due_chain tick = due_chain_start(77, 1000000, frequencies[f]);
        struct due_chain eighth = due_chain_start(77, 125000, frequencies[f]);
        unsigned wrong = 0;
        for (unsigned k = 0; k < 1000; k++) {
            for (unsigned i = 0; i < 7; i++) {
                wrong += eighth.next >= tick.next;
                due_chain_step(&eighth);
            }
            wrong += eighth.next != tick.next;
            due_chain_step(&eighth);
            due_chain_step(&tick);
        }
        CHECK_EQUAL(wrong, 0);
    }
}

static void advances_to_just_beyond_now(void) {
    uint64_t state = 0xD0E;

    FOR_EACH(f, frequencies) FOR_EACH(p, periods) {
        struct due_chain chain = due_chain_start(5, periods[p], frequencies[f]);
        uint64_t k = 1;
        uint64_t now = 5;

        for (unsigned round = 0; round < 200; round++) {
            /* Gaps from below one period to billions of periods. */
            unsigned __int128 gap = (unsigned __int128)random_next(&state) >> (random_next(&state) % 40 + 24);
            now += (uint64_t)gap;
            if (exact(5, 0, periods[p], frequencies[f]) + now > UINT64_MAX / 2) {
                break;
            }
            k += due_chain_advance(&chain, now);
            CHECK(chain.next > now);
            CHECK_EQUAL(chain.next, exact(5, k, periods[p], frequencies[f]));
            CHECK(exact(5, k - 1, periods[p], frequencies[f]) <= now);
        }
    }
}

static void a_due_time_passes_when_it_is_reached(void) {
    struct due_chain chain = due_chain_start(0, 1000000, 62500000);

    CHECK_EQUAL(chain.next, 62500);
    CHECK_EQUAL(due_chain_advance(&chain, 62499), 0);
    CHECK_EQUAL(due_chain_advance(&chain, 62500), 1);
    CHECK_EQUAL(due_chain_advance(&chain, 62500), 0);
    CHECK_EQUAL(due_chain_advance(&chain, 3 * 62500), 2);
    CHECK_EQUAL(chain.next, 4 * 62500);
    /* A leap of 300 years comes back, and lands right. */
    CHECK_EQUAL(due_chain_advance(&chain, UINT64_C(62500) * 9000000000000), UINT64_C(9000000000000) - 3);
}

static void conversions(void) {
    CHECK_EQUAL(ticks_to_ns(1, 62500000), 16);
    CHECK_EQUAL(ticks_to_ns(62500000, 62500000), NS_PER_SECOND);
    CHECK_EQUAL(ticks_to_ns(1, 33333333), 30);
    CHECK_EQUAL(ns_to_ticks(16, 62500000), 1);
    CHECK_EQUAL(ns_to_ticks(15, 62500000), 0);
    CHECK_EQUAL(ns_to_ticks(UINT64_C(57000000000), 62500000), UINT64_C(3562500000));
    CHECK_EQUAL(ns_to_ticks(UINT64_C(1000000) * NS_PER_SECOND, UINT64_C(10000000000)),
                UINT64_C(10000000000000000));
}

void test_duechain(void) {
    does_not_drift();
    coincides_with_the_tick();
    advances_to_just_beyond_now();
    a_due_time_passes_when_it_is_reached();
    conversions();
}
