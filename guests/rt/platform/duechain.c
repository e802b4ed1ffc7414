/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "duechain.h"

/* Steps taken at once: keeps `part` × steps within 64 bits. */
#define STEPS_MAX UINT64_C(1000000000)

static void step_by(struct due_chain *chain, uint64_t steps) {
    uint64_t fraction = chain->fraction + chain->part * steps;

    chain->next += chain->whole * steps + fraction / NS_PER_SECOND;
    chain->fraction = fraction % NS_PER_SECOND;
}

struct due_chain due_chain_start(uint64_t origin, uint64_t period_ns, uint64_t frequency_hz) {
    uint64_t below_second = (period_ns % NS_PER_SECOND) * frequency_hz;
    struct due_chain chain = {
        .next = origin,
        .whole = period_ns / NS_PER_SECOND * frequency_hz + below_second / NS_PER_SECOND,
        .part = below_second % NS_PER_SECOND,
        .fraction = 0,
    };

    due_chain_step(&chain);
    return chain;
}

void due_chain_step(struct due_chain *chain) {
    /* Without a division: this runs in the timer interrupt. */
    chain->next += chain->whole;
    chain->fraction += chain->part;
    if (chain->fraction >= NS_PER_SECOND) {
        chain->fraction -= NS_PER_SECOND;
        chain->next++;
    }
}

uint64_t due_chain_advance(struct due_chain *chain, uint64_t now) {
    uint64_t passed = 0;

    if (chain->next > now) {
        return 0;
    }
    /* The usual case is one. */
    due_chain_step(chain);
    passed = 1;
    while (chain->next <= now) {
        /* No step is longer than whole + 1, so this many never go beyond the first due time after
         * `now`; what remains shrinks by the ratio of the two each round. */
        uint64_t steps = (now - chain->next) / (chain->whole + 1) + 1;
        if (steps > STEPS_MAX) {
            steps = STEPS_MAX;
        }
        step_by(chain, steps);
        passed += steps;
    }
    return passed;
}

uint64_t ticks_to_ns(uint64_t ticks, uint64_t frequency_hz) {
    return ticks / frequency_hz * NS_PER_SECOND + ticks % frequency_hz * NS_PER_SECOND / frequency_hz;
}

uint64_t ns_to_ticks(uint64_t ns, uint64_t frequency_hz) {
    return ns / NS_PER_SECOND * frequency_hz + ns % NS_PER_SECOND * frequency_hz / NS_PER_SECOND;
}
