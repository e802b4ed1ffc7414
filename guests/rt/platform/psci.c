/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "psci.h"

#include <stdint.h>

#include "console.h"
#include "sysreg.h"

#define PSCI_SYSTEM_OFF UINT64_C(0x84000008) /* DEN0022, 5.9 */

static enum psci_conduit conduit_in_use = PSCI_HVC;

void psci_set_conduit(enum psci_conduit conduit) {
    conduit_in_use = conduit;
}

const char *psci_conduit_name(void) {
    return conduit_in_use == PSCI_SMC ? "smc" : "hvc";
}

void psci_system_off(void) {
    console_flush();
    /* Only now: a call in between would be free to use x0. */
    register uint64_t function __asm__("x0") = PSCI_SYSTEM_OFF;
    if (conduit_in_use == PSCI_SMC) {
        __asm__ volatile("smc #0" : "+r"(function) : : "x1", "x2", "x3", "memory");
    } else {
        __asm__ volatile("hvc #0" : "+r"(function) : : "x1", "x2", "x3", "memory");
    }
    console_printf("rt-fault: PSCI SYSTEM_OFF by %s returned 0x%lx\n", psci_conduit_name(), function);
    for (;;) {
        wfi();
    }
}
