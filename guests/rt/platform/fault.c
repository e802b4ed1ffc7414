/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "fault.h"

#include "console.h"
#include "psci.h"
#include "sysreg.h"

void fault_report(uint64_t vector, uint64_t esr, uint64_t elr, uint64_t far) {
    static const char *const kinds[] = {"synchronous exception", "IRQ", "FIQ", "SError"};

    mask_interrupts();
    console_printf("\nrt-fault: %s (vector %lu) at 0x%lx, ESR_EL1 0x%lx, FAR_EL1 0x%lx\n",
                   kinds[vector % 4], vector, elr, esr, far);
    psci_system_off();
}

void fault_assert(const char *file, uint64_t line) {
    mask_interrupts();
    console_printf("\nrt-fault: assertion failed at %s:%lu\n", file, line);
    psci_system_off();
}

void fault_stop(const char *what, const char *cure) {
    mask_interrupts();
    console_printf("\nrt-fault: %s; %s\n", what, cure);
    psci_system_off();
}
