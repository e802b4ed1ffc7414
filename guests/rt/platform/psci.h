/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Arm Power State Coordination Interface (DEN0022): only what is needed to switch off or restart. */
#ifndef PSCI_H
#define PSCI_H

enum psci_conduit { PSCI_HVC, PSCI_SMC };

/* Until this is called the conduit is HVC. */
void psci_set_conduit(enum psci_conduit conduit);

const char *psci_conduit_name(void);

__attribute__((noreturn)) void psci_system_off(void);

__attribute__((noreturn)) void psci_system_reset(void);

#endif
