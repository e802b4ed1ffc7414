/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A minimal reader of a flattened device tree (Devicetree Specification v0.4,
 * chapter 5): string properties and addresses of nodes directly under the root. The blob is not trusted: every
 * offset is checked against its size, and the walk ends because each step moves forward.
 *
 * Pure: no hardware, tested on the host.
 */
#ifndef FDT_H
#define FDT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct fdt {
    const uint8_t *blob;
    uint32_t structure;     /* offset of the structure block */
    uint32_t structure_end; /* offset just after it */
    uint32_t strings;       /* the same for the strings block */
    uint32_t strings_end;
};

enum fdt_result {
    FDT_FOUND,
    FDT_ABSENT,    /* the tree is valid as far as it was read, and has no such property */
    FDT_MALFORMED, /* the tree is inconsistent, or the property is not a string */
};

/* The size of the header, which must be readable before the blob is checked. */
#define FDT_HEADER_SIZE 40

/* Whether `blob` begins with the magic number; reads 4 bytes. */
bool fdt_has_magic(const void *blob);

/*
 * Opens a tree. `limit` is how many bytes from `blob` on may be read, at least FDT_HEADER_SIZE.
 * False if the header is not that of a version 17 tree that fits into the limit.
 */
bool fdt_open(struct fdt *tree, const void *blob, size_t limit);

/*
 * Finds property `property` of the node `/node`. On FDT_FOUND, `*value` points into the blob at a
 * string of `*length` bytes, which is followed by a zero byte.
 */
enum fdt_result fdt_string(const struct fdt *tree, const char *node, const char *property,
                           const char **value, size_t *length);

/*
 * Finds the first node directly under the root with `compatible` among its strings of that name. On
 * FDT_FOUND, `*address` is that of the range number `index` in its property `reg`. Addresses and sizes
 * must have two cells each; a node without such a range is malformed, too.
 */
enum fdt_result fdt_address(const struct fdt *tree, const char *compatible, uint32_t index,
                            uint64_t *address);

/* The same for the first interrupt of such a node, an SPI of a GIC; on FDT_FOUND `*intid` is its INTID. */
enum fdt_result fdt_spi(const struct fdt *tree, const char *compatible, uint32_t *intid);

/* Both of them, of the first range, for the node number `node` of those with `compatible`, counted from 0. */
enum fdt_result fdt_device(const struct fdt *tree, const char *compatible, uint32_t node, uint64_t *address,
                           uint32_t *intid);

#endif
