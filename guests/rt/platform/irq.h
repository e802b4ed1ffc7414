/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The interrupts that FreeRTOS needs (irq.c). */
#ifndef IRQ_H
#define IRQ_H

/* Gives FreeRTOS its tick (configTICK_RATE_HZ). Before the scheduler starts. */
void irq_init(void);

#endif
