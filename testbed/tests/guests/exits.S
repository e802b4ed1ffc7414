/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A hypervisor with a guest that calls it: 10 times function 1, which takes 8 instructions at EL2,
 * and 3 times function 2, which takes 8 + 2 * 100. Function 3 sleeps at EL2 until the timer is due,
 * then returns: 14 instructions, the last 7 of them after the sleep. Function 4 takes 153, and checks for
 * interrupts after 110. Functions 1 and 2 pass a step each. The guest runs 5 instructions at
 * EL0 in between.
 */
#include "lib.S"
#define HCR_RW          (1 << 31)
#define SPSR_EL1H       0x3c5
#define SPSR_EL0T       0x3c0
_start:                                 /* 21 instructions until ERET */
        set     x0, HCR_RW
        msr     hcr_el2, x0
        adr     x0, vectors
        msr     vbar_el2, x0
        adr     x0, guest
        msr     elr_el2, x0
        mov     x0, #SPSR_EL1H
        msr     spsr_el2, x0
        set     x0, GICD
        mov     w1, #GICD_CTLR_ARE_GRP1
        str     w1, [x0, #GICD_CTLR]
        set     x0, GICR + GICR_SGI
        mov     w1, #-1
        str     w1, [x0, #GICR_IGROUPR0]
        mov     w1, #(1 << 26)          /* EL2 physical timer */
        str     w1, [x0, #GICR_ISENABLER0]
        isb
        eret

guest:
        set     x9, 10
1:      mov     x0, #1
        hvc     #0
        subs    x9, x9, #1
        b.ne    1b
        mov     x9, #3
1:      mov     x0, #2
        hvc     #0
        subs    x9, x9, #1
        b.ne    1b
        mov     x0, #4
        hvc     #0
        mov     x0, #3
        hvc     #0
        adr     x0, vectors_el1
        msr     vbar_el1, x0
        adr     x0, user
        msr     elr_el1, x0
        mov     x0, #SPSR_EL0T
        msr     spsr_el1, x0
        eret
user:   nop
        nop
        nop
        nop
        svc     #0

call:                                   /* 1 instruction before this */
        cmp     x0, #1
        b.eq    1f
        cmp     x0, #2
        b.eq    2f
        cmp     x0, #3
        b.eq    3f
        cmp     x0, #4
        b.eq    4f
        smc     #0
        b       .
1:      mark    0xff00                  /* 1 + 2 + 5; step 0 after 3 */
        nop
        mark    0xff0f                  /* step 15 after 2 more */
        nop
        eret
2:      mov     x10, #100               /* 1 + 4 + 1 + 200 + 2 */
1:      subs    x10, x10, #1
        b.ne    1b
        mark    0xff01                  /* step 1 after 206 */
        eret
3:      mov     x0, #0xff               /* 1 + 6 before this */
        msr     icc_pmr_el1, x0
        mov     x0, #1
        msr     icc_igrpen1_el1, x0
        set     x0, 62500               /* 1 ms */
        msr     cnthp_tval_el2, x0
        mov     x0, #1
        msr     cnthp_ctl_el2, x0
        isb
        wfi
        mark    1                       /* 4 after the sleep */
        msr     cnthp_ctl_el2, xzr
        isb
        eret
4:      mov     x10, #50                /* 1 + 8 + 1 + 100 */
1:      subs    x10, x10, #1
        b.ne    1b
        mrs     x11, isr_el1            /* 2 + 40 + 1 */
        mov     x10, #20
1:      subs    x10, x10, #1
        b.ne    1b
        eret

        .balign 0x800
vectors:
        .skip   0x400                   /* synchronous, from a lower level */
        b       call
        .balign 0x800
vectors_el1:
        .skip   0x400
        set     w0, PSCI_SYSTEM_OFF
        hvc     #0
