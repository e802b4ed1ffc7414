/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What happens between rounds: the guest's timers, disk I/O and the main loop, in a fixed order, at
 * a virtual time that does not advance meanwhile.
 */
#ifndef BOUNDARY_H
#define BOUNDARY_H

/* Has the scheduler ask here for events. Call once, before the machine runs. */
void boundary_set_up(void);

/* The core that executes made work for the main loop, or set a timer. */
void boundary_nudge(void);

/*
 * All cores sleep: advances time to the next event, and handles it. Called in place of the wait on
 * QEMU's condition; may return without the condition being true, as such waits may.
 */
void boundary_sleep(void);

#endif
