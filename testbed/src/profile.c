/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "profile.h"

#include "blocks.h"
#include "clock.h"
#include "options.h"
#include "symbols.h"
#include "util.h"

#include <stdlib.h>
#include <string.h>

struct list {
    struct profile_entry *entries;
    size_t count, room;
};

/* Which half of the addresses: TTBR0_ELx translates the lower one, TTBR1_ELx the upper one. */
#define UPPER_HALF (1ull << 55)

/* NULL if the block has no name and is in the lower half. */
static const char *name_of(const struct block *block)
{
    const char *name = symbols_find(block->el, block->start);

    return !name && block->start & UPPER_HALF ? PROFILE_UPPER_HALF : name;
}

static void add_block(struct block *block, void *to)
{
    struct list *list = to;

    if (!block->runs)
        return;
    if (list->count == list->room) {
        list->room = list->room ? 2 * list->room : 4096;
        list->entries = enlarge(list->entries, list->room * sizeof(*list->entries));
    }
    list->entries[list->count++] = (struct profile_entry){
        .el = block->el,
        .function = name_of(block),
        .instructions = block->runs * block->instructions - block->taken_back,
        .polled = block->polled,
    };
}

static int by_function(const void *a, const void *b)
{
    const struct profile_entry *left = a, *right = b;

    if (left->el != right->el)
        return left->el - right->el;
    if (!left->function || !right->function)
        return !!left->function - !!right->function;
    return strcmp(left->function, right->function);
}

static int by_amount(const void *a, const void *b)
{
    const struct profile_entry *left = a, *right = b;
    uint64_t left_sum = left->instructions + left->polled;
    uint64_t right_sum = right->instructions + right->polled;

    if (left_sum != right_sum)
        return left_sum > right_sum ? -1 : 1;
    return by_function(a, b);
}

static struct profile_entry *make(size_t *count)
{
    struct list list = {0};
    size_t kept = 0;

    blocks_each(add_block, &list);
    *count = 0;
    if (!list.count)
        return NULL;
    qsort(list.entries, list.count, sizeof(*list.entries), by_function);
    for (size_t i = 1; i < list.count; i++) {
        struct profile_entry *last = &list.entries[kept];

        if (by_function(last, &list.entries[i])) {
            list.entries[++kept] = list.entries[i];
            continue;
        }
        last->instructions += list.entries[i].instructions;
        last->polled += list.entries[i].polled;
    }
    *count = kept + 1;
    for (size_t i = 0; i < *count; i++)
        if ((int64_t)list.entries[i].instructions < 0)
            list.entries[i].instructions = 0; /* Instructions from before the profile were taken back. */
    qsort(list.entries, *count, sizeof(*list.entries), by_amount);
    return list.entries;
}

/* What was counted when a core last passed the end mark after the begin mark. */
static struct profile ended;
static bool has_ended;
static int64_t begun_at;

static void forget_block(struct block *block, void *data)
{
    (void)data;
    block->runs = 0;
    block->taken_back = 0;
    block->polled = 0;
}

static struct profile until(int64_t at)
{
    struct profile profile = {.from = begun_at, .to = at};

    profile.entries = make(&profile.count);
    for (size_t i = 0; i < profile.count; i++) {
        profile.executed[profile.entries[i].el] += profile.entries[i].instructions;
        profile.polled += profile.entries[i].polled;
    }
    counters_copy_spins(profile.spins);
    return profile;
}

void profile_mark(uint64_t number, int64_t at)
{
    if (number == options.profile_from) {
        begun_at = at;
        has_ended = false;
        blocks_each(forget_block, NULL);
        counters_forget_spins();
    } else if (number == options.profile_to) {
        free(ended.entries);
        ended = until(at);
        has_ended = true;
    }
}

struct profile profile_end(void)
{
    return has_ended ? ended : until(clock_now());
}
