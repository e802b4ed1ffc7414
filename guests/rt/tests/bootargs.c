/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "bootargs.h"

#include <stdlib.h>
#include <string.h>

#include "check.h"

/* Parses a copy without a terminating zero: the text in a device tree is given by its length. */
static bool parse(const char *text, struct parameters *parameters, char *wrong, const char **allowed) {
    size_t length = strlen(text);
    struct bootargs_error error = {NULL, 0, NULL};

    char *exact = malloc(length > 0 ? length : 1);
    memcpy(exact, text, length);
    bool good = bootargs_parse(exact, length, parameters, &error);
    if (!good) {
        CHECK(error.allowed != NULL && error.word >= exact && error.word_length <= length &&
              error.word + error.word_length <= exact + length);
        memcpy(wrong, error.word, error.word_length);
        wrong[error.word_length] = 0;
        *allowed = error.allowed;
    }
    free(exact);
    return good;
}

static struct parameters accepted(const char *text) {
    struct parameters parameters = {0};
    char wrong[256];
    const char *allowed = "";

    if (!parse(text, &parameters, wrong, &allowed)) {
        fprintf(stderr, "refused \"%s\" because of \"%s\": %s\n", text, wrong, allowed);
        CHECK(false);
    }
    CHECK(true);
    return parameters;
}

/* `text` must be refused because of the word `word`, with an explanation that contains `hint`. */
static void refused(const char *text, const char *word, const char *hint) {
    struct parameters parameters;
    char wrong[256] = "";
    const char *allowed = "";

    bool good = parse(text, &parameters, wrong, &allowed);
    if (good || strcmp(wrong, word) != 0 || strstr(allowed, hint) == NULL) {
        fprintf(stderr, "\"%s\": %s, word \"%s\", \"%s\"\n", text, good ? "accepted" : "refused", wrong,
                allowed);
        CHECK(false);
    }
    CHECK(true);
}

static void defaults(void) {
    static const char *const empty[] = {"", " ", "\t \n"};

    for (size_t i = 0; i < sizeof empty / sizeof empty[0]; i++) {
        struct parameters p = accepted(empty[i]);
        CHECK_EQUAL(p.period_ns, 1000000);
        CHECK_EQUAL(p.burst_ns, 500000000);
        CHECK_EQUAL(p.duration_ns, UINT64_C(10000000000));
        CHECK_EQUAL(p.periods, 10000);
        CHECK_EQUAL(p.load_percent, 0);
        CHECK_EQUAL(p.table, 0);
        CHECK_EQUAL(p.warmup, 0);
        CHECK(p.histogram);
        CHECK(!p.restart);
        CHECK(!p.echo);
        CHECK_EQUAL(p.network, 0);
        CHECK_EQUAL(p.watchdog_s, 0);
        CHECK_EQUAL(p.hang_ns, 0);
    }
}

static void values(void) {
    struct parameters p =
        accepted("period=250us load=30% burst=100ms duration=2s histogram=off");
    CHECK_EQUAL(p.period_ns, 250000);
    CHECK_EQUAL(p.load_percent, 30);
    CHECK_EQUAL(p.burst_ns, 100000000);
    CHECK_EQUAL(p.periods, 8000);
    CHECK(!p.histogram);

    CHECK_EQUAL(accepted("period=50us").period_ns, 50000);
    CHECK_EQUAL(accepted("period=50000ns").period_ns, 50000);
    CHECK_EQUAL(accepted("period=1s").period_ns, 1000000000);
    CHECK_EQUAL(accepted("load=0").load_percent, 0);
    CHECK_EQUAL(accepted("load=95%").load_percent, 95);
    CHECK_EQUAL(accepted("table=0").table, 0);
    CHECK_EQUAL(accepted("table=4KiB").table, 4096);
    CHECK_EQUAL(accepted("table=1024KiB").table, 1048576);
    CHECK_EQUAL(accepted("  samples=7\n").periods, 7);
    CHECK_EQUAL(accepted("samples=1000000000").periods, 1000000000);
    CHECK_EQUAL(accepted("watchdog=2s").watchdog_s, 2);
    CHECK_EQUAL(accepted("watchdog=0").watchdog_s, 0);
    CHECK_EQUAL(accepted("hang=500ms").hang_ns, 500000000);
    CHECK_EQUAL(accepted("hang=0").hang_ns, 0);
    CHECK(accepted("end=reset").restart);
    CHECK(accepted("link=echo").echo);
    CHECK(!accepted("link=off").echo);
    CHECK_EQUAL(accepted("network=10.9.0.1/24").network, 0x0a090001);
    CHECK_EQUAL(accepted("network=10.9.0.1/24").network_prefix, 24);
    CHECK_EQUAL(accepted("network=223.255.255.254/30").network, 0xdffffffe);
    CHECK_EQUAL(accepted("network=1.0.0.1/8").network_prefix, 8);
    CHECK_EQUAL(accepted("network=off").network, 0);
    CHECK(!accepted("end=off").restart);
    CHECK_EQUAL(accepted("warmup=0").warmup, 0);
    CHECK_EQUAL(accepted("warmup=1000000000").warmup, 1000000000);
    CHECK_EQUAL(accepted("samples=7 warmup=3").periods, 7);
    CHECK_EQUAL(accepted("duration=0").periods, 0);
    CHECK_EQUAL(accepted("duration=0s").periods, 0);
    CHECK_EQUAL(accepted("duration=1ms period=300us").periods, 3);
    CHECK_EQUAL(accepted("duration=1000000s").periods, 1000000000);
}

static void errors(void) {
    refused("verbose", "verbose", "keys are");
    refused("load=1 foo=2", "foo=2", "keys are");
    refused("=1", "=1", "keys are");
    refused("loa=1", "loa=1", "keys are");
    refused("loads=1", "loads=1", "keys are");
    refused("load", "load", "keys are");
    refused("LOAD=1", "LOAD=1", "keys are");

    refused("period=", "period=", "50us to 1s");
    refused("period=1", "period=1", "50us to 1s");
    refused("period=0", "period=0", "50us to 1s");
    refused("period=1m", "period=1m", "50us to 1s");
    refused("period=1 ms", "period=1", "50us to 1s");
    refused("period=1msx", "period=1msx", "50us to 1s");
    refused("period=1.5ms", "period=1.5ms", "50us to 1s");
    refused("period=-1ms", "period=-1ms", "50us to 1s");
    refused("period=49999ns", "period=49999ns", "50us to 1s");
    refused("period=1001ms", "period=1001ms", "50us to 1s");
    /* 2^64 + 1000000 ns, and a product that wraps round to a permitted value */
    refused("period=18446744073710551616ns", "period=18446744073710551616ns", "50us to 1s");
    refused("period=18446744074s", "period=18446744074s", "50us to 1s");

    refused("load=96", "load=96", "0% to 95%");
    refused("load=30%%", "load=30%%", "0% to 95%");
    refused("load=%", "load=%", "0% to 95%");
    refused("load=4294967296", "load=4294967296", "0% to 95%");
    /* The last one is 2^54 + 4: its bytes wrap round to a permitted value. */
    static const char *const tables[] = {"table=",        "table=4",     "table=4kiB",   "table=0KiB",
                                         "table=6KiB",    "table=2KiB",  "table=1028KiB", "table=18014398509481988KiB"};
    for (size_t i = 0; i < sizeof tables / sizeof tables[0]; i++) {
        refused(tables[i], tables[i], "4KiB to 1024KiB");
    }
    refused("burst=999us", "burst=999us", "1ms to 60s");
    refused("burst=61s", "burst=61s", "1ms to 60s");
    refused("duration=1000001s", "duration=1000001s", "for ever");
    refused("duration=1us", "duration=1us", "for ever");
    refused("duration=1s period=1s duration=2s", "duration=2s", "once");
    refused("samples=0", "samples=0", "1 to 1000000000");
    refused("samples=1000000001", "samples=1000000001", "1 to 1000000000");
    refused("samples=5x", "samples=5x", "1 to 1000000000");
    refused("samples=5 duration=1s", "samples=5", "not both");
    refused("duration=1s samples=5", "samples=5", "not both");
    refused("warmup=", "warmup=", "0 to 1000000000");
    refused("warmup=1000000001", "warmup=1000000001", "0 to 1000000000");
    refused("warmup=1s", "warmup=1s", "0 to 1000000000");
    refused("histogram=", "histogram=", "on or off");
    refused("histogram=onn", "histogram=onn", "on or off");
    refused("end=", "end=", "off or reset");
    refused("watchdog=1500ms", "watchdog=1500ms", "whole seconds");
    refused("watchdog=1000001s", "watchdog=1000001s", "whole seconds");
    refused("hang=999us", "hang=999us", "0 (never) or from 1ms");
    refused("link=on", "link=on", "echo or off");
    static const char *const networks[] = {
        "network=",            "network=on",          "network=10.9.0.1",    "network=10.9.0.1/",    "network=10.9.0.1/7",
        "network=10.9.0.1/31", "network=10.9.0/24",   "network=10.9.0.1.2/24", "network=10.9.0.256/24", "network=10.9..1/24",
        "network=10.9.0.0/24", "network=10.9.0.255/24", "network=0.0.0.1/24",  "network=127.0.0.1/8",  "network=224.0.0.1/24",
        "network=10.9.0.1/24x", "network=10,9.0.1/24", "network=10.9.0.1/18446744073709551640"};
    for (size_t i = 0; i < sizeof networks / sizeof networks[0]; i++) {
        refused(networks[i], networks[i], "an IPv4 address");
    }
    refused("end=restart", "end=restart", "off or reset");
    refused("load=3 load=3", "load=3", "once");
}

/* Random text over the parser's own alphabet: no crash, and what is accepted is in range. */
static void survives_random_text(void) {
    static const char *const pieces[] = {"period", "load", "table", "KiB", "burst", "duration", "samples", "warmup", "histogram", "link", "end", "network", "10.9.0.1", ".", "/",
                                         "=",      " ",    "1",     "0",        "9",       "ns",
                                         "us",     "ms",   "s",     "%",        "on",      "off", "\n"};
    uint64_t state = 0xB007;
    unsigned good = 0;

    for (unsigned round = 0; round < 200000; round++) {
        char text[128] = "";
        char wrong[256];
        const char *allowed;
        struct parameters p;
        uint64_t count = random_next(&state) % 8;

        while (count-- > 0) {
            strcat(text, pieces[random_next(&state) % (sizeof pieces / sizeof pieces[0])]);
        }
        if (parse(text, &p, wrong, &allowed)) {
            good++;
            if (p.period_ns < 50000 || p.period_ns > 1000000000 || p.load_percent > 95 ||
                p.table > TABLE_MAX || p.table % TABLE_UNIT != 0 || p.burst_ns < 1000000 || p.burst_ns > UINT64_C(60000000000)) {
                fprintf(stderr, "accepted out of range: %s\n", text);
                CHECK(false);
            }
        }
    }
    CHECK(good > 0);
}

void test_bootargs(void) {
    defaults();
    values();
    errors();
    survives_random_text();
}
