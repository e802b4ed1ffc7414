/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The watchdog by calls (`arm,smc-wdt`) that a hypervisor may give its guest; docs/guests.md lists the calls. */
#ifndef WATCHDOG_H
#define WATCHDOG_H

#include <stdint.h>

/* Turns it on with this timeout. Stops the guest if there is none, or if it does not allow this timeout. */
void watchdog_start(uint32_t seconds);

/* Turns it off. */
void watchdog_stop(void);

/* The timeout begins anew. */
void watchdog_pet(void);

#endif
