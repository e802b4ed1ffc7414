/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "blocks.h"

#include "util.h"

#define BUCKETS (1 << 16)

static struct block *buckets[BUCKETS];

struct block *blocks_find(const struct block *wanted)
{
    struct block **bucket = &buckets[wanted->id % BUCKETS];
    struct block *block;

    for (block = *bucket; block; block = block->same_hash)
        if (block->id == wanted->id && block->start == wanted->start &&
            block->bytes == wanted->bytes && block->class == wanted->class)
            return block;
    block = allocate(sizeof(*block));
    *block = *wanted;
    block->same_hash = *bucket;
    *bucket = block;
    return block;
}

void blocks_each(void (*each)(struct block *block, void *data), void *data)
{
    for (int i = 0; i < BUCKETS; i++)
        for (struct block *block = buckets[i]; block; block = block->same_hash)
            each(block, data);
}
