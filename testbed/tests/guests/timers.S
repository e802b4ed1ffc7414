/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Timer interrupts on busy cores. Cores 0 and 3 each take 100 of them, in turn due after 50 µs and
 * 1.6 µs, at changing places in a round. Cores 1 and 2 read the time all the time, and core 1 disturbs
 * the order of the cores with TLB maintenance. At each interrupt:
 *   mark 1  X0: when the timer was due, in ticks of 16 ns
 *   mark 2  X0: the time that the core itself reads, minus the time of mark 1
 */
#include "lib.S"
#define INTERRUPTS      100
#define LONG_TICKS      3131
#define SHORT_TICKS     101
#define GICR_SIZE       0x20000         /* of one core: two frames */
_start:
        start_core 1, upset
        start_core 2, read
        start_core 3, take
        mov     x0, #0
take:   mov     x19, x0
        gic_distributor_init
        set     x0, GICR + GICR_SGI
        set     x1, GICR_SIZE
        madd    x0, x1, x19, x0
        gic_core_init
        adr     x0, vectors
        msr     vbar_el1, x0
        set     x21, LONG_TICKS
        set     x22, SHORT_TICKS
        mov     x24, #INTERRUPTS
        mrs     x20, cntpct_el0
1:      mrs     x20, cntpct_el0
        add     x20, x20, x21
        mov     x23, #0
        msr     cntp_cval_el0, x20
        mov     x0, #1
        msr     cntp_ctl_el0, x0
        isb
        msr     daifclr, #2
2:      cbz     x23, 2b
        msr     daifset, #2
        mov     x0, x21                 /* short and long in turn */
        mov     x21, x22
        mov     x22, x0
        subs    x24, x24, #1
        b.ne    1b
        adr     x1, done
        mov     w2, #1
        str     w2, [x1, x19, lsl #2]
1:      ldr     w2, [x1]
        ldr     w3, [x1, #12]
        tst     w2, w3
        b.eq    1b
        cbnz    x19, 2f
        power_off
2:      wfi
        b       2b

upset:  mov     x9, #97
1:      mrs     x0, cntpct_el0
        subs    x9, x9, #1
        b.ne    1b
        tlbi    vmalle1is
        dsb     ish
        b       upset

read:   mrs     x0, cntpct_el0
        b       read

        .balign 0x800
vectors:
        .skip   0x280                   /* IRQ from this level, with its own stack pointer */
        mrs     x1, cntpct_el0
        mov     x0, x20
        mark_x0 1
        sub     x0, x1, x20
        mark_x0 2
        mrs     x0, icc_iar1_el1
        msr     cntp_ctl_el0, xzr
        msr     icc_eoir1_el1, x0
        mov     x23, #1
        eret
        .balign 8
done:   .word   0, 0, 0, 0
