/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "bootargs.h"

#include <string.h>

#define NS_PER_US UINT64_C(1000)
#define NS_PER_MS UINT64_C(1000000)
#define NS_PER_S UINT64_C(1000000000)

#define PERIOD_DEFAULT NS_PER_MS
#define PERIOD_MIN (50 * NS_PER_US)
#define PERIOD_MAX NS_PER_S
#define LOAD_MAX 95
#define BURST_DEFAULT (500 * NS_PER_MS)
#define BURST_MIN NS_PER_MS
#define BURST_MAX (60 * NS_PER_S)
#define DURATION_DEFAULT (10 * NS_PER_S)
#define DURATION_MAX (1000000 * NS_PER_S)
#define SAMPLES_MAX UINT64_C(1000000000)
#define WARMUP_MAX SAMPLES_MAX
#define HANG_MIN NS_PER_MS
#define PREFIX_MIN 8
#define PREFIX_MAX 30

enum key { PERIOD, LOAD, TABLE, BURST, DURATION, SAMPLES, WARMUP, HISTOGRAM, LINK, NETWORK, WATCHDOG, HANG, END, KEYS };

static const char *const names[KEYS] = {"period", "load",      "table", "burst",   "duration", "samples", "warmup",
                                        "histogram", "link",  "network", "watchdog", "hang",   "end"};

static const char *const allowed[KEYS] = {
    "period is from 50us to 1s, a whole number with the unit ns, us, ms or s, as in period=1ms",
    "load is from 0% to 95%, as in load=30%",
    "table is 0 or from 4KiB to 1024KiB, a multiple of 4 with the unit KiB, as in table=128KiB",
    "burst is from 1ms to 60s, a whole number with the unit ns, us, ms or s, as in burst=500ms",
    "duration is 0 (for ever) or from one period to 1000000s, as in duration=10s",
    "samples is a whole number from 1 to 1000000000, as in samples=10000",
    "warmup is a whole number from 0 to 1000000000, as in warmup=10000",
    "histogram is on or off",
    "link is echo or off",
    "network is off, or an IPv4 address with the bits of its network, 8 to 30, as in network=10.9.0.1/24",
    "watchdog is 0 (off) or from 1s to 1000000s, in whole seconds, as in watchdog=1s",
    "hang is 0 (never) or from 1ms to 1000000s, a whole number with the unit ns, us, ms or s, as in hang=500ms",
    "end is off or reset",
};

/* A piece of the text. */
struct span {
    const char *start;
    size_t length;
};

static bool equals(struct span span, const char *text) {
    return span.length == strlen(text) && memcmp(span.start, text, span.length) == 0;
}

/* Takes the decimal number at the front of `span`: at least one digit, no more than 64 bits. */
static bool take_number(struct span *span, uint64_t *number) {
    size_t digits = 0;
    uint64_t value = 0;

    while (digits < span->length && span->start[digits] >= '0' && span->start[digits] <= '9') {
        uint64_t digit = (uint64_t)(span->start[digits] - '0');
        if (value > (UINT64_MAX - digit) / 10) {
            return false;
        }
        value = value * 10 + digit;
        digits++;
    }
    span->start += digits;
    span->length -= digits;
    *number = value;
    return digits > 0;
}

/* A whole number with a unit, or a plain 0. */
static bool parse_time(struct span span, uint64_t *ns) {
    static const struct {
        const char *name;
        uint64_t ns;
    } units[] = {{"ns", 1}, {"us", NS_PER_US}, {"ms", NS_PER_MS}, {"s", NS_PER_S}};
    uint64_t number;

    if (!take_number(&span, &number)) {
        return false;
    }
    if (span.length == 0) {
        *ns = 0;
        return number == 0;
    }
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
        if (equals(span, units[i].name)) {
            *ns = number * units[i].ns;
            return number <= UINT64_MAX / units[i].ns;
        }
    }
    return false;
}

static bool parse_time_within(struct span span, uint64_t min, uint64_t max, uint64_t *ns) {
    return parse_time(span, ns) && *ns >= min && *ns <= max;
}

/* A plain 0, or a time from `min` on. */
static bool parse_time_or_never(struct span span, uint64_t min, uint64_t *ns) {
    return parse_time_within(span, 0, DURATION_MAX, ns) && (*ns == 0 || *ns >= min);
}

static bool parse_watchdog(struct span span, uint32_t *seconds) {
    uint64_t ns;

    if (!parse_time_or_never(span, NS_PER_S, &ns) || ns % NS_PER_S != 0) {
        return false;
    }
    *seconds = (uint32_t)(ns / NS_PER_S);
    return true;
}

/* The unit % may be left out. */
static bool parse_load(struct span span, uint32_t *percent) {
    uint64_t number;

    if (!take_number(&span, &number) || (span.length != 0 && !equals(span, "%"))) {
        return false;
    }
    *percent = (uint32_t)number;
    return number <= LOAD_MAX;
}

/* A number of bytes, or a plain 0. */
static bool parse_table(struct span span, uint64_t *bytes) {
    uint64_t number;

    if (!take_number(&span, &number)) {
        return false;
    }
    *bytes = number * 1024;
    return number == 0 ? span.length == 0
                       : equals(span, "KiB") && number <= TABLE_MAX / 1024 && *bytes % TABLE_UNIT == 0;
}

/* A number of periods. */
static bool parse_count_within(struct span span, uint64_t min, uint64_t max, uint64_t *count) {
    return take_number(&span, count) && span.length == 0 && *count >= min && *count <= max;
}

/* One of two words. */
static bool parse_choice(struct span span, const char *yes, const char *no, bool *chosen) {
    *chosen = equals(span, yes);
    return *chosen || equals(span, no);
}

static bool take_character(struct span *span, char wanted) {
    if (span->length == 0 || *span->start != wanted) {
        return false;
    }
    span->start++;
    span->length--;
    return true;
}

/* An IPv4 address of a host, with the bits of its network behind a slash. */
static bool parse_network(struct span span, uint32_t *address, uint32_t *prefix) {
    uint64_t number;

    *address = 0;
    if (equals(span, "off")) {
        return true;
    }
    for (unsigned i = 0; i < 4; i++) {
        if ((i > 0 && !take_character(&span, '.')) || !take_number(&span, &number) || number > UINT8_MAX) {
            return false;
        }
        *address = *address << 8 | (uint32_t)number;
    }
    if (!take_character(&span, '/') || !take_number(&span, &number) || span.length != 0 || number < PREFIX_MIN ||
        number > PREFIX_MAX) {
        return false;
    }
    *prefix = (uint32_t)number;
    uint32_t hosts = UINT32_MAX >> *prefix;
    /* Neither the network itself nor all of its hosts; not this host, the loopback, multicast or above. */
    return (*address & hosts) != 0 && (*address & hosts) != hosts && *address >> 24 != 0 && *address >> 24 != 127 &&
           *address >> 24 < 224;
}

static bool parse_value(enum key key, struct span value, struct parameters *parameters) {
    switch (key) {
    case PERIOD:
        return parse_time_within(value, PERIOD_MIN, PERIOD_MAX, &parameters->period_ns);
    case LOAD:
        return parse_load(value, &parameters->load_percent);
    case TABLE:
        return parse_table(value, &parameters->table);
    case BURST:
        return parse_time_within(value, BURST_MIN, BURST_MAX, &parameters->burst_ns);
    case DURATION:
        return parse_time_within(value, 0, DURATION_MAX, &parameters->duration_ns);
    case SAMPLES:
        return parse_count_within(value, 1, SAMPLES_MAX, &parameters->periods);
    case WARMUP:
        return parse_count_within(value, 0, WARMUP_MAX, &parameters->warmup);
    case HISTOGRAM:
        return parse_choice(value, "on", "off", &parameters->histogram);
    case LINK:
        return parse_choice(value, "echo", "off", &parameters->echo);
    case NETWORK:
        return parse_network(value, &parameters->network, &parameters->network_prefix);
    case WATCHDOG:
        return parse_watchdog(value, &parameters->watchdog_s);
    case HANG:
        return parse_time_or_never(value, HANG_MIN, &parameters->hang_ns);
    case END:
        return parse_choice(value, "reset", "off", &parameters->restart);
    case KEYS:
        break;
    }
    return false;
}

static bool is_space(char c) {
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

/* Takes the next word; empty at the end of the text. */
static struct span take_word(const char *text, size_t length, size_t *at) {
    while (*at < length && is_space(text[*at])) {
        (*at)++;
    }
    size_t start = *at;
    while (*at < length && !is_space(text[*at])) {
        (*at)++;
    }
    return (struct span){text + start, *at - start};
}

static bool fail(struct bootargs_error *error, struct span word, const char *what_is_allowed) {
    *error = (struct bootargs_error){word.start, word.length, what_is_allowed};
    return false;
}

/* Splits `word` at the first '=': false if there is none or no such key. */
static bool split(struct span word, enum key *key, struct span *value) {
    size_t name_length = 0;

    while (name_length < word.length && word.start[name_length] != '=') {
        name_length++;
    }
    if (name_length == word.length) {
        return false;
    }
    struct span name = {word.start, name_length};
    for (size_t i = 0; i < KEYS; i++) {
        if (equals(name, names[i])) {
            *key = (enum key)i;
            *value = (struct span){word.start + name_length + 1, word.length - name_length - 1};
            return true;
        }
    }
    return false;
}

bool bootargs_parse(const char *text, size_t length, struct parameters *parameters,
                    struct bootargs_error *error) {
    struct span given[KEYS] = {{NULL, 0}};
    size_t at = 0;

    *parameters = (struct parameters){
        .period_ns = PERIOD_DEFAULT,
        .burst_ns = BURST_DEFAULT,
        .duration_ns = DURATION_DEFAULT,
        .histogram = true,
    };
    for (;;) {
        struct span word = take_word(text, length, &at);
        enum key key;
        struct span value;

        if (word.length == 0) {
            break;
        }
        if (!split(word, &key, &value)) {
            return fail(error, word,
                        "the keys are period, load, table, burst, duration, samples, warmup, "
                        "histogram, link, network, watchdog, hang and end, each followed by = and a value");
        }
        if (given[key].start != NULL) {
            return fail(error, word, "a key is allowed once");
        }
        given[key] = word;
        if (!parse_value(key, value, parameters)) {
            return fail(error, word, allowed[key]);
        }
    }
    if (given[SAMPLES].start != NULL) {
        if (given[DURATION].start != NULL) {
            return fail(error, given[SAMPLES], "either duration or samples is allowed, not both");
        }
        parameters->duration_ns = 0;
        return true;
    }
    parameters->periods = parameters->duration_ns / parameters->period_ns;
    if (parameters->duration_ns != 0 && parameters->periods == 0) {
        return fail(error, given[DURATION], allowed[DURATION]);
    }
    return true;
}
