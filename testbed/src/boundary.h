/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What happens between rounds: the guest's timers, disk I/O and the main loop, in a fixed order, at
 * a virtual time that stands still meanwhile.
 */
#ifndef BOUNDARY_H
#define BOUNDARY_H

#include <stdbool.h>

/* Whether there is something to do at this time. Cheap: asked once a round. */
bool boundary_is_due(void);

/* Has it done as soon as the core that executes has finished its block. */
void boundary_request(void *cpu);

/*
 * All cores sleep: moves time on to what happens next, and does it. Called in place of the wait on
 * QEMU's condition; may return without the condition being true, as such waits may.
 */
void boundary_sleep(void);

#endif
