/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Arm SMC Calling Convention (DEN0028): calls of the firmware, or of the hypervisor in its place. */
#ifndef SMCCC_H
#define SMCCC_H

#include <stdint.h>

enum smccc_conduit { SMCCC_HVC, SMCCC_SMC };

/* Until this is called the conduit is HVC. */
void smccc_set_conduit(enum smccc_conduit conduit);

const char *smccc_conduit_name(void);

/* Returns x0. */
uint64_t smccc_call(uint64_t function, uint64_t first, uint64_t second);

#endif
