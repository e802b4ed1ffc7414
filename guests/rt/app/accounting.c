/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "accounting.h"

struct accounting accounting_start(struct due_chain due, uint64_t warmup) {
    return (struct accounting){.due = due, .warmup = warmup, .latency_min = UINT64_MAX};
}

void accounting_job(struct accounting *accounting, struct histogram *histogram, uint64_t now) {
    uint64_t due = accounting->due.next;
    /* The timer's condition is counter >= due time, so `now` can only be before it if the counter
     * was set back; that is no latency. */
    uint64_t latency = now > due ? now - due : 0;

    due_chain_step(&accounting->due);
    if (accounting->warmup > 0) {
        accounting->warmup--;
        return;
    }
    if (now >= accounting->due.next) {
        accounting->late++;
    }
    if (latency < accounting->latency_min) {
        accounting->latency_min = latency;
    }
    if (latency > accounting->latency_max) {
        accounting->latency_max = latency;
    }
    accounting->latency_sum += latency;
    histogram_add(histogram, latency);
    accounting->jobs++;
}

void accounting_give_up(struct accounting *accounting) {
    due_chain_step(&accounting->due);
    if (accounting->warmup > 0) {
        accounting->warmup--;
        return;
    }
    accounting->lost++;
}

uint64_t accounting_missing(const struct accounting *accounting, uint64_t now) {
    struct due_chain due = accounting->due;
    uint64_t passed = due_chain_advance(&due, now);

    /* Of those that passed, all but the last are a period old. */
    return passed > accounting->warmup + 1 ? passed - 1 - accounting->warmup : 0;
}

uint64_t accounting_average(const struct accounting *accounting) {
    return accounting->jobs > 0 ? (accounting->latency_sum + accounting->jobs / 2) / accounting->jobs : 0;
}
