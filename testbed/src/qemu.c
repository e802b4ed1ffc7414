/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "qemu.h"

#include "util.h"

#include <dlfcn.h>
#include <link.h>

struct qemu qemu;

static void *find(const char *name)
{
    void *symbol = dlsym(RTLD_DEFAULT, name);

    if (!symbol)
        fail("this QEMU does not export %s; use QEMU 9.1 to 10.0 as Debian packages it", name);
    return symbol;
}

void qemu_find(void)
{
    qemu.get_cpu = find("qemu_get_cpu");
    qemu.cpu_exit = find("cpu_exit");
    qemu.cpu_loop_exit_restore = find("cpu_loop_exit_restore");
    qemu.cpu_thread_is_idle = find("cpu_thread_is_idle");
    qemu.async_run_on_cpu = find("async_run_on_cpu");
    qemu.bql_locked = find("bql_locked");
    qemu.bql_unlock = find("bql_unlock");
    qemu.bql_lock = find("bql_lock_impl");
    qemu.clock_deadline_ns_all = find("qemu_clock_deadline_ns_all");
    qemu.clock_run_timers = find("qemu_clock_run_timers");
    qemu.system_shutdown_request = find("qemu_system_shutdown_request");
    find("current_cpu");
}

void *const volatile *qemu_current_cpu(void)
{
    return find("current_cpu");
}

/* The range of addresses that the executable's segments take. */
struct range {
    uintptr_t low, high;
};

/* dl_iterate_phdr reports the executable first; a return value other than 0 ends the walk. */
static int first_object(struct dl_phdr_info *object, size_t size, void *to)
{
    struct range *range = to;

    (void)size;
    range->low = UINTPTR_MAX;
    for (int i = 0; i < object->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &object->dlpi_phdr[i];
        uintptr_t start = object->dlpi_addr + segment->p_vaddr;

        if (segment->p_type != PT_LOAD)
            continue;
        if (start < range->low)
            range->low = start;
        if (start + segment->p_memsz > range->high)
            range->high = start + segment->p_memsz;
    }
    return 1;
}

bool qemu_contains(const void *address)
{
    static struct range range;

    if (unlikely(!range.high))
        dl_iterate_phdr(first_object, &range);
    return (uintptr_t)address >= range.low && (uintptr_t)address < range.high;
}
