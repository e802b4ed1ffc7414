/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Start-up: find the device tree, read the parameters from it, bring the platform up, create the
 * tasks, start FreeRTOS.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "FreeRTOS.h"
#include "board.h"
#include "bootargs.h"
#include "burner.h"
#include "console.h"
#include "fault.h"
#include "fdt.h"
#include "gic.h"
#include "irq.h"
#include "periodic.h"
#include "psci.h"
#include "report.h"
#include "sysreg.h"
#include "task.h"
#include "timer.h"

/* Called by boot.S. */
__attribute__((noreturn)) void rt_main(uint64_t tree_address, uint64_t entry_level);

static struct parameters parameters;

/* Opens the tree at `address`, which may be any number. */
static bool open_tree(struct fdt *tree, uint64_t address) {
    uint64_t ram_end = (uint64_t)BOARD_RAM_BASE + BOARD_BLOCK_SIZE;

    if (address < BOARD_RAM_BASE || address > ram_end - FDT_HEADER_SIZE || address % 4 != 0) {
        return false;
    }
    uint64_t limit = ram_end - address;
    return fdt_open(tree, (const void *)address, limit < BOARD_FDT_MAX_SIZE ? limit : BOARD_FDT_MAX_SIZE);
}

static void read_conduit(const struct fdt *tree) {
    const char *method;
    size_t length;

    if (fdt_string(tree, "psci", "method", &method, &length) != FDT_FOUND) {
        return;
    }
    if (length == 3 && memcmp(method, "smc", length) == 0) {
        psci_set_conduit(PSCI_SMC);
    }
}

static void read_parameters(const char *bootargs, size_t length) {
    struct bootargs_error error;

    if (!bootargs_parse(bootargs, length, &parameters, &error)) {
        console_printf("\nrt-error: bootargs: \"%.*s\" is not allowed: %s\n", (int)error.word_length,
                       error.word, error.allowed);
        psci_system_off();
    }
}

/* Reads the parameters of the tree; without them, or without a tree, the defaults apply. */
static const char *read_tree(uint64_t *address) {
    struct fdt tree;
    const char *bootargs = "";
    size_t length = 0;
    const char *origin = "at";

    if (*address == 0) {
        *address = BOARD_RAM_BASE; /* where QEMU's ELF loader puts it */
        origin = "found at";
        if (!open_tree(&tree, *address)) {
            *address = 0;
            read_parameters("", 0);
            return "absent, so defaults";
        }
    } else if (!open_tree(&tree, *address)) {
        fault_stop("x0 at entry is not 0 and does not point to a device tree",
                   "pass a version 17 tree of at most 2 MiB, 4-byte aligned, in the first GiB of RAM");
    }
    read_conduit(&tree);
    if (fdt_string(&tree, "chosen", "bootargs", &bootargs, &length) == FDT_MALFORMED) {
        fault_stop("the device tree is malformed", "check it with dtc");
    }
    read_parameters(bootargs, length);
    return origin;
}

void rt_main(uint64_t tree_address, uint64_t entry_level) {
    console_init();
    const char *tree_origin = read_tree(&tree_address);

    timer_init();
    gic_init();
    report_banner(&parameters, entry_level, tree_origin, tree_address);

    irq_init();
    periodic_create(&parameters);
    burner_create(&parameters);
    report_create(&parameters);
    vTaskStartScheduler();
    fault_stop("FreeRTOS did not start", "this is a defect of the guest");
}

void vApplicationIdleHook(void);

/* Waits for an interrupt; a hypervisor traps the WFI and gives the core to another guest. */
void vApplicationIdleHook(void) {
    dsb();
    wfi();
}
