/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "translate.h"

#include "blocks.h"
#include "core.h"
#include "counters.h"
#include "marks.h"
#include "registers.h"
#include "schedule.h"
#include "symbols.h"

/* A64 encodings (Arm Architecture Reference Manual, C4.1). */
#define A64_SIZE 4
#define A64_YIELD 0xd503203f
#define A64_WFE 0xd503205f
#define A64_WFI 0xd503207f
/* WFET and WFIT, with the register in bits 4:0. */
#define A64_WFXT_MASK 0xffffffe0
#define A64_WFET 0xd5031000
#define A64_WFIT 0xd5031020
/* B and BL, with a 26-bit offset. */
#define A64_B_MASK 0x7c000000
#define A64_B 0x14000000
/* B.cond and BC.cond, CBZ and CBNZ, with a 19-bit offset in bits 23:5. */
#define A64_BCOND_MASK 0xfe000000
#define A64_BCOND 0x54000000
#define A64_CB_MASK 0x7e000000
#define A64_CB 0x34000000
/* TBZ and TBNZ, with a 14-bit offset in bits 18:5. */
#define A64_TB_MASK 0x7e000000
#define A64_TB 0x36000000
/* BR and BLR, with and without pointer authentication: unconditional branches to a register. */
#define A64_BR_MASK 0xfedff000
#define A64_BR 0xd61f0000
/* MRS Xt, ICC_IAR1_EL1 and MSR ICC_SGI1R_EL1, Xt. QEMU ends a block behind either. */
#define A64_MRS_IAR1 0xd538cc00
#define A64_MSR_SGI1R 0xd518cba0
/* MRS Xt, ISR_EL1. */
#define A64_MRS_ISR 0xd538c100
#define A64_RT_MASK 0x1fu
#define A64_XZR 31

static int64_t sign_extend(uint32_t value, int bits)
{
    return (int64_t)((uint64_t)value << (64 - bits)) >> (64 - bits);
}

/* Fills in what follows from the last instruction, at address `at`. */
static void decode_end(struct block *block, uint32_t opcode, uint64_t at)
{
    uint32_t timed = opcode & A64_WFXT_MASK;

    block->yields = opcode == A64_WFE || opcode == A64_YIELD || timed == A64_WFET;
    block->wait = block->yields || opcode == A64_WFI || timed == A64_WFIT;
    if (block->el == 2 && (opcode & ~A64_RT_MASK) == A64_MRS_IAR1 &&
        (opcode & A64_RT_MASK) != A64_XZR)
        block->acknowledges = (uint8_t)((opcode & A64_RT_MASK) + 1);
    block->sends = (opcode & ~A64_RT_MASK) == A64_MSR_SGI1R;
    block->indirect = (opcode & A64_BR_MASK) == A64_BR;
    if ((opcode & A64_B_MASK) == A64_B)
        block->target = at + (uint64_t)sign_extend(opcode & 0x3ffffff, 26) * A64_SIZE;
    else if ((opcode & A64_BCOND_MASK) == A64_BCOND || (opcode & A64_CB_MASK) == A64_CB)
        block->target = at + (uint64_t)sign_extend(opcode >> 5 & 0x7ffff, 19) * A64_SIZE;
    else if ((opcode & A64_TB_MASK) == A64_TB)
        block->target = at + (uint64_t)sign_extend(opcode >> 5 & 0x3fff, 14) * A64_SIZE;
}

static uint64_t mix(uint64_t value)
{
    value = (value ^ value >> 31) * 0x9e3779b97f4a7c15;
    return value ^ value >> 29;
}

void translate_block(qemu_plugin_id_t id, struct qemu_plugin_tb *tb)
{
    struct block block = {
        .start = qemu_plugin_tb_vaddr(tb),
        .instructions = (uint16_t)qemu_plugin_tb_n_insns(tb),
        .el = (uint8_t)registers_exception_level(),
    };
    uint32_t opcode = 0;
    struct block *known;

    (void)id;
    for (unsigned i = 0; i < block.instructions; i++) {
        struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, i);

        opcode = 0;
        qemu_plugin_insn_data(insn, &opcode, sizeof(opcode));
        block.bytes += (uint32_t)qemu_plugin_insn_size(insn);
        block.id = mix(block.id ^ opcode);
        block.looks |= block.el == 2 && (opcode & ~A64_RT_MASK) == A64_MRS_ISR;
        marks_translated(insn, opcode, &block, i);
    }
    symbols_watch_offset(block.el, block.start);
    block.spin = counters_spin_function(block.el, block.start);
    block.id = mix(block.id ^ block.start) ^ block.el;
    decode_end(&block, opcode, block.start + block.bytes - A64_SIZE);
    block.class = counters_class(&block);
    known = blocks_find(&block);
    qemu_plugin_register_vcpu_tb_exec_cb(tb, schedule_block, QEMU_PLUGIN_CB_NO_REGS, known);
}
