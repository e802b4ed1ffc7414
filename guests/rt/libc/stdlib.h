/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* FreeRTOS includes <stdlib.h> and uses only its types. */
#ifndef RT_STDLIB_H
#define RT_STDLIB_H

#include <stddef.h>

#endif
