/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* FreeRTOS and lwIP include <stdlib.h> for its types. */
#ifndef RT_STDLIB_H
#define RT_STDLIB_H

#include <stddef.h>

/* Used only by functions of lwIP that nothing calls, so the linker leaves them out. */
int atoi(const char *text);

#endif
