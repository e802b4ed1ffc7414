/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The plugin's entry points: sets everything up; QEMU calls it for new cores, translations and the end.
 *
 * The same file must be preloaded (LD_PRELOAD), so that its replacements of C library functions
 * take effect; `run` does both.
 */
#include "boundary.h"
#include "clock.h"
#include "handover.h"
#include "options.h"
#include "qemu-api.h"
#include "qemu.h"
#include "real.h"
#include "registers.h"
#include "report.h"
#include "schedule.h"
#include "translate.h"
#include "workers.h"

#include <stdio.h>
#include <string.h>

#define NS_PER_US 1000

EXPORTED int qemu_plugin_version = QEMU_API_VERSION;

static void on_core(qemu_plugin_id_t id, unsigned index)
{
    (void)id;
    if (thread_kind != THREAD_CORES) {
        if (index)
            fail("each core has a thread of its own; use -accel tcg,thread=single");
        handover_join();
    }
    registers_find();
    schedule_add_core((int)index);
}

static void on_exit(qemu_plugin_id_t id, void *data)
{
    (void)id;
    (void)data;
    report_write();
}

EXPORTED int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t *info, int count,
                                 char **arguments)
{
    if (!engaged) {
        fprintf(stderr, "spumone-clock: must be preloaded as well; start QEMU with testbed/run\n");
        return -1;
    }
    if (!info->system_emulation || strcmp(info->target_name, "aarch64")) {
        fprintf(stderr, "spumone-clock: works with qemu-system-aarch64 only\n");
        return -1;
    }
    if (!options_read(count, arguments) || !report_open())
        return -1;
    qemu_find();
    clock_set_up(options.instructions_per_us, schedule_progress);
    schedule_set_up(options.quantum, options.seed);
    boundary_set_up();
    if (options.end_us)
        schedule_set_end((int64_t)options.end_us * NS_PER_US);
    workers_set_latency((int64_t)options.disk_us * NS_PER_US);
    handover_start();
    qemu_plugin_register_vcpu_init_cb(id, on_core);
    qemu_plugin_register_vcpu_tb_trans_cb(id, translate_block);
    qemu_plugin_register_atexit_cb(id, on_exit, NULL);
    return 0;
}
