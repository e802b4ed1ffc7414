/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "blocks.h"

#include "util.h"

#include <stdlib.h>

#define FIRST_BUCKETS (1 << 16)

static struct block **buckets;
static size_t bucket_count;
static size_t block_count;

static void add(struct block *block)
{
    struct block **bucket = &buckets[block->id % bucket_count];

    block->same_hash = *bucket;
    *bucket = block;
}

/* Doubles the table. A guest that starts again at random addresses has new blocks in each of its lives. */
static void grow(void)
{
    struct block **old = buckets;
    size_t old_count = bucket_count;

    bucket_count = old_count ? 2 * old_count : FIRST_BUCKETS;
    buckets = allocate(bucket_count * sizeof(struct block *));
    for (size_t i = 0; i < old_count; i++)
        for (struct block *block = old[i], *next; block; block = next) {
            next = block->same_hash;
            add(block);
        }
    free(old);
}

struct block *blocks_find(const struct block *wanted)
{
    struct block *block;

    if (block_count == bucket_count)
        grow();
    for (block = buckets[wanted->id % bucket_count]; block; block = block->same_hash)
        if (block->id == wanted->id && block->start == wanted->start &&
            block->bytes == wanted->bytes && block->class == wanted->class)
            return block;
    block = allocate(sizeof(*block));
    *block = *wanted;
    add(block);
    block_count++;
    return block;
}

void blocks_each(void (*each)(struct block *block, void *data), void *data)
{
    for (size_t i = 0; i < bucket_count; i++)
        for (struct block *block = buckets[i]; block; block = block->same_hash)
            each(block, data);
}
