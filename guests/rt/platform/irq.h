/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The interrupts that FreeRTOS needs (irq.c). */
#ifndef IRQ_H
#define IRQ_H

#include <stdint.h>

/* Gives FreeRTOS its tick (configTICK_RATE_HZ). Before the scheduler starts. */
void irq_init(void);

/* How many SPIs there may be. */
#define IRQ_SPIS 2u

/* Has `handler` called for this SPI, with interrupts masked. */
void irq_enable_spi(uint32_t intid, void (*handler)(void));

#endif
