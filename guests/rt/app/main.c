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
#include "echo.h"
#include "fault.h"
#include "fdt.h"
#include "gic.h"
#include "irq.h"
#include "network.h"
#include "periodic.h"
#include "psci.h"
#include "report.h"
#include "smccc.h"
#include "sysreg.h"
#include "task.h"
#include "timer.h"
#include "virtio_net.h"

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
        smccc_set_conduit(SMCCC_SMC);
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

/* Opens the tree at `*address`, or if that is 0, the one that QEMU's ELF loader has left. False: there is none. */
static bool find_tree(struct fdt *tree, uint64_t *address) {
    if (*address != 0) {
        if (!open_tree(tree, *address)) {
            fault_stop("x0 at entry is not 0 and does not point to a device tree",
                       "pass a version 17 tree of at most 2 MiB, 4-byte aligned, in the first GiB of RAM");
        }
        return true;
    }
    if (open_tree(tree, BOARD_RAM_BASE)) {
        *address = BOARD_RAM_BASE;
        return true;
    }
    return false;
}

/* Where the devices are. */
struct devices {
    uint64_t uart;
    bool uart_is_generic;
    uint64_t distributor;
    uint64_t redistributors;
};

/* Replaces what the tree names. */
static void read_devices(const struct fdt *tree, struct devices *devices) {
    struct devices read;

    if (fdt_address(tree, "arm,pl011", 0, &read.uart) == FDT_FOUND) {
        devices->uart = read.uart;
    } else if (fdt_address(tree, "arm,sbsa-uart", 0, &read.uart) == FDT_FOUND) {
        devices->uart = read.uart;
        devices->uart_is_generic = true;
    }
    if (fdt_address(tree, "arm,gic-v3", 0, &read.distributor) == FDT_FOUND &&
        fdt_address(tree, "arm,gic-v3", 1, &read.redistributors) == FDT_FOUND) {
        devices->distributor = read.distributor;
        devices->redistributors = read.redistributors;
    }
}

/* Reads the parameters of the tree; the defaults apply to what it does not say. */
static void read_tree(const struct fdt *tree) {
    const char *bootargs = "";
    size_t length = 0;

    read_conduit(tree);
    if (fdt_string(tree, "chosen", "bootargs", &bootargs, &length) == FDT_MALFORMED) {
        fault_stop("the device tree is malformed", "check it with dtc");
    }
    read_parameters(bootargs, length);
}

/* Echoes what comes over the first memory link that the tree names. */
static void start_echo(const struct fdt *tree) {
    static const char compatible[] = "spumone,link-memory";
    struct echo_link link;

    if (tree == NULL || fdt_address(tree, compatible, 0, &link.registers) != FDT_FOUND ||
        fdt_address(tree, compatible, 1, &link.memory) != FDT_FOUND ||
        fdt_spi(tree, compatible, &link.interrupt) != FDT_FOUND) {
        fault_stop("link=echo, and the device tree has no memory link",
                   "give this guest a [[link]] of kind memory, or leave link=echo out");
    }
    echo_create(&link);
}

/* Starts the network on the first virtio network card that the tree names. */
static void start_network(const struct fdt *tree) {
    struct network_card card;
    uint32_t node = 0;

    while (tree != NULL && fdt_device(tree, "virtio,mmio", node, &card.registers, &card.interrupt) == FDT_FOUND) {
        if (virtio_net_is_card(card.registers)) {
            network_create(&card, parameters.network, parameters.network_prefix);
            return;
        }
        node++;
    }
    fault_stop("network=, and the device tree has no network card of virtio 1",
               "give this guest a [[link]] of kind network, or leave network= out");
}

void rt_main(uint64_t tree_address, uint64_t entry_level) {
    struct devices devices = {.uart = BOARD_UART_BASE,
                              .distributor = BOARD_GICD_BASE,
                              .redistributors = BOARD_GICR_BASE};
    struct fdt tree;
    bool given = tree_address != 0;
    bool has_tree = find_tree(&tree, &tree_address);

    if (has_tree) {
        read_devices(&tree, &devices);
    }
    console_init(devices.uart, devices.uart_is_generic);
    if (has_tree) {
        read_tree(&tree);
    } else {
        read_parameters("", 0);
    }

    timer_init();
    gic_init(devices.distributor, devices.redistributors);
    const char *tree_origin = given ? "at" : has_tree ? "found at" : "absent, so defaults";
    report_banner(&parameters, entry_level, tree_origin, tree_address);

    irq_init();
    periodic_create(&parameters);
    burner_create(&parameters);
    report_create(&parameters);
    if (parameters.echo) {
        start_echo(has_tree ? &tree : NULL);
    }
    if (parameters.network != 0) {
        start_network(has_tree ? &tree : NULL);
    }
    vTaskStartScheduler();
    fault_stop("FreeRTOS did not start", "this is a defect of the guest");
}

void vApplicationIdleHook(void);

/* Waits for an interrupt; a hypervisor traps the WFI and gives the core to another guest. */
void vApplicationIdleHook(void) {
    dsb();
    wfi();
}
