/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "watchdog.h"

#include "fault.h"
#include "smccc.h"

#define WATCHDOG UINT64_C(0x82003D06)

/* What a call is to do. */
#define SET_TIMEOUT 1
#define TURN 2
#define PET 3

#define OFF 0
#define ON 1

/* The result of a call has 32 bits. */
static uint32_t call(uint64_t what, uint64_t argument) {
    return (uint32_t)smccc_call(WATCHDOG, what, argument);
}

void watchdog_start(uint32_t seconds) {
    if (call(SET_TIMEOUT, seconds) != 0 || call(TURN, ON) != 0) {
        fault_stop("watchdog=, and the machine has no watchdog by calls with such a timeout",
                   "give this guest a `watchdog` that is no shorter, or leave watchdog= out");
    }
}

void watchdog_stop(void) {
    call(TURN, OFF);
}

void watchdog_pet(void) {
    call(PET, 0);
}
