/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * One hardware timer for everything.
 *
 * The generic virtual timer (INTID 27) carries three chains of due times: FreeRTOS's tick, the
 * release of the periodic task and that of the burner. Its compare value is always the earliest of
 * the three, so due times that coincide cost one interrupt: with a tick of 1 kHz and a period of
 * 1 ms there are 1000 interrupts a second, not 2000. Under a hypervisor each interrupt may be a
 * switch of virtual machines, and two timers that fire together would make the second one part of
 * the latency that is measured from the first. For the same reason the physical timer is not
 * used: a hypervisor has to trap or emulate it.
 *
 * The compare values are absolute, so a late interrupt moves no later due time.
 */
#ifndef TIMER_H
#define TIMER_H

#include <stdint.h>

#include "sysreg.h"

/* In the order in which the interrupt handles them. */
enum timer_chain { TIMER_TICK, TIMER_RELEASE, TIMER_BURST, TIMER_CHAINS };

/* Called in the interrupt, interrupts masked, with how many due times have passed (at least 1). */
typedef void (*timer_handler)(uint64_t passed);

/* The virtual counter, read after everything before it in the program (DDI 0487, D12.1). */
static inline uint64_t timer_now(void) {
    isb();
    return SYSREG_READ("cntvct_el0");
}

/* Reads the counter's frequency; stops the guest if it is out of range. */
void timer_init(void);

/* Counter ticks per second. */
uint64_t timer_frequency(void);

/* Configures `chain`. Before timer_start; a chain that is not configured is off. */
void timer_configure(enum timer_chain chain, uint64_t period_ns, timer_handler handler);

/* Starts all configured chains at one common origin, now, and enables the interrupt in the GIC. */
void timer_start(void);

/* The counter value at timer_start. */
uint64_t timer_origin(void);

/* Ends a chain. Called by a task. */
void timer_stop(enum timer_chain chain);

/* The interrupt. */
void timer_interrupt(void);

/* How many timer interrupts were taken since timer_start. */
uint64_t timer_interrupts(void);

#endif
