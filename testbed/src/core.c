/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "core.h"

#include "clock.h"

int64_t core_time_before(const struct core *core, int64_t instructions)
{
    return clock_round_start() +
           clock_ns((int64_t)core->executed - core->quantum_start - instructions);
}
