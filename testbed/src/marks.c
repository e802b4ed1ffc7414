/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "marks.h"

#include "clock.h"
#include "options.h"
#include "profile.h"
#include "registers.h"
#include "schedule.h"
#include "util.h"
#include "exits.h"

/* MOVZ and MOVK to XZR, 64 bit, no shift; the number is in bits 20:5. */
#define A64_MARK_MASK 0xffe0001f
#define A64_MOVZ_XZR 0xd280001f
#define A64_MOVK_XZR 0xf280001f

/* One such instruction in the guest's code. */
struct site {
    uint16_t number;
    uint16_t after; /* instructions of its block from it to the end, itself included */
    uint8_t el;
    bool has_x0;
};

static struct mark *marks;
static size_t count, room;

static void on_mark(unsigned vcpu, void *data)
{
    const struct site *site = data;
    struct core *core = schedule_core();
    struct mark *mark;

    (void)vcpu;
    if (site->el == 2 && site->number >= EXIT_STEP_FIRST &&
        site->number < EXIT_STEP_FIRST + EXIT_STEPS) {
        exits_step(core, site->number - EXIT_STEP_FIRST, core->executed - site->after);
        return;
    }
    if (count == room) {
        room = room ? 2 * room : 1024;
        marks = enlarge(marks, room * sizeof(*marks));
    }
    mark = &marks[count++];
    *mark = (struct mark){
        /* The whole block is counted by now. */
        .executed = core->executed - site->after,
        .at = core_time_before(core, site->after),
        .number = site->number,
        .core = (uint8_t)core->index,
        .el = site->el,
        .has_x0 = site->has_x0,
    };
    if (site->has_x0)
        mark->x0 = registers_read(REGISTER_X0);
    schedule_hash(mark->x0 ^ (uint64_t)mark->at << 16 ^ mark->number);
    profile_mark(mark->number, mark->at);
    if (mark->number == options.end_mark)
        schedule_set_end(mark->at);
}

void marks_translated(struct qemu_plugin_insn *insn, uint32_t opcode, const struct block *block,
                      unsigned index)
{
    uint32_t kind = opcode & A64_MARK_MASK;
    struct site *site;

    if (kind != A64_MOVZ_XZR && kind != A64_MOVK_XZR)
        return;
    site = allocate(sizeof(*site));
    site->number = (uint16_t)(opcode >> 5);
    site->after = (uint16_t)(block->instructions - index);
    site->el = block->el;
    site->has_x0 = kind == A64_MOVK_XZR;
    qemu_plugin_register_vcpu_insn_exec_cb(insn, on_mark, QEMU_PLUGIN_CB_R_REGS, site);
}

const struct mark *marks_all(size_t *number)
{
    *number = count;
    return marks;
}
