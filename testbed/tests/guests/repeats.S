/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Mark 2 alone, then twice: mark 1, `measured`, mark 2, `between`. Each is 100 × 2 instructions and more.
 * Before that, `cut` passes mark 3, twice, in a block that a device access divides; the rest of the block is `behind`.
 */
#include "lib.S"
_start:
        set     x1, UART
        bl      cut
        bl      cut
        mark    2
        set     x20, 2
1:      mark    1
        bl      measured
        mark    2
        bl      between
        subs    x20, x20, #1
        b.ne    1b
        power_off

measured:
        set     x9, 100
1:      subs    x9, x9, #1
        b.ne    1b
        ret

between:
        set     x9, 100
1:      subs    x9, x9, #1
        b.ne    1b
        ret

cut:    mark    3
        ldr     w2, [x1, #UART_FR]
behind: .rept   20
        nop
        .endr
        ret
