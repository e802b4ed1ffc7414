/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "symbols.h"

#include "core.h"
#include "registers.h"
#include "util.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_FILES 16
/* An address further than this behind the last symbol of a file does not belong to the file. */
#define LAST_SYMBOL_SIZE 0x10000
/* Linux moves itself by whole multiples of this (MIN_KIMG_ALIGN), within its half of addresses. */
#define KERNEL_ALIGNMENT 0x200000
#define KERNEL_HALF (1ull << 63)

struct symbol {
    uint64_t address;
    const char *name;
};

struct file {
    int el;
    uint64_t offset;
    bool offset_is_known;
    struct symbol *symbols;
    size_t count;
};

static struct file files[MAX_FILES];
static int file_count;
static bool offset_is_missing;

static int by_address(const void *a, const void *b)
{
    const struct symbol *left = a, *right = b;

    if (left->address != right->address)
        return left->address < right->address ? -1 : 1;
    return strcmp(left->name, right->name);
}

/* Reads the functions; other symbols, and the assembler's mapping symbols ($x, $d), are left out. */
static bool read_file(struct file *file, const char *path, const char *specification)
{
    FILE *input = fopen(path, "re");
    char *line = NULL;
    size_t room = 0, symbols_room = 0;

    if (!input) {
        fprintf(stderr, "spumone-clock: --symbols %s: %s\n", specification, strerror(errno));
        return false;
    }
    while (getline(&line, &room, input) > 0) {
        uint64_t address;
        char type, name[512];

        /* Up to the end of the line: `nm -C` writes names with spaces. kallsyms has a tab, then the module. */
        if (sscanf(line, "%" SCNx64 " %c %511[^\t\n]", &address, &type, name) != 3 ||
            !strchr("tTwW", type) || name[0] == '$')
            continue;
        if (file->count == symbols_room) {
            symbols_room = symbols_room ? 2 * symbols_room : 4096;
            file->symbols = enlarge(file->symbols, symbols_room * sizeof(*file->symbols));
        }
        file->symbols[file->count++] = (struct symbol){address, strdup(name)};
    }
    free(line);
    fclose(input);
    if (!file->count) {
        fprintf(stderr, "spumone-clock: --symbols %s: no functions in it; expected the output of nm\n",
                specification);
        return false;
    }
    qsort(file->symbols, file->count, sizeof(*file->symbols), by_address);
    return true;
}

bool symbols_load(const char *specification)
{
    struct file *file = &files[file_count];
    char *copy, *path, *offset, *rest;

    if (file_count == MAX_FILES) {
        fprintf(stderr, "spumone-clock: --symbols %s: at most %d files\n", specification, MAX_FILES);
        return false;
    }
    if (strncmp(specification, "el", 2) || specification[2] < '0' ||
        specification[2] >= '0' + EXCEPTION_LEVELS || specification[3] != ':') {
        fprintf(stderr, "spumone-clock: --symbols %s: expected elN:FILE[:OFFSET], N from 0 to 3\n",
                specification);
        return false;
    }
    file->el = specification[2] - '0';
    file->offset_is_known = true;
    copy = strdup(specification + 4);
    path = copy;
    offset = strrchr(path, ':');
    /* A folder may have a colon in its name. */
    if (offset && !strchr(offset, '/')) {
        *offset++ = '\0';
        if (!strcmp(offset, "auto")) {
            file->offset_is_known = false;
            offset_is_missing = true;
        } else {
            file->offset = strtoull(offset, &rest, 0);
            if (*rest || !*offset) {
                fprintf(stderr, "spumone-clock: --symbols %s: the offset is a number or `auto`\n",
                        specification);
                free(copy);
                return false;
            }
        }
    }
    if (!read_file(file, path, specification)) {
        free(copy);
        return false;
    }
    free(copy);
    file_count++;
    return true;
}

static const char *find_in(const struct file *file, uint64_t address)
{
    size_t low = 0, high = file->count;

    address -= file->offset;
    if (!file->offset_is_known || address < file->symbols[0].address ||
        address > file->symbols[file->count - 1].address + LAST_SYMBOL_SIZE)
        return NULL;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;

        if (file->symbols[middle].address <= address)
            low = middle;
        else
            high = middle;
    }
    return file->symbols[low].name;
}

const char *symbols_find(int el, uint64_t address)
{
    for (int i = 0; i < file_count; i++) {
        const char *name = files[i].el == el ? find_in(&files[i], address) : NULL;

        if (name)
            return name;
    }
    return NULL;
}

static bool address_of(const struct file *file, const char *name, uint64_t *address)
{
    for (size_t i = 0; i < file->count; i++)
        if (!strcmp(file->symbols[i].name, name)) {
            *address = file->symbols[i].address;
            return true;
        }
    return false;
}

void symbols_watch_offset(int el, uint64_t address)
{
    uint64_t base, vectors;

    if (likely(!offset_is_missing) || address < KERNEL_HALF)
        return;
    /* A kernel that is started at EL2 stays there if the core has FEAT_VHE. */
    base = registers_read(el == 2 ? REGISTER_VBAR_EL2 : REGISTER_VBAR_EL1);
    if (base < KERNEL_HALF)
        return;
    offset_is_missing = false;
    for (int i = 0; i < file_count; i++) {
        struct file *file = &files[i];

        /* The kernel may temporarily use other tables (for mitigations): their offset is no multiple. */
        if (!file->offset_is_known && file->el == el && address_of(file, "vectors", &vectors) &&
            (base - vectors) % KERNEL_ALIGNMENT == 0) {
            file->offset = base - vectors;
            file->offset_is_known = true;
        }
        offset_is_missing |= !file->offset_is_known;
    }
}
