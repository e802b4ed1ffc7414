/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "timer.h"

#include <stddef.h>

#include "FreeRTOS.h"
#include "board.h"
#include "duechain.h"
#include "fault.h"
#include "gic.h"
#include "task.h"

/* CNTV_CTL_EL0: the timer on, its interrupt not masked. */
#define CNTV_CTL_ENABLE 1u

/* Below, a tick is too coarse for the shortest period; above, 64-bit conversions would overflow. */
#define FREQUENCY_MIN_HZ UINT64_C(1000000)
#define FREQUENCY_MAX_HZ UINT64_C(10000000000)

/* The port demands that the tick has the lowest priority that can still interrupt a task. */
#define TIMER_PRIORITY (portLOWEST_USABLE_INTERRUPT_PRIORITY << portPRIORITY_SHIFT)

struct chain {
    struct due_chain due;
    uint64_t period_ns;
    timer_handler handler; /* NULL: off */
};

static struct chain chains[TIMER_CHAINS];
static uint64_t frequency_hz;
static uint64_t origin;
static volatile uint64_t interrupts;

/*
 * Also takes the interrupt line down, unless the earliest due time has passed already. The control register
 * is written each time, since Xen masks the timer when it has taken its interrupt (vtimer_interrupt in
 * xen/arch/arm/vtimer.c): it passes the interrupt on as one of its own.
 */
static void program_earliest(void) {
    uint64_t earliest = UINT64_MAX;

    for (size_t i = 0; i < TIMER_CHAINS; i++) {
        if (chains[i].handler != NULL && chains[i].due.next < earliest) {
            earliest = chains[i].due.next;
        }
    }
    SYSREG_WRITE("cntv_cval_el0", earliest);
    SYSREG_WRITE("cntv_ctl_el0", CNTV_CTL_ENABLE);
    isb();
}

void timer_init(void) {
    frequency_hz = SYSREG_READ("cntfrq_el0");
    if (frequency_hz < FREQUENCY_MIN_HZ || frequency_hz > FREQUENCY_MAX_HZ) {
        fault_stop("CNTFRQ_EL0 is not between 1 MHz and 10 GHz",
                   "firmware must set it to the frequency of the system counter");
    }
}

uint64_t timer_frequency(void) {
    return frequency_hz;
}

void timer_configure(enum timer_chain chain, uint64_t period_ns, timer_handler handler) {
    chains[chain].period_ns = period_ns;
    chains[chain].handler = handler;
}

void timer_start(void) {
    origin = timer_now();
    for (size_t i = 0; i < TIMER_CHAINS; i++) {
        if (chains[i].handler != NULL) {
            chains[i].due = due_chain_start(origin, chains[i].period_ns, frequency_hz);
        }
    }
    program_earliest();
    gic_enable_ppi(BOARD_VTIMER_INTID, TIMER_PRIORITY);
}

uint64_t timer_origin(void) {
    return origin;
}

void timer_stop(enum timer_chain chain) {
    taskENTER_CRITICAL();
    chains[chain].handler = NULL;
    program_earliest();
    taskEXIT_CRITICAL();
}

void timer_interrupt(void) {
    uint64_t passed[TIMER_CHAINS];
    uint64_t now = timer_now();

    interrupts++;
    for (size_t i = 0; i < TIMER_CHAINS; i++) {
        passed[i] = chains[i].handler != NULL ? due_chain_advance(&chains[i].due, now) : 0;
    }
    program_earliest();
    for (size_t i = 0; i < TIMER_CHAINS; i++) {
        if (passed[i] != 0) {
            chains[i].handler(passed[i]);
        }
    }
}

uint64_t timer_interrupts(void) {
    return interrupts;
}
