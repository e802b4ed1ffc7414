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

#define DEPTH_CHILD 2u

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

enum fdt_result fdt_string(const struct fdt *tree, const char *node, const char *property,
                           const char **value, size_t *length) {
    uint32_t at = tree->structure;
    uint32_t depth = 0;
    bool in_node = false;

    while (tree->structure_end - at >= TOKEN_SIZE) {
        uint32_t token = be32(tree->blob + at);
        at += TOKEN_SIZE;

        switch (token) {
        case TOKEN_NOP:
            break;
        case TOKEN_BEGIN_NODE: {
            uint32_t name = at;
            uint32_t name_length;
            if (!string_length(tree, name, tree->structure_end, &name_length) ||
                !next_token(tree, name, name_length + 1, &at)) {
                return FDT_MALFORMED;
            }
            depth++;
            if (depth == DEPTH_CHILD) {
                in_node = is_string(tree, name, name_length, node);
            }
            break;
        }
        case TOKEN_END_NODE:
            if (depth == 0) {
                return FDT_MALFORMED;
            }
            depth--;
            break;
        case TOKEN_PROP: {
            struct property found;
            if (depth == 0 || !read_property(tree, at, &found, &at)) {
                return FDT_MALFORMED;
            }
            if (depth == DEPTH_CHILD && in_node &&
                is_string(tree, found.name, found.name_length, property)) {
                uint32_t text_length;
                if (!string_length(tree, found.value, found.value + found.length, &text_length)) {
                    return FDT_MALFORMED;
                }
                *value = (const char *)tree->blob + found.value;
                *length = text_length;
                return FDT_FOUND;
            }
            break;
        }
        case TOKEN_END:
            return depth == 0 ? FDT_ABSENT : FDT_MALFORMED;
        default:
            return FDT_MALFORMED;
        }
    }
    return FDT_MALFORMED;
}
