/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "console.h"

#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include "board.h"
#include "sysreg.h"

/* PL011 registers and bits, DDI 0183 chapter 3. */
#define UART_DR 0x00
#define UART_FR 0x18
#define UART_LCR_H 0x2C
#define UART_CR 0x30
#define UART_IMSC 0x38
#define FR_BUSY (1u << 3)
#define FR_TXFF (1u << 5)
#define LCR_H_FIFO (1u << 4)
#define LCR_H_8_BITS (3u << 5)
#define CR_UARTEN (1u << 0)
#define CR_TXE (1u << 8)

/* Reads of FR before a character is given up: a UART that never drains must not hang the guest. */
#define POLL_LIMIT 1000000u

#define DIGITS_MAX 20 /* of a 64-bit number in decimal */

static uintptr_t uart = BOARD_UART_BASE;

void console_init(uintptr_t base, bool is_generic) {
    uart = base;
    mmio_write32(uart + UART_IMSC, 0);
    if (is_generic) {
        return;
    }
    /* The baud rate stays as firmware or the virtual machine set it. */
    mmio_write32(uart + UART_LCR_H, LCR_H_8_BITS | LCR_H_FIFO);
    mmio_write32(uart + UART_CR, CR_UARTEN | CR_TXE);
}

static void wait_while(uint32_t flag) {
    for (uint32_t polls = 0; polls < POLL_LIMIT && (mmio_read32(uart + UART_FR) & flag) != 0; polls++) {
    }
}

void console_flush(void) {
    wait_while(FR_BUSY);
}

static void put_raw(char c) {
    wait_while(FR_TXFF);
    mmio_write32(uart + UART_DR, (uint8_t)c);
}

static void put(char c) {
    if (c == '\n') {
        put_raw('\r');
    }
    put_raw(c);
}

static void put_padded(const char *text, size_t length, size_t width, bool left) {
    if (!left) {
        for (size_t i = length; i < width; i++) {
            put(' ');
        }
    }
    for (size_t i = 0; i < length; i++) {
        put(text[i]);
    }
    if (left) {
        for (size_t i = length; i < width; i++) {
            put(' ');
        }
    }
}

static void put_number(uint64_t value, unsigned base, size_t width, bool left) {
    char digits[DIGITS_MAX];
    size_t first = DIGITS_MAX;

    do {
        digits[--first] = "0123456789abcdef"[value % base];
        value /= base;
    } while (value != 0);
    put_padded(&digits[first], DIGITS_MAX - first, width, left);
}

void console_printf(const char *format, ...) {
    va_list arguments;

    va_start(arguments, format);
    for (const char *p = format; *p != '\0'; p++) {
        if (*p != '%') {
            put(*p);
            continue;
        }
        const char *start = p++;
        bool left = *p == '-';
        if (left) {
            p++;
        }
        size_t width = 0;
        while (*p >= '0' && *p <= '9') {
            width = width * 10 + (size_t)(*p++ - '0');
        }
        if (p[0] == 'l' && p[1] == 'u') {
            p++;
            put_number(va_arg(arguments, uint64_t), 10, width, left);
        } else if (p[0] == 'l' && p[1] == 'x') {
            p++;
            put_number(va_arg(arguments, uint64_t), 16, width, left);
        } else if (p[0] == 's') {
            const char *text = va_arg(arguments, const char *);
            put_padded(text, strlen(text), width, left);
        } else if (p[0] == '.' && p[1] == '*' && p[2] == 's') {
            p += 2;
            int length = va_arg(arguments, int);
            const char *text = va_arg(arguments, const char *);
            put_padded(text, length > 0 ? (size_t)length : 0, width, left);
        } else if (p[0] == '%') {
            put('%');
        } else {
            p = start;
            put('%');
        }
    }
    va_end(arguments);
}
