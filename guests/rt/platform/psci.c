/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "psci.h"

#include <stdint.h>

#include "console.h"
#include "mark.h"
#include "smccc.h"
#include "sysreg.h"

#define PSCI_SYSTEM_OFF UINT64_C(0x84000008)   /* DEN0022, 5.9 */
#define PSCI_SYSTEM_RESET UINT64_C(0x84000009) /* DEN0022, 5.10 */

/* Calls a function that does not return. */
static __attribute__((noreturn)) void end(uint64_t number, const char *name) {
    uint64_t answer = smccc_call(number, 0, 0);

    console_printf("rt-fault: PSCI %s by %s returned 0x%lx\n", name, smccc_conduit_name(), answer);
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
