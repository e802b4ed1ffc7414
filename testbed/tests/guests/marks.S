/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Marks of both kinds, with the largest number and value. Flags and registers must survive. */
#include "lib.S"
_start:
        mov     x0, #-1
        cmp     x0, x0
        mark    7
        nop
        nop
        nop
        mark_x0 0xffff
        cset    x0, eq
        mark_x0 8
        power_off
