/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Cores 0 and 2 wake each other with an SGI, 100 times each, while cores 1 and 3 are busy. The one that
 * is awake executes some hundred instructions, sets mark 1, wakes the other one and sleeps; the other one sets mark 2.
 */
#include "lib.S"
#define GICR_SIZE       0x20000         /* of one core: two frames */
#define ROUNDS          100
_start:
        start_core 1, busy
        start_core 2, play
        start_core 3, busy
        mov     x0, #0
play:   mov     x19, x0
        gic_distributor_init
        set     x0, GICR + GICR_SGI
        set     x1, GICR_SIZE
        madd    x0, x1, x19, x0
        gic_core_init
        mov     w1, #1                  /* SGI 0 */
        str     w1, [x0, #GICR_ISENABLER0]
        mov     x20, #ROUNDS
        mov     x22, #1
        eor     x21, x19, #2            /* the other one, as a bit of the target list */
        lsl     x21, x22, x21
        set     x23, 100
        adr     x1, ready
        add     x1, x1, x19, lsl #1
        str     w22, [x1]
        adr     x1, ready
        cbnz    x19, sleep
1:      ldr     w2, [x1, #4]            /* core 0 begins, when core 2 is ready */
        cbz     w2, 1b
        b       send

sleep:  wfi
        mark    2
        mrs     x0, icc_iar1_el1
        msr     icc_eoir1_el1, x0
        add     x23, x23, #7            /* the next one comes elsewhere in a round */
        mov     x9, x23
1:      subs    x9, x9, #1
        b.ne    1b
send:   mark    1
        msr     icc_sgi1r_el1, x21
        subs    x20, x20, #1
        b.ne    sleep
        cbz     x19, sleep
        power_off
busy:   mrs     x0, cntpct_el0
        b       busy
        .balign 8
ready:  .word   0, 0
