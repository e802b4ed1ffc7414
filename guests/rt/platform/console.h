/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The console: a PL011 UART (DDI 0183), output only, polled. */
#ifndef CONSOLE_H
#define CONSOLE_H

void console_init(void);

/*
 * Formatted output. Knows `%s`, `%.*s`, `%lu`, `%lx` and `%%`, with a decimal minimum width and `-`
 * for left alignment; anything else is printed as it stands. "\n" becomes CR LF.
 */
__attribute__((format(printf, 1, 2))) void console_printf(const char *format, ...);

/* Waits, with a bound, until the last character has left the UART. */
void console_flush(void);

#endif
