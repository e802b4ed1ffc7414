/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What happens between rounds: the guest's timers, disk I/O and the main loop, in a fixed order, at
 * a virtual time that stands still meanwhile.
 */
#ifndef BOUNDARY_H
#define BOUNDARY_H

#include <stdbool.h>
#include <stdint.h>

/* The next moment at which anything happens, as far as it is known now; NEVER if nothing will. */
int64_t boundary_next_event(void);

/*
 * Whether there is something to do at this time, if boundary_next_event() was `event` when the round
 * started. Cheap: asked once a round.
 */
bool boundary_is_due(int64_t at, int64_t event);

/* The core that executes made work for the main loop, or set a timer. */
void boundary_nudge(void);

/* Has it done as soon as the core that executes has finished its block. */
void boundary_request(void *cpu);

/*
 * All cores sleep: moves time on to what happens next, and does it. Called in place of the wait on
 * QEMU's condition; may return without the condition being true, as such waits may.
 */
void boundary_sleep(void);

#endif
