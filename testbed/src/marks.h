/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Marks: points in virtual time that software sets with one instruction.
 *
 *     movz xzr, #N      mark N
 *     movk xzr, #N      mark N, with the value of X0
 *
 * N is 0 to 65535. Writes to XZR are discarded (Arm Architecture Reference Manual, C1.2.5), so on
 * every Armv8-A core the instruction does nothing, at any exception level, and does not trap.
 * Compilers do not emit it.
 */
#ifndef MARKS_H
#define MARKS_H

#include "blocks.h"
#include "qemu-api.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct mark {
    int64_t at; /* nanoseconds of virtual time */
    uint64_t executed; /* instructions that the core had executed before it */
    uint64_t x0;
    uint16_t number;
    uint8_t core, el;
    bool has_x0;
};

/* Looks at one instruction of a block being translated, the one with this index. */
void marks_translated(struct qemu_plugin_insn *insn, uint32_t opcode, const struct block *block,
                      unsigned index);

/* All marks passed, in the order of execution. */
const struct mark *marks_all(size_t *count);

#endif
