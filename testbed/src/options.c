/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "options.h"

#include "counters.h"
#include "symbols.h"
#include "exits.h"
#include "trail.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct options options = {
    .quantum = 1000,
    .instructions_per_us = 1000,
    .disk_us = 100,
    .end_mark = NO_MARK,
    .profile_from = NO_MARK,
    .profile_to = NO_MARK,
    .top = 200,
};

struct number {
    const char *name;
    uint64_t *to;
    uint64_t least, most;
};

static const struct number numbers[] = {
    {"q", &options.quantum, 50, 1000000},
    {"ipus", &options.instructions_per_us, 1, 100000},
    {"seed", &options.seed, 0, UINT32_MAX},
    {"disk-us", &options.disk_us, 0, 1000000},
    {"end-us", &options.end_us, 0, UINT32_MAX * 1000ull},
    {"end-mark", &options.end_mark, 0, UINT16_MAX},
    {"profile-from", &options.profile_from, 0, UINT16_MAX},
    {"profile-to", &options.profile_to, 0, UINT16_MAX},
    {"top", &options.top, 0, 1000000},
};

static bool read_number(const struct number *number, const char *text)
{
    char *rest;

    errno = 0;
    *number->to = strtoull(text, &rest, 10);
    if (!errno && text[0] >= '0' && text[0] <= '9' && !*rest && *number->to >= number->least &&
        *number->to <= number->most)
        return true;
    fprintf(stderr, "spumone-clock: --%s %s: expected a number from %" PRIu64 " to %" PRIu64 "\n",
            number->name, text, number->least, number->most);
    return false;
}

static bool read_causes(const char *text)
{
    bool on = !strcmp(text, "on");

    if (!on && strcmp(text, "off")) {
        fprintf(stderr, "spumone-clock: --causes %s: expected on or off\n", text);
        return false;
    }
    exits_read_causes(on);
    return true;
}

static bool read_option(const char *name, const char *value)
{
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
        if (!strcmp(name, numbers[i].name))
            return read_number(&numbers[i], value);
    if (!strcmp(name, "json")) {
        options.json = value;
        return true;
    }
    if (!strcmp(name, "trace")) {
        options.trace = value;
        return true;
    }
    if (!strcmp(name, "symbols"))
        return symbols_load(value);
    if (!strcmp(name, "spin")) {
        counters_add_spin_function(value);
        return true;
    }
    if (!strcmp(name, "causes"))
        return read_causes(value);
    if (!strcmp(name, "trails")) {
        if (trail_record(value))
            return true;
        fprintf(stderr, "spumone-clock: --trails %s: expected CAUSE:END, such as IRQ:switches\n", value);
        return false;
    }
    fprintf(stderr, "spumone-clock: unknown option %s; known are q, ipus, seed, disk-us, end-us, "
                    "end-mark, profile-from, profile-to, top, json, trace, symbols, spin, causes and trails\n",
            name);
    return false;
}

bool options_read(int count, char **arguments)
{
    for (int i = 0; i < count; i++) {
        char *equals = strchr(arguments[i], '=');

        if (!equals) {
            fprintf(stderr, "spumone-clock: %s: expected name=value\n", arguments[i]);
            return false;
        }
        *equals = '\0';
        if (!read_option(arguments[i], equals + 1))
            return false;
    }
    return true;
}
