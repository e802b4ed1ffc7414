/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "util.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

void fail(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    fputs("spumone-clock: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    /* Not exit(): QEMU's exit handlers would wait for threads that are stopped here. */
    _exit(1);
}

void *allocate(size_t bytes)
{
    void *memory = calloc(1, bytes);

    if (!memory)
        fail("out of memory");
    return memory;
}

void *enlarge(void *old, size_t bytes)
{
    void *memory = realloc(old, bytes);

    if (!memory)
        fail("out of memory");
    return memory;
}
