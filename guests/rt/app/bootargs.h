/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The guest's parameters, from the `bootargs` of its device tree: words `key=value`, separated by
 * white space, each key at most once, all optional. README.md lists them.
 *
 * Pure: no hardware, tested on the host.
 */
#ifndef BOOTARGS_H
#define BOOTARGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The largest table that the load walks through, and of what its size is a multiple. */
#define TABLE_MAX (UINT64_C(1024) * 1024)
#define TABLE_UNIT UINT64_C(4096)

struct parameters {
    uint64_t period_ns;
    uint64_t burst_ns;
    uint64_t duration_ns; /* as given; `periods` is what counts */
    uint64_t periods;     /* how many periods to measure; 0: for ever */
    uint64_t warmup;      /* how many periods to run before these */
    uint32_t load_percent;
    uint64_t table; /* bytes of the table that the load walks through; 0: it spins */
    bool histogram;
    bool echo;    /* the guest sends back what comes over its first memory link */
    uint32_t network;        /* IPv4 address on the first network card, its first byte uppermost; 0: no network */
    uint32_t network_prefix; /* bits of the address that are the network's */
    uint32_t watchdog_s; /* timeout of the watchdog, in seconds; 0: it stays off */
    uint64_t hang_ns;    /* after this time the guest hangs, with interrupts masked; 0: it does not */
    bool restart; /* at the end the guest restarts, instead of turning itself off */
};

/* What is wrong: `word` (not zero-terminated) as the user wrote it, and what is allowed instead. */
struct bootargs_error {
    const char *word;
    size_t word_length;
    const char *allowed;
};

/* Reads `length` bytes. On false, `*error` is set and `*parameters` is undefined. */
bool bootargs_parse(const char *text, size_t length, struct parameters *parameters,
                    struct bootargs_error *error);

#endif
