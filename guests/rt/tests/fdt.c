/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The device tree reader, on trees built here, then on broken ones. Every tree is copied into an
 * allocation of exactly its size, so that the address sanitizer sees a read beyond it.
 */
#include "fdt.h"

#include <stdlib.h>
#include <string.h>

#include "check.h"

#define BLOB_MAX 1024

struct writer {
    uint8_t structure[BLOB_MAX];
    size_t structure_size;
    char strings[BLOB_MAX];
    size_t strings_size;
};

struct tree_blob {
    uint8_t *bytes;
    size_t size;
};

static void put32(uint8_t *at, uint32_t value) {
    at[0] = (uint8_t)(value >> 24);
    at[1] = (uint8_t)(value >> 16);
    at[2] = (uint8_t)(value >> 8);
    at[3] = (uint8_t)value;
}

static void token(struct writer *w, uint32_t value) {
    put32(w->structure + w->structure_size, value);
    w->structure_size += 4;
}

static void bytes(struct writer *w, const void *data, size_t size) {
    memcpy(w->structure + w->structure_size, data, size);
    w->structure_size += size;
    while (w->structure_size % 4 != 0) {
        w->structure[w->structure_size++] = 0;
    }
}

static void begin(struct writer *w, const char *name) {
    token(w, 1);
    bytes(w, name, strlen(name) + 1);
}

static void end(struct writer *w) {
    token(w, 2);
}

static void property(struct writer *w, const char *name, const void *value, size_t size) {
    token(w, 3);
    token(w, (uint32_t)size);
    token(w, (uint32_t)w->strings_size);
    bytes(w, value, size);
    memcpy(w->strings + w->strings_size, name, strlen(name) + 1);
    w->strings_size += strlen(name) + 1;
}

/* Header, an empty reserve map, structure, strings; in an allocation of its own. */
static struct tree_blob finish(const struct writer *w) {
    const uint32_t structure = FDT_HEADER_SIZE + 16;
    const uint32_t strings = structure + (uint32_t)w->structure_size;
    struct tree_blob blob = {NULL, strings + w->strings_size};

    blob.bytes = calloc(1, blob.size);
    put32(blob.bytes + 0, 0xD00DFEED);
    put32(blob.bytes + 4, (uint32_t)blob.size);
    put32(blob.bytes + 8, structure);
    put32(blob.bytes + 12, strings);
    put32(blob.bytes + 16, FDT_HEADER_SIZE);
    put32(blob.bytes + 20, 17);
    put32(blob.bytes + 24, 16);
    put32(blob.bytes + 32, (uint32_t)w->strings_size);
    put32(blob.bytes + 36, (uint32_t)w->structure_size);
    memcpy(blob.bytes + structure, w->structure, w->structure_size);
    memcpy(blob.bytes + strings, w->strings, w->strings_size);
    return blob;
}

/* A tree with misleading nodes: the same names deeper down, before and after the right place. */
static struct tree_blob good_tree(void) {
    struct writer w = {.structure_size = 0};

    begin(&w, "");
    property(&w, "bootargs", "of-root", sizeof "of-root");
    begin(&w, "soc");
    begin(&w, "chosen");
    property(&w, "bootargs", "too-deep", sizeof "too-deep");
    end(&w);
    property(&w, "compatible", "x\0y", 4);
    end(&w);
    token(&w, 4);
    begin(&w, "psci");
    property(&w, "method", "smc", sizeof "smc");
    end(&w);
    begin(&w, "chosen");
    property(&w, "rng-seed", "\1\2\3\4\5", 5);
    property(&w, "bootargs", "period=1ms load=30%", sizeof "period=1ms load=30%");
    property(&w, "unterminated", "abc", 3);
    property(&w, "empty", "", 0);
    begin(&w, "inner");
    property(&w, "only-inner", "no", sizeof "no");
    end(&w);
    end(&w);
    end(&w);
    token(&w, 9);
    return finish(&w);
}

static enum fdt_result look(const struct tree_blob *blob, const char *node, const char *name,
                            const char **value, size_t *length) {
    struct fdt tree;

    if (!fdt_open(&tree, blob->bytes, blob->size)) {
        return FDT_MALFORMED;
    }
    return fdt_string(&tree, node, name, value, length);
}

static void finds_what_is_there(void) {
    struct tree_blob blob = good_tree();
    const char *value;
    size_t length;

    CHECK(look(&blob, "chosen", "bootargs", &value, &length) == FDT_FOUND);
    CHECK(length == 19 && strcmp(value, "period=1ms load=30%") == 0);
    CHECK(look(&blob, "psci", "method", &value, &length) == FDT_FOUND);
    CHECK(length == 3 && strcmp(value, "smc") == 0);
    CHECK(look(&blob, "chosen", "nothing", &value, &length) == FDT_ABSENT);
    CHECK(look(&blob, "chosen", "only-inner", &value, &length) == FDT_ABSENT);
    CHECK(look(&blob, "chose", "bootargs", &value, &length) == FDT_ABSENT);
    CHECK(look(&blob, "chosen", "unterminated", &value, &length) == FDT_MALFORMED);
    CHECK(look(&blob, "chosen", "empty", &value, &length) == FDT_MALFORMED);
    free(blob.bytes);
}

static void cell(struct writer *w, const char *name, uint32_t value) {
    uint8_t bytes[4];

    put32(bytes, value);
    property(w, name, bytes, sizeof bytes);
}

/* A device with two ranges, behind one of another kind; `cells` are those of addresses. */
static struct tree_blob devices_tree(uint32_t cells) {
    uint8_t ranges[32] = {0};
    uint8_t specifier[12] = {0, 0, 0, 0, 0, 0, 0, 48, 0, 0, 0, 4};
    struct writer w = {.structure_size = 0};

    begin(&w, "");
    cell(&w, "#address-cells", cells);
    cell(&w, "#size-cells", 2);
    begin(&w, "clock");
    property(&w, "compatible", "fixed-clock", sizeof "fixed-clock");
    end(&w);
    begin(&w, "intc@3001000");
    put32(ranges + 4, 0x3001000);
    put32(ranges + 16, 0x1);
    put32(ranges + 20, 0x3020000);
    property(&w, "reg", ranges, sizeof ranges);
    property(&w, "compatible", "arm,gic-v3\0arm,gic", sizeof "arm,gic-v3\0arm,gic");
    property(&w, "interrupts", specifier, sizeof specifier);
    begin(&w, "its");
    property(&w, "compatible", "arm,gic-v3-its", sizeof "arm,gic-v3-its");
    property(&w, "reg", ranges, 16);
    end(&w);
    end(&w);
    end(&w);
    token(&w, 9);
    return finish(&w);
}

static enum fdt_result look_for(const struct tree_blob *blob, const char *compatible,
                                uint32_t index, uint64_t *address) {
    struct fdt tree;

    CHECK(fdt_open(&tree, blob->bytes, blob->size));
    return fdt_address(&tree, compatible, index, address);
}

static void finds_addresses_of_devices(void) {
    struct tree_blob blob = devices_tree(2);
    uint64_t address = 0;

    CHECK(look_for(&blob, "arm,gic-v3", 0, &address) == FDT_FOUND && address == 0x3001000);
    CHECK(look_for(&blob, "arm,gic", 1, &address) == FDT_FOUND && address == 0x103020000);
    CHECK(look_for(&blob, "arm,gic-v3", 2, &address) == FDT_MALFORMED);
    CHECK(look_for(&blob, "fixed-clock", 0, &address) == FDT_MALFORMED);
    CHECK(look_for(&blob, "arm,gic-v3-its", 0, &address) == FDT_ABSENT);
    CHECK(look_for(&blob, "arm", 0, &address) == FDT_ABSENT);
    free(blob.bytes);
    blob = devices_tree(1);
    CHECK(look_for(&blob, "arm,gic-v3", 0, &address) == FDT_MALFORMED);
    free(blob.bytes);
}

static void finds_interrupts_of_devices(void) {
    struct tree_blob blob = devices_tree(2);
    struct fdt tree;
    uint32_t intid = 0;

    CHECK(fdt_open(&tree, blob.bytes, blob.size));
    CHECK(fdt_spi(&tree, "arm,gic", &intid) == FDT_FOUND && intid == 80);
    CHECK(fdt_spi(&tree, "fixed-clock", &intid) == FDT_MALFORMED);
    CHECK(fdt_spi(&tree, "arm,gic-v3-its", &intid) == FDT_ABSENT);
    free(blob.bytes);
}

/* Several devices of one kind, among others. */
static void finds_each_of_several_devices(void) {
    uint8_t range[16] = {0, 0, 0, 0, 0x0a, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0};
    uint8_t specifier[12] = {0, 0, 0, 0, 0, 0, 0, 16, 0, 0, 0, 4};
    struct writer w = {.structure_size = 0};
    struct fdt tree;
    uint64_t address = 0;
    uint32_t intid = 0;

    begin(&w, "");
    cell(&w, "#address-cells", 2);
    cell(&w, "#size-cells", 2);
    for (uint8_t i = 0; i < 3; i++) {
        begin(&w, "clock");
        property(&w, "compatible", "fixed-clock", sizeof "fixed-clock");
        end(&w);
        begin(&w, "virtio_mmio");
        range[6] = (uint8_t)(2 * i);
        specifier[7] = (uint8_t)(16 + i);
        property(&w, "interrupts", specifier, sizeof specifier);
        property(&w, "reg", range, sizeof range);
        property(&w, "compatible", "virtio,mmio", sizeof "virtio,mmio");
        end(&w);
    }
    end(&w);
    token(&w, 9);
    struct tree_blob blob = finish(&w);
    CHECK(fdt_open(&tree, blob.bytes, blob.size));
    for (uint32_t i = 0; i < 3; i++) {
        CHECK(fdt_device(&tree, "virtio,mmio", i, &address, &intid) == FDT_FOUND);
        CHECK_EQUAL(address, 0x0a000000 + 0x200 * i);
        CHECK_EQUAL(intid, 48 + i);
    }
    CHECK(fdt_device(&tree, "virtio,mmio", 3, &address, &intid) == FDT_ABSENT);
    CHECK(fdt_device(&tree, "fixed-clock", 0, &address, &intid) == FDT_MALFORMED);
    free(blob.bytes);
}

/* Each case changes one word of the header; none may open, or else nothing may be found. */
static void refuses_broken_headers(void) {
    static const struct {
        size_t offset;
        uint32_t value;
    } cases[] = {
        {0, 0xEDFE0DD0},  /* magic, the wrong way round */
        {4, 0},           /* total size */
        {4, 39},          {4, 0xFFFFFFFF},
        {8, 0xFFFFFFFC},  /* structure offset */
        {8, 58},          {12, 0xFFFFFFFF}, /* not aligned; strings offset */
        {20, 16},         /* version too old, then incompatibly new */
        {24, 18},         {32, 0xFFFFFFFF}, /* strings size */
        {36, 0xFFFFFFFC}, /* structure size */
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct tree_blob blob = good_tree();
        struct fdt tree;
        put32(blob.bytes + cases[i].offset, cases[i].value);
        CHECK(!fdt_open(&tree, blob.bytes, blob.size));
        free(blob.bytes);
    }

    struct tree_blob blob = good_tree();
    struct fdt tree;
    for (size_t limit = 0; limit < blob.size; limit++) {
        CHECK(!fdt_open(&tree, blob.bytes, limit));
    }
    CHECK(fdt_open(&tree, blob.bytes, blob.size));
    free(blob.bytes);
}

/* The structure block cut short at every word: never found beyond the cut, never read beyond. */
static void stops_at_the_end_of_the_structure(void) {
    struct tree_blob whole = good_tree();
    uint32_t structure_size = (uint32_t)whole.bytes[38] << 8 | whole.bytes[39];
    const char *value;
    size_t length;

    for (uint32_t size = 0; size < structure_size; size += 4) {
        put32(whole.bytes + 36, size);
        CHECK(look(&whole, "chosen", "nothing", &value, &length) == FDT_MALFORMED);
    }
    free(whole.bytes);
}

/* A name offset that, added to the start of the strings, wraps round into the blob. */
static void refuses_a_name_outside_the_strings(void) {
    struct writer w = {.structure_size = 0};
    const char *value;
    size_t length;

    begin(&w, "");
    property(&w, "x", "y", 2);
    end(&w);
    token(&w, 9);
    struct tree_blob blob = finish(&w);
    CHECK(look(&blob, "chosen", "x", &value, &length) == FDT_ABSENT);
    uint32_t structure = FDT_HEADER_SIZE + 16;
    uint32_t strings = structure + (uint32_t)w.structure_size;
    /* Behind BEGIN_NODE, the empty name, PROP and the length. */
    put32(blob.bytes + structure + 16, 0u - strings + FDT_HEADER_SIZE);
    CHECK(look(&blob, "chosen", "x", &value, &length) == FDT_MALFORMED);
    free(blob.bytes);
}

static void refuses_wrong_nesting(void) {
    struct writer w = {.structure_size = 0};
    const char *value;
    size_t length;

    end(&w); /* END_NODE before any node */
    token(&w, 9);
    struct tree_blob blob = finish(&w);
    CHECK(look(&blob, "chosen", "x", &value, &length) == FDT_MALFORMED);
    free(blob.bytes);

    w = (struct writer){.structure_size = 0};
    property(&w, "x", "y", 2); /* a property outside the root */
    token(&w, 9);
    blob = finish(&w);
    CHECK(look(&blob, "chosen", "x", &value, &length) == FDT_MALFORMED);
    free(blob.bytes);

    w = (struct writer){.structure_size = 0};
    begin(&w, "");
    token(&w, 9); /* the end inside a node */
    blob = finish(&w);
    CHECK(look(&blob, "chosen", "x", &value, &length) == FDT_MALFORMED);
    free(blob.bytes);

    w = (struct writer){.structure_size = 0};
    begin(&w, "");
    token(&w, 5); /* no such token */
    blob = finish(&w);
    CHECK(look(&blob, "chosen", "x", &value, &length) == FDT_MALFORMED);
    free(blob.bytes);
}

/* Random damage: any result is right, but the reader must stay inside the blob and return. */
static void survives_random_damage(void) {
    uint64_t state = 0x5EED;

    for (unsigned round = 0; round < 200000; round++) {
        struct tree_blob blob = good_tree();
        uint64_t changes = 1 + random_next(&state) % 4;
        const char *value;
        size_t length;

        while (changes-- > 0) {
            /* Behind magic and total size, which are tested above. */
            size_t at = 8 + random_next(&state) % (blob.size - 8);
            blob.bytes[at] = (uint8_t)random_next(&state);
        }
        if (look(&blob, "chosen", "bootargs", &value, &length) == FDT_FOUND) {
            const uint8_t *start = (const uint8_t *)value;
            CHECK(start >= blob.bytes && start + length < blob.bytes + blob.size);
            CHECK(start[length] == 0);
        }
        struct fdt tree;
        uint64_t address;
        if (fdt_open(&tree, blob.bytes, blob.size)) {
            uint32_t intid;
            CHECK(fdt_address(&tree, "x", 0, &address) != FDT_FOUND);
            CHECK(fdt_spi(&tree, "x", &intid) != FDT_FOUND);
        }
        free(blob.bytes);
    }
}

void test_fdt(void) {
    finds_what_is_there();
    finds_addresses_of_devices();
    finds_interrupts_of_devices();
    finds_each_of_several_devices();
    refuses_broken_headers();
    stops_at_the_end_of_the_structure();
    refuses_a_name_outside_the_strings();
    refuses_wrong_nesting();
    survives_random_damage();
}
