/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Writes a character, waits for one on the serial line, and ends. */
#include "lib.S"
#define UART_CR         0x30
_start:
        set     x1, UART
        mov     w2, #0x301              /* receive, transmit, on */
        str     w2, [x1, #UART_CR]
        say_running
1:      ldr     w2, [x1, #UART_FR]
        tbnz    w2, #UART_FR_RXFE, 1b
        ldr     w0, [x1, #UART_DR]
        mark_x0 1
        power_off
