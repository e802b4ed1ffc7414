/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What FreeRTOS's port asks of the platform around interrupts: the dispatcher it calls between
 * acknowledge and end of interrupt, the start of the tick, and the tick itself.
 */
#include "irq.h"

#include <stdbool.h>

#include "FreeRTOS.h"
#include "board.h"
#include "console.h"
#include "duechain.h"
#include "fault.h"
#include "gic.h"
#include "psci.h"
#include "task.h"
#include "timer.h"

#define INTID_MASK 0xFFFFFFu        /* ICC_IAR1_EL1.INTID, IHI 0069 12.2.14 */
#define INTID_SPECIAL_FIRST 1020u   /* 1020..1023: nothing to handle */

static struct {
    uint32_t intid;
    void (*handler)(void);
} spis[IRQ_SPIS];
static uint32_t spis_enabled;

void irq_enable_spi(uint32_t intid, void (*handler)(void)) {
    configASSERT(spis_enabled < IRQ_SPIS);
    spis[spis_enabled].intid = intid;
    spis[spis_enabled].handler = handler;
    spis_enabled++;
    /* As urgent as the timer, so neither interrupts the other. */
    gic_enable_spi(intid, portLOWEST_USABLE_INTERRUPT_PRIORITY << portPRIORITY_SHIFT);
}

/* Calls the handler of this SPI. False: it was not enabled. */
static bool handle_spi(uint32_t intid) {
    for (uint32_t i = 0; i < spis_enabled; i++) {
        if (spis[i].intid == intid) {
            spis[i].handler();
            return true;
        }
    }
    return false;
}

/* Called by the port; the name is its own. */
void vApplicationIRQHandler(uint32_t acknowledged);

void vApplicationIRQHandler(uint32_t acknowledged) {
    uint32_t intid = acknowledged & INTID_MASK;

    if (intid == BOARD_VTIMER_INTID) {
        timer_interrupt();
    } else if (!handle_spi(intid) && (intid < INTID_SPECIAL_FIRST || intid > 1023u)) {
        console_printf("\nrt-fault: interrupt %lu came, which is not enabled\n", (uint64_t)intid);
        psci_system_off();
    }
}

/*
 * A late interrupt stands for several ticks: each is counted, so that FreeRTOS's time stays right.
 * The port's handler demands masked interrupts and leaves them unmasked.
 */
static void tick(uint64_t passed) {
    for (uint64_t i = 0; i < passed; i++) {
        portDISABLE_INTERRUPTS();
        FreeRTOS_Tick_Handler();
    }
}

void irq_init(void) {
    timer_configure(TIMER_TICK, NS_PER_SECOND / configTICK_RATE_HZ, tick);
}

void rt_start_timer(void) {
    timer_start();
}

void vApplicationStackOverflowHook(TaskHandle_t task, char *name);

void vApplicationStackOverflowHook(TaskHandle_t task, char *name) {
    (void)task;
    fault_stop(name, "this task's stack is too small");
}
