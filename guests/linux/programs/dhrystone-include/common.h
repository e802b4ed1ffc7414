/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What the Dhrystone sources, which were part of a boot loader, expect of its header of this name. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
