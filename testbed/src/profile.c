/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "profile.h"

#include "blocks.h"
#include "symbols.h"
#include "util.h"

#include <stdlib.h>
#include <string.h>

struct list {
    struct profile_entry *entries;
    size_t count, room;
};

static void add_block(const struct block *block, void *to)
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
        .function = symbols_find(block->el, block->start),
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

struct profile_entry *profile_make(size_t *count)
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
    qsort(list.entries, *count, sizeof(*list.entries), by_amount);
    return list.entries;
}
