/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Four cores each execute 1,000,000 instructions in a loop, from mark 1 to mark 2. Core 0 then waits
 * for the others and sets mark 3.
 */
#include "lib.S"
_start:
        start_core 1, work
        start_core 2, work
        start_core 3, work
        mov     x0, #0
work:   mov     x8, x0
        set     x9, 500000
        mark    1
1:      subs    x9, x9, #1
        b.ne    1b
        mark    2
        adr     x1, done
        mov     x2, #1
        strb    w2, [x1, x8]
        cbnz    x8, sleep
1:      wfe
        ldr     w2, [x1]
        set     w3, 0x01010101
        cmp     w2, w3
        b.ne    1b
        mark    3
        power_off
sleep:  wfi
        b       sleep
        .balign 8
done:   .word   0
