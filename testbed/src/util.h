/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What every file uses. */
#ifndef UTIL_H
#define UTIL_H

#include <stddef.h>
#include <stdint.h>

#define MAX_CORES 16

/* A virtual time that never comes. */
#define NEVER INT64_MAX

#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

/* Prints the message and ends the process: for states in which no figure can be trusted. */
_Noreturn void fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* malloc and realloc that cannot return NULL; the memory of the first is zeroed. */
void *allocate(size_t bytes);
void *enlarge(void *old, size_t bytes);

#endif
