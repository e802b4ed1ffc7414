/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Says that it runs, then sleeps for ever: nothing is to come. */
#include "lib.S"
_start:
        say_running
        mark    1
1:      wfi
        b       1b
