/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * FreeRTOS priorities of the tasks, highest last. Idle is 0: it waits for interrupts (main.c), so
 * that a hypervisor can give the core to another guest.
 */
#ifndef TASKS_H
#define TASKS_H

#define PRIORITY_REPORT 1   /* prints, when nothing else wants the core */
#define PRIORITY_ECHO 1
#define PRIORITY_NETWORK 1
#define PRIORITY_BURNER 2
#define PRIORITY_PERIODIC 4 /* the highest there is, configMAX_PRIORITIES - 1 */

#endif
