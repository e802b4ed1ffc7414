/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Timers. X0 of marks 1 and 2 is when the timer is due, in ticks of 16 ns:
 *   mark 1  after sleeping for it, five times, 10 ms each, interrupts masked
 *   mark 2  in the interrupt handler, from a busy loop
 * Then it sleeps for a second (mark 3 at its end).
 */
#include "lib.S"
_start:
        gic_init
        adr     x0, vectors
        msr     vbar_el1, x0
        mrs     x20, cntpct_el0
        set     x21, 625000             /* 10 ms */
        mov     x22, #5
1:      add     x20, x20, x21
        msr     cntp_cval_el0, x20
        mov     x0, #1
        msr     cntp_ctl_el0, x0
        isb
        wfi
        mov     x0, x20
        mark_x0 1
        subs    x22, x22, #1
        b.ne    1b

        add     x20, x20, x21
        msr     cntp_cval_el0, x20
        mov     x23, #0
        isb
        msr     daifclr, #2
1:      cbz     x23, 1b
        msr     daifset, #2

        set     x21, 62500000           /* 1 s */
        add     x20, x20, x21
        msr     cntp_cval_el0, x20
        mov     x0, #1
        msr     cntp_ctl_el0, x0
        isb
        wfi
        mov     x0, x20
        mark_x0 3
        power_off

        .balign 0x800
vectors:
        .skip   0x280                   /* IRQ from this level, with its own stack pointer */
        mov     x0, x20
        mark_x0 2
        mrs     x0, icc_iar1_el1
        msr     cntp_ctl_el0, xzr
        msr     icc_eoir1_el1, x0
        mov     x23, #1
        eret
