/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What FreeRTOS, lwIP and this program use of <string.h>; there is no C library here. */
#ifndef RT_STRING_H
#define RT_STRING_H

#include <stddef.h>

void *memcpy(void *restrict to, const void *restrict from, size_t size);
void *memmove(void *to, const void *from, size_t size);
void *memset(void *to, int byte, size_t size);
int memcmp(const void *a, const void *b, size_t size);
size_t strlen(const char *text);

/* Used only by functions of lwIP that nothing calls, so the linker leaves them out. */
int strncmp(const char *a, const char *b, size_t size);

#endif
