/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Core 1 takes a lock, works for 100,000 instructions (mark 1 to 2) in `work_with_lock`, and releases
 * it; core 0 meanwhile waits for the lock in a function with the name of Linux's lock function.
 */
#include "lib.S"
_start:
        start_core 1, holder
        adr     x1, taken
1:      ldr     w2, [x1]
        cbz     w2, 1b
        bl      queued_spin_lock_slowpath
        power_off

queued_spin_lock_slowpath:
        adr     x1, taken
1:      ldr     w2, [x1]
        cbz     w2, 2f
        wfe
        b       1b
2:      ret

holder: adr     x1, taken
        mov     w2, #1
        str     w2, [x1]
        mark    1
        bl      work_with_lock
        mark    2
        str     wzr, [x1]
1:      wfi
        b       1b

work_with_lock:
        set     x9, 50000
1:      subs    x9, x9, #1
        b.ne    1b
        ret
        .balign 8
taken:  .word   0
