/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "fdt.h"

#include <string.h>

/* Header fields, offsets in bytes (Devicetree Specification 5.2). */
#define HEADER_MAGIC 0
#define HEADER_TOTALSIZE 4
#define HEADER_OFF_STRUCT 8
#define HEADER_OFF_STRINGS 12
#define HEADER_VERSION 20
#define HEADER_LAST_COMPATIBLE 24
#define HEADER_SIZE_STRINGS 32
#define HEADER_SIZE_STRUCT 36
#define FDT_MAGIC 0xD00DFEEDu
#define FDT_VERSION 17u

/* Structure block tokens (5.4.1). */
#define TOKEN_BEGIN_NODE 1u
#define TOKEN_END_NODE 2u
#define TOKEN_PROP 3u
#define TOKEN_NOP 4u
#define TOKEN_END 9u
#define TOKEN_SIZE 4u

#define DEPTH_ROOT 1u
#define DEPTH_CHILD 2u

/* Of a property `reg`: a cell, and an address with a size, two cells each. */
#define CELL 4u
#define RANGE (4 * CELL)

/* Of a property `interrupts` below a GIC: type, number and flags, a cell each. */
#define SPECIFIER (3 * CELL)
#define SPECIFIER_SPI 0u
#define SPI_FIRST_INTID 32u
#define SPI_LAST 987u

static uint32_t be32(const uint8_t *p) {
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

bool fdt_has_magic(const void *blob) {
    return be32((const uint8_t *)blob + HEADER_MAGIC) == FDT_MAGIC;
}

bool fdt_open(struct fdt *tree, const void *blob, size_t limit) {
    const uint8_t *header = blob;

    if (limit < FDT_HEADER_SIZE || !fdt_has_magic(blob)) {
        return false;
    }
    uint32_t total = be32(header + HEADER_TOTALSIZE);
    uint32_t structure = be32(header + HEADER_OFF_STRUCT);
    uint32_t structure_size = be32(header + HEADER_SIZE_STRUCT);
    uint32_t strings = be32(header + HEADER_OFF_STRINGS);
    uint32_t strings_size = be32(header + HEADER_SIZE_STRINGS);

    if (total < FDT_HEADER_SIZE || total > limit || be32(header + HEADER_VERSION) < FDT_VERSION ||
        be32(header + HEADER_LAST_COMPATIBLE) > FDT_VERSION) {
        return false;
    }
    if (structure % TOKEN_SIZE != 0 || structure > total || structure_size > total - structure ||
        strings > total || strings_size > total - strings) {
        return false;
    }
    *tree = (struct fdt){
        .blob = header,
        .structure = structure,
        .structure_end = structure + structure_size,
        .strings = strings,
        .strings_end = strings + strings_size,
    };
    return true;
}

/* The length of the string at `offset`, or false if no zero byte comes before `end`. */
static bool string_length(const struct fdt *tree, uint32_t offset, uint32_t end, uint32_t *length) {
    for (uint32_t at = offset; at < end; at++) {
        if (tree->blob[at] == 0) {
            *length = at - offset;
            return true;
        }
    }
    return false;
}

static bool is_string(const struct fdt *tree, uint32_t offset, uint32_t length, const char *wanted) {
    return strlen(wanted) == length && memcmp(tree->blob + offset, wanted, length) == 0;
}

/* Where the token after `size` bytes at `offset` begins; false if that is beyond the block. */
static bool next_token(const struct fdt *tree, uint32_t offset, uint32_t size, uint32_t *next) {
    uint32_t left = tree->structure_end - offset;
    uint32_t padding = (TOKEN_SIZE - size % TOKEN_SIZE) % TOKEN_SIZE;

    if (size > left || padding > left - size) {
        return false;
    }
    *next = offset + size + padding;
    return true;
}

struct property {
    uint32_t value;
    uint32_t length;
    uint32_t name;
    uint32_t name_length;
};

/* Reads the property whose token ends at `at`; `*next` is where the next token begins. */
static bool read_property(const struct fdt *tree, uint32_t at, struct property *property,
                          uint32_t *next) {
    const uint32_t fields = 8; /* length, name offset */

    if (tree->structure_end - at < fields) {
        return false;
    }
    uint32_t name_offset = be32(tree->blob + at + 4);
    property->length = be32(tree->blob + at);
    property->value = at + fields;
    if (name_offset >= tree->strings_end - tree->strings) {
        return false;
    }
    property->name = tree->strings + name_offset;
    return string_length(tree, property->name, tree->strings_end, &property->name_length) &&
           next_token(tree, property->value, property->length, next);
}

/* What the walk has come to. */
enum event {
    EVENT_BEGIN,    /* a node; its name is in `name` and `name_length` */
    EVENT_END,      /* the end of a node */
    EVENT_PROPERTY, /* a property of the node at this depth */
    EVENT_DONE,     /* the end of the tree */
    EVENT_BROKEN,   /* the tree is inconsistent */
};

struct walk {
    const struct fdt *tree;
    uint32_t at;
    uint32_t depth; /* of the node that begins, ends or has the property; the root's is 1 */
    uint32_t open;  /* how many nodes have begun and not ended */
    struct property property;
    uint32_t name;
    uint32_t name_length;
};

static struct walk walk_start(const struct fdt *tree) {
    return (struct walk){.tree = tree, .at = tree->structure};
}

static enum event walk_next(struct walk *walk) {
    const struct fdt *tree = walk->tree;

    while (tree->structure_end - walk->at >= TOKEN_SIZE) {
        uint32_t token = be32(tree->blob + walk->at);
        walk->at += TOKEN_SIZE;

        switch (token) {
        case TOKEN_NOP:
            break;
        case TOKEN_BEGIN_NODE:
            walk->name = walk->at;
            if (!string_length(tree, walk->name, tree->structure_end, &walk->name_length) ||
                !next_token(tree, walk->name, walk->name_length + 1, &walk->at)) {
                return EVENT_BROKEN;
            }
            walk->depth = ++walk->open;
            return EVENT_BEGIN;
        case TOKEN_END_NODE:
            if (walk->open == 0) {
                return EVENT_BROKEN;
            }
            walk->depth = walk->open--;
            return EVENT_END;
        case TOKEN_PROP:
            walk->depth = walk->open;
            if (walk->open == 0 || !read_property(tree, walk->at, &walk->property, &walk->at)) {
                return EVENT_BROKEN;
            }
            return EVENT_PROPERTY;
        case TOKEN_END:
            return walk->open == 0 ? EVENT_DONE : EVENT_BROKEN;
        default:
            return EVENT_BROKEN;
        }
    }
    return EVENT_BROKEN;
}

static bool is_property(const struct walk *walk, const char *name) {
    return is_string(walk->tree, walk->property.name, walk->property.name_length, name);
}

enum fdt_result fdt_string(const struct fdt *tree, const char *node, const char *property,
                           const char **value, size_t *length) {
    struct walk walk = walk_start(tree);
    bool in_node = false;

    for (;;) {
        enum event event = walk_next(&walk);

        if (event == EVENT_DONE || event == EVENT_BROKEN) {
            return event == EVENT_DONE ? FDT_ABSENT : FDT_MALFORMED;
        }
        if (event == EVENT_BEGIN && walk.depth == DEPTH_CHILD) {
            in_node = is_string(tree, walk.name, walk.name_length, node);
        }
        if (event == EVENT_PROPERTY && walk.depth == DEPTH_CHILD && in_node &&
            is_property(&walk, property)) {
            const struct property *found = &walk.property;
            uint32_t text_length;
            if (!string_length(tree, found->value, found->value + found->length, &text_length)) {
                return FDT_MALFORMED;
            }
            *value = (const char *)tree->blob + found->value;
            *length = text_length;
            return FDT_FOUND;
        }
    }
}

/* Whether `wanted` is one of the strings of the property. */
static bool lists(const struct fdt *tree, const struct property *property, const char *wanted) {
    uint32_t at = property->value;
    uint32_t end = property->value + property->length;
    uint32_t length;

    while (at < end && string_length(tree, at, end, &length)) {
        if (is_string(tree, at, length, wanted)) {
            return true;
        }
        at += length + 1;
    }
    return false;
}

/*
 * Of the nodes directly under the root that are `compatible`, takes number `node`, counted from 0, and finds its property `name`.
 * If the node does not have that property, the length of `*found` is 0. `*wide`: addresses and sizes have two cells each.
 */
static enum fdt_result find(const struct fdt *tree, const char *compatible, uint32_t node, const char *name,
                            struct property *found, bool *wide) {
    struct walk walk = walk_start(tree);
    bool wide_addresses = false;
    bool wide_sizes = false;
    bool is_wanted = false;

    for (;;) {
        enum event event = walk_next(&walk);
        const struct property *property = &walk.property;
        const uint8_t *value = tree->blob + property->value;

        if (event == EVENT_DONE || event == EVENT_BROKEN) {
            return event == EVENT_DONE ? FDT_ABSENT : FDT_MALFORMED;
        }
        if (event == EVENT_PROPERTY && walk.depth == DEPTH_ROOT && property->length == CELL) {
            wide_addresses |= is_property(&walk, "#address-cells") && be32(value) == 2;
            wide_sizes |= is_property(&walk, "#size-cells") && be32(value) == 2;
        }
        if (walk.depth != DEPTH_CHILD) {
            continue;
        }
        if (event == EVENT_BEGIN) {
            is_wanted = false;
            *found = (struct property){.length = 0};
        } else if (event == EVENT_PROPERTY && is_property(&walk, "compatible")) {
            is_wanted = lists(tree, property, compatible);
        } else if (event == EVENT_PROPERTY && is_property(&walk, name)) {
            *found = *property;
        } else if (event == EVENT_END && is_wanted && node-- == 0) {
            *wide = wide_addresses && wide_sizes;
            return FDT_FOUND;
        }
    }
}

static enum fdt_result address_of(const struct fdt *tree, const char *compatible, uint32_t node, uint32_t index,
                                  uint64_t *address) {
    struct property reg;
    bool wide;
    enum fdt_result result = find(tree, compatible, node, "reg", &reg, &wide);

    if (result != FDT_FOUND) {
        return result;
    }
    if (!wide || reg.length / RANGE <= index) {
        return FDT_MALFORMED;
    }
    const uint8_t *value = tree->blob + reg.value + index * RANGE;
    *address = (uint64_t)be32(value) << 32 | be32(value + CELL);
    return FDT_FOUND;
}

static enum fdt_result spi_of(const struct fdt *tree, const char *compatible, uint32_t node, uint32_t *intid) {
    struct property interrupts;
    bool wide;
    enum fdt_result result = find(tree, compatible, node, "interrupts", &interrupts, &wide);

    if (result != FDT_FOUND) {
        return result;
    }
    const uint8_t *value = tree->blob + interrupts.value;
    if (interrupts.length < SPECIFIER || be32(value) != SPECIFIER_SPI || be32(value + CELL) > SPI_LAST) {
        return FDT_MALFORMED;
    }
    *intid = SPI_FIRST_INTID + be32(value + CELL);
    return FDT_FOUND;
}

enum fdt_result fdt_address(const struct fdt *tree, const char *compatible, uint32_t index,
                            uint64_t *address) {
    return address_of(tree, compatible, 0, index, address);
}

enum fdt_result fdt_spi(const struct fdt *tree, const char *compatible, uint32_t *intid) {
    return spi_of(tree, compatible, 0, intid);
}

enum fdt_result fdt_device(const struct fdt *tree, const char *compatible, uint32_t node, uint64_t *address,
                           uint32_t *intid) {
    enum fdt_result result = address_of(tree, compatible, node, 0, address);

    return result == FDT_FOUND ? spi_of(tree, compatible, node, intid) : result;
}
