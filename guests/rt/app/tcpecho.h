/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* TCP echo (RFC 862): what comes to port 7 is sent back. Called by the network task. */
#ifndef TCPECHO_H
#define TCPECHO_H

#include <stdbool.h>

/* False: lwIP has no memory for it. */
bool tcpecho_start(void);

/* Ends all connections. */
void tcpecho_end_all(void);

#endif
