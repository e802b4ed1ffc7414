/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Arm Power State Coordination Interface (DEN0022): only what is needed to switch off or restart. */
#ifndef PSCI_H
#define PSCI_H

__attribute__((noreturn)) void psci_system_off(void);

__attribute__((noreturn)) void psci_system_reset(void);

#endif
