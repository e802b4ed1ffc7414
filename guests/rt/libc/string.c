/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Simple byte loops: none of them is used where time is measured. Compiled so that the compiler does
 * not turn the loops into calls of the very functions they implement (see build.sh).
 */
#include "string.h"

void *memcpy(void *restrict to, const void *restrict from, size_t size) {
    unsigned char *out = to;
    const unsigned char *in = from;

    for (size_t i = 0; i < size; i++) {
        out[i] = in[i];
    }
    return to;
}

void *memmove(void *to, const void *from, size_t size) {
    unsigned char *out = to;
    const unsigned char *in = from;

    if (out < in) {
        for (size_t i = 0; i < size; i++) {
            out[i] = in[i];
        }
    } else {
        for (size_t i = size; i > 0; i--) {
            out[i - 1] = in[i - 1];
        }
    }
    return to;
}

void *memset(void *to, int byte, size_t size) {
    unsigned char *out = to;

    for (size_t i = 0; i < size; i++) {
        out[i] = (unsigned char)byte;
    }
    return to;
}

int memcmp(const void *a, const void *b, size_t size) {
    const unsigned char *left = a;
    const unsigned char *right = b;

    for (size_t i = 0; i < size; i++) {
        if (left[i] != right[i]) {
            return left[i] < right[i] ? -1 : 1;
        }
    }
    return 0;
}

size_t strlen(const char *text) {
    size_t length = 0;

    while (text[length] != '\0') {
        length++;
    }
    return length;
}
