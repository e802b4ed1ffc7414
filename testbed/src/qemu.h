/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * QEMU functions that are not part of the plugin interface.
 *
 * The plugin interface can neither stop a core at the end of its quantum, nor run timers at a
 * chosen virtual time, nor return which core executes (see README.md, "Why not the plugin
 * interface alone"). QEMU's executable exports the functions that can; they are looked up by name.
 * The plugin accesses none of QEMU's structures.
 */
#ifndef QEMU_H
#define QEMU_H

#include <stdbool.h>
#include <stdint.h>

typedef union {
    unsigned long number;
    void *pointer;
} run_on_cpu_data;

#define QEMU_CLOCK_VIRTUAL 1          /* enum QEMUClockType */
#define QEMU_TIMER_ATTR_ALL (-1)
#define SHUTDOWN_CAUSE_HOST_QMP_QUIT 2 /* enum ShutdownCause */

struct qemu {
    void *(*get_cpu)(int index);
    void (*cpu_exit)(void *cpu);
    void (*cpu_loop_exit_restore)(void *cpu, uintptr_t host_address) __attribute__((noreturn));
    bool (*cpu_thread_is_idle)(void *cpu);
    void (*async_run_on_cpu)(void *cpu, void (*work)(void *cpu, run_on_cpu_data), run_on_cpu_data);
    bool (*bql_locked)(void);
    void (*bql_unlock)(void);
    void (*bql_lock)(const char *file, int line);
    int64_t (*clock_deadline_ns_all)(int type, int attributes);
    bool (*clock_run_timers)(int type);
    void (*system_shutdown_request)(int cause);
};

extern struct qemu qemu;

/* Finds the functions; ends the process with a message that names the first one missing. */
void qemu_find(void);

/*
 * The address of QEMU's thread-local pointer to the CPU that executes. It belongs to the calling
 * thread, which must be the one that runs the cores.
 */
void *const volatile *qemu_current_cpu(void);

/* Whether an address lies in QEMU's own executable, not in a library. */
bool qemu_contains(const void *address);

#endif
