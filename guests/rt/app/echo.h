/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The echo task: sends back each message that comes over a memory link, whenever nothing else wants the core. */
#ifndef ECHO_H
#define ECHO_H

#include <stdint.h>

/* Where a memory link is. */
struct echo_link {
    uint64_t registers;
    uint64_t memory;
    uint32_t interrupt;
};

/* Before the scheduler starts. Stops the guest with a message if that is no link to which it may write. */
void echo_create(const struct echo_link *link);

#endif
