/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "trail.h"

#include "schedule.h"
#include "util.h"

#include <stdlib.h>
#include <string.h>

struct trail {
    struct block **blocks; /* NULL: the core has not been at EL2 yet */
    size_t count;
};

/* QEMU's `virt` has at most 512 cores. */
#define CORES 512

bool trails_recorded;

static struct trail trails[CORES];
static const char *wanted_cause, *wanted_end;
static uint64_t exits;

bool trail_record(const char *cause_and_end)
{
    const char *colon = strchr(cause_and_end, ':');

    if (!colon)
        return false;
    wanted_cause = strndup(cause_and_end, (size_t)(colon - cause_and_end));
    wanted_end = colon + 1;
    trails_recorded = true;
    return true;
}

static struct trail *trail_of(const struct core *core)
{
    return &trails[core->index % CORES];
}

void trail_begin(const struct core *core)
{
    struct trail *trail = trail_of(core);

    if (!trail->blocks)
        trail->blocks = allocate(TRAIL_BLOCKS * sizeof(*trail->blocks));
    trail->count = 0;
}

void trail_add(const struct core *core, struct block *block)
{
    struct trail *trail = trail_of(core);

    if (trail->blocks && trail->count < TRAIL_BLOCKS)
        trail->blocks[trail->count++] = block;
}

size_t trail_length(const struct core *core)
{
    return trail_of(core)->count;
}

void trail_copy(const struct core *core, size_t from, size_t to, struct trail_part *part)
{
    const struct trail *trail = trail_of(core);

    free(part->blocks);
    *part = (struct trail_part){0};
    if (!trail->blocks || from >= to || to > trail->count)
        return;
    part->count = to - from;
    part->blocks = allocate(part->count * sizeof(*part->blocks));
    memcpy(part->blocks, trail->blocks + from, part->count * sizeof(*part->blocks));
}

void trail_end(const struct core *core, const char *cause, const char *end)
{
    struct trail *trail = trail_of(core);

    if (strcmp(cause, wanted_cause) || !end || strcmp(end, wanted_end))
        return;
    exits++;
    for (size_t i = 0; i < trail->count; i++)
        trail->blocks[i]->trail_runs++;
}

uint64_t trail_exits(void)
{
    return exits;
}
