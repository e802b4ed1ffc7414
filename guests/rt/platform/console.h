/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The console: a PL011 UART (DDI 0183), output only, polled. */
#ifndef CONSOLE_H
#define CONSOLE_H

#include <stdbool.h>
#include <stdint.h>

/*
 * Names the UART; before, it is that of board.h. A generic UART (Arm SBSA, appendix B) has the PL011's data
 * and flags, and no registers to set it up with.
 */
void console_init(uintptr_t base, bool is_generic);

/*
 * Formatted output. Knows `%s`, `%.*s`, `%lu`, `%lx` and `%%`, with a decimal minimum width and `-`
 * for left alignment; anything else is printed as it stands. "\n" becomes CR LF.
 */
__attribute__((format(printf, 1, 2))) void console_printf(const char *format, ...);

/* Waits, with a bound, until the last character has left the UART. */
void console_flush(void);

#endif
