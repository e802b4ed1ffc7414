/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Faults that end this guest: they print the reason and switch the machine off. */
#ifndef FAULT_H
#define FAULT_H

#include <stdint.h>

/* An unexpected exception. Called by vectors.S with the vector's index and EL1's syndrome. */
__attribute__((noreturn)) void fault_report(uint64_t vector, uint64_t esr, uint64_t elr, uint64_t far);

/* A condition of FreeRTOS or of this program (configASSERT) does not hold. */
__attribute__((noreturn)) void fault_assert(const char *file, uint64_t line);

/* `what` went wrong outside this program; `cure` is what its user can do. */
__attribute__((noreturn)) void fault_stop(const char *what, const char *cure);

#endif
