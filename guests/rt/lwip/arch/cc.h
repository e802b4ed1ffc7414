/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What lwIP asks of compiler and platform. */
#ifndef ARCH_CC_H
#define ARCH_CC_H

#define LWIP_NO_INTTYPES_H 1
#define LWIP_NO_LIMITS_H 1
#define LWIP_NO_UNISTD_H 1
#define LWIP_NO_CTYPE_H 1
#define SSIZE_MAX __INTPTR_MAX__
typedef __INTPTR_TYPE__ ssize_t;

/* Ends the network task; the control task goes on (network.c). */
__attribute__((noreturn)) void network_stop(const char *why);

#define LWIP_PLATFORM_DIAG(message)
#define LWIP_PLATFORM_ASSERT(message) network_stop(message)

#endif
