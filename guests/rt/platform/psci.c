/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "psci.h"

#include <stdint.h>

#include "console.h"
#include "mark.h"
#include "sysreg.h"

#define PSCI_SYSTEM_OFF UINT64_C(0x84000008)   /* DEN0022, 5.9 */
#define PSCI_SYSTEM_RESET UINT64_C(0x84000009) /* DEN0022, 5.10 */

static enum psci_conduit conduit_in_use = PSCI_HVC;

void psci_set_conduit(enum psci_conduit conduit) {
    conduit_in_use = conduit;
}

const char *psci_conduit_name(void) {
    return conduit_in_use == PSCI_SMC ? "smc" : "hvc";
}

/* Calls a function that does not return. */
static __attribute__((noreturn)) void end(uint64_t number, const char *name) {
    register uint64_t function __asm__("x0") = number;

    if (conduit_in_use == PSCI_SMC) {
        __asm__ volatile("smc #0" : "+r"(function) : : "x1", "x2", "x3", "memory");
    } else {
        __asm__ volatile("hvc #0" : "+r"(function) : : "x1", "x2", "x3", "memory");
    }
    console_printf("rt-fault: PSCI %s by %s returned 0x%lx\n", name, psci_conduit_name(), function);
    for (;;) {
        wfi();
    }
}

void psci_system_off(void) {
    console_flush();
    end(PSCI_SYSTEM_OFF, "SYSTEM_OFF");
}

void psci_system_reset(void) {
    console_flush();
    MARK(MARK_RESET, 0);
    end(PSCI_SYSTEM_RESET, "SYSTEM_RESET");
}
