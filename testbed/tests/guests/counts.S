/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Stretches of code with a known number of instructions, between marks 1 and 2, 2 and 3, 3 and 4. */
#include "lib.S"
_start:
        set     x9, 12345               /* 2 */
        mark    1
        /* mark + 12345 * 3 */
1:      add     x10, x10, #1
        subs    x9, x9, #1
        b.ne    1b
        mark    2
        /* mark + 4 + 100 * 6: reads of a device in the middle of a block */
        set     x1, UART
        set     x9, 100
1:      add     x10, x10, #1
        ldr     w2, [x1, #UART_FR]
        add     x10, x10, #1
        ldr     w2, [x1, #UART_FR]
        subs    x9, x9, #1
        b.ne    1b
        mark    3
        /* mark + 2 + 1000 * 3: calls */
        set     x9, 1000
1:      bl      2f
        subs    x9, x9, #1
        b.ne    1b
        /* + 1000 + 1 */
        mark    4
        power_off
2:      ret
