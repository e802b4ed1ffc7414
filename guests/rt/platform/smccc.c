/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "smccc.h"

static enum smccc_conduit conduit_in_use = SMCCC_HVC;

void smccc_set_conduit(enum smccc_conduit conduit) {
    conduit_in_use = conduit;
}

const char *smccc_conduit_name(void) {
    return conduit_in_use == SMCCC_SMC ? "smc" : "hvc";
}

uint64_t smccc_call(uint64_t function, uint64_t first, uint64_t second) {
    register uint64_t x0 __asm__("x0") = function;
    register uint64_t x1 __asm__("x1") = first;
    register uint64_t x2 __asm__("x2") = second;

    if (conduit_in_use == SMCCC_SMC) {
        __asm__ volatile("smc #0" : "+r"(x0), "+r"(x1), "+r"(x2) : : "x3", "memory");
    } else {
        __asm__ volatile("hvc #0" : "+r"(x0), "+r"(x1), "+r"(x2) : : "x3", "memory");
    }
    return x0;
}
