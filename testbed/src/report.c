/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "report.h"

#include "blocks.h"
#include "clock.h"
#include "counters.h"
#include "handover.h"
#include "json.h"
#include "marks.h"
#include "options.h"
#include "profile.h"
#include "schedule.h"
#include "trail.h"
#include "util.h"
#include "exits.h"
#include "workers.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FORMAT_VERSION 1
#define NS_PER_S 1e9

static const char *const level_names[EXCEPTION_LEVELS] = {"el0", "el1", "el2", "el3"};

static FILE *output;

static bool open_file(const char *option, const char *path, FILE **file)
{
    if (!path)
        return true;
    *file = fopen(path, "we");
    if (!*file)
        fprintf(stderr, "spumone-clock: --%s %s: %s\n", option, path, strerror(errno));
    return *file;
}

bool report_open(void)
{
    FILE *trace = NULL;

    if (!open_file("json", options.json, &output) || !open_file("trace", options.trace, &trace))
        return false;
    schedule_set_trace(trace);
    return true;
}

static void write_settings(struct json *json)
{
    json_open(json, "settings", '{');
    json_number(json, "cores", (uint64_t)schedule_cores());
    json_number(json, "quantum", options.quantum);
    json_number(json, "instructions_per_us", options.instructions_per_us);
    json_number(json, "seed", options.seed);
    json_number(json, "disk_us", options.disk_us);
    json_close(json, '}');
}

static void write_host(struct json *json)
{
    json_open(json, "host", '{');
    json_seconds(json, "seconds", clock_host_seconds());
    json_close(json, '}');
}

static void write_core(struct json *json, const struct core *core)
{
    int64_t busy = clock_ns((int64_t)core->executed);
    int64_t polled = clock_ns((int64_t)core->counters.polled);
    int64_t absent = clock_now() - busy - polled;

    json_open(json, NULL, '{');
    json_number(json, "core", (uint64_t)core->index);
    json_number(json, "instructions", core->executed);
    for (int el = 0; el < EXCEPTION_LEVELS; el++)
        json_number(json, level_names[el], core->counters.executed[el]);
    json_number(json, "busy_ns", (uint64_t)busy);
    json_number(json, "polled_ns", (uint64_t)polled);
    json_number(json, "asleep_ns", absent > 0 ? (uint64_t)absent : 0);
    json_close(json, '}');
}

static void write_cores(struct json *json)
{
    json_open(json, "cores", '[');
    for (int i = 0; i < schedule_cores(); i++)
        write_core(json, schedule_core_at(i));
    json_close(json, ']');
}

static void write_part(struct json *json, const struct exit_part *part)
{
    json_number(json, "instructions", part->sum);
    json_number(json, "most", part->most);
    json_close(json, '}');
}

static void write_steps(struct json *json, const struct exit_sum *sum)
{
    json_open(json, "steps", '[');
    for (int step = 0; step < EXIT_STEPS; step++) {
        if (!(sum->cause.steps >> step & 1))
            continue;
        json_open(json, NULL, '{');
        json_number(json, "step", (uint64_t)step);
        write_part(json, &sum->steps[step]);
    }
    json_close(json, ']');
    json_open(json, "rest", '{');
    write_part(json, &sum->rest);
}

static void write_block(struct json *json, const struct block *block, uint64_t runs)
{
    json_open(json, NULL, '{');
    json_hex(json, "start", block->start);
    json_number(json, "instructions", block->instructions);
    json_number(json, "runs", runs);
    json_close(json, '}');
}

static void write_deaf_trail(struct json *json, const struct trail_part *trail)
{
    json_open(json, "deaf_blocks", '[');
    for (size_t i = 0; i < trail->count; i++)
        write_block(json, trail->blocks[i], 1);
    json_close(json, ']');
}

static void write_exit(struct json *json, const struct exit_sum *sum)
{
    const char *end = exits_end_name(&sum->cause);
    int buckets = EXIT_BUCKETS;
    char name[EXIT_NAME];

    exits_describe(&sum->cause, name, sizeof(name));
    json_open(json, NULL, '{');
    json_text(json, "cause", name);
    if (sum->cause.intid)
        json_number(json, "intid", sum->cause.intid - 1);
    if (end)
        json_text(json, "end", end);
    json_number(json, "visits", sum->exits);
    json_number(json, "instructions", sum->instructions);
    json_number(json, "longest_deaf", sum->deaf.instructions);
    json_hex(json, "deaf_from", sum->deaf.from);
    json_hex(json, "deaf_to", sum->deaf.to);
    json_number(json, "most", sum->most);
    json_number(json, "most_at_ns", (uint64_t)sum->most_at);
    json_number(json, "most_on_core", sum->most_core);
    if (sum->deaf_trail.count)
        write_deaf_trail(json, &sum->deaf_trail);
    if (sum->cause.steps)
        write_steps(json, sum);
    while (buckets && !sum->histogram[buckets - 1])
        buckets--;
    json_open(json, "by_power_of_two", '[');
    for (int bucket = 0; bucket < buckets; bucket++)
        json_number(json, NULL, sum->histogram[bucket]);
    json_close(json, ']');
    json_close(json, '}');
}

static void write_exits(struct json *json)
{
    const struct exit_sum *sum;

    json_open(json, "visits", '[');
    for (int i = 0; (sum = exits_sum(i)); i++)
        write_exit(json, sum);
    json_close(json, ']');
}

static void write_spins(struct json *json, const struct spin spins[MAX_SPIN_FUNCTIONS])
{
    json_open(json, "spin", '[');
    for (int i = 1; i < MAX_SPIN_FUNCTIONS && spins[i].function; i++) {
        const struct spin *spin = &spins[i];

        if (!spin->entries)
            continue;
        json_open(json, NULL, '{');
        json_text(json, "function", spin->function);
        json_number(json, "entries", spin->entries);
        json_number(json, "instructions", spin->instructions);
        json_number(json, "polled_ns", (uint64_t)clock_ns((int64_t)spin->polled));
        json_number(json, "longest_ns", (uint64_t)clock_ns((int64_t)spin->longest));
        json_close(json, '}');
    }
    json_close(json, ']');
}

static void write_profiled(struct json *json, const struct profile *profile)
{
    json_open(json, "profiled", '{');
    json_number(json, "from_ns", (uint64_t)profile->from);
    json_number(json, "to_ns", (uint64_t)profile->to);
    for (int el = 0; el < EXCEPTION_LEVELS; el++)
        json_number(json, level_names[el], profile->executed[el]);
    json_number(json, "polled_ns", (uint64_t)clock_ns((int64_t)profile->polled));
    json_close(json, '}');
}

static void write_profile(struct json *json, const struct profile *profile)
{
    const struct profile_entry *entries = profile->entries;

    json_open(json, "profile", '[');
    for (size_t i = 0; i < profile->count && i < options.top; i++) {
        json_open(json, NULL, '{');
        json_number(json, "el", (uint64_t)entries[i].el);
        json_text(json, "function", entries[i].function ? entries[i].function : "?");
        json_number(json, "instructions", entries[i].instructions);
        json_number(json, "polled_ns", (uint64_t)clock_ns((int64_t)entries[i].polled));
        json_close(json, '}');
    }
    json_close(json, ']');
}

static void write_trail_block(struct block *block, void *json)
{
    if (block->trail_runs)
        write_block(json, block, block->trail_runs);
}

static void write_trails(struct json *json)
{
    json_open(json, "trails", '{');
    json_number(json, "visits", trail_exits());
    json_open(json, "blocks", '[');
    blocks_each(write_trail_block, json);
    json_close(json, ']');
    json_close(json, '}');
}

static void write_marks(struct json *json)
{
    size_t count;
    const struct mark *marks = marks_all(&count);

    json_open(json, "marks", '[');
    for (size_t i = 0; i < count; i++) {
        json_open(json, NULL, '{');
        json_number(json, "mark", marks[i].number);
        json_number(json, "core", marks[i].core);
        json_number(json, "el", marks[i].el);
        json_number(json, "ns", (uint64_t)marks[i].at);
        json_number(json, "instructions", marks[i].executed);
        if (marks[i].has_x0)
            json_hex(json, "x0", marks[i].x0);
        json_close(json, '}');
    }
    json_close(json, ']');
}

static void write_json(void)
{
    struct json json = {.to = output};
    const struct schedule_totals *totals = schedule_totals();
    struct profile profile = profile_end();

    json_open(&json, NULL, '{');
    json_number(&json, "version", FORMAT_VERSION);
    write_settings(&json);
    json_number(&json, "virtual_ns", (uint64_t)clock_now());
    json_hex(&json, "hash", totals->hash);
    json_number(&json, "outside_events", handover_outside_events());
    json_number(&json, "disk_calls", workers_calls());
    json_number(&json, "rounds", totals->rounds);
    json_number(&json, "sleeps", totals->sleeps);
    write_cores(&json);
    write_exits(&json);
    write_spins(&json, profile.spins);
    write_marks(&json);
    write_profiled(&json, &profile);
    write_profile(&json, &profile);
    if (trails_recorded)
        write_trails(&json);
    write_host(&json);
    json_close(&json, '}');
    if (ferror(output) | fclose(output))
        fprintf(stderr, "spumone-clock: --json %s: not all could be written\n", options.json);
}

static void write_line(void)
{
    const struct schedule_totals *totals = schedule_totals();
    double seconds = (double)clock_now() / NS_PER_S;
    double host = clock_host_seconds();
    uint64_t all = 0;

    if (!schedule_cores())
        return; /* QEMU has printed why it did not start. */
    fprintf(stderr, "spumone-clock: %.9f s, hash %016" PRIx64 ", instructions", seconds,
            totals->hash);
    for (int i = 0; i < schedule_cores(); i++) {
        fprintf(stderr, " %" PRIu64, schedule_core_at(i)->executed);
        all += schedule_core_at(i)->executed;
    }
    fprintf(stderr, "; host %.1f s, %.0f million instructions/s", host, (double)all / 1e6 / host);
    if (handover_outside_events())
        fprintf(stderr, "; %" PRIu64 " events from outside: may not be repeatable",
                handover_outside_events());
    fputc('\n', stderr);
}

void report_write(void)
{
    schedule_sleep();
    for (int i = 0; i < schedule_cores(); i++)
        counters_finish(schedule_core_at(i));
    write_line();
    if (output)
        write_json();
}
