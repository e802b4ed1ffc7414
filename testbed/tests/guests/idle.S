/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Writes a character, then sleeps for ever: there is no event. */
#include "lib.S"
_start:
        say_running
        mark    1
1:      wfi
        b       1b
