/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The control domain (dom0) of the measured Xen system. Domains that Xen makes from the device tree get the
 * default weight and float over all cores. Only the control domain can change that, by the hypercalls that
 * `xl sched-credit2 --weight` and `xl vcpu-pin` make. So this program makes them, says how much memory is free, and sleeps
 * for ever: a whole Linux for them would take memory and cores from what is measured.
 *
 * It must not turn itself off, since Xen turns the machine off with its control domain. And it must not sleep by WFI, which
 * keeps a core if Xen lets WFI execute natively (`vwfi=native`).
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <xen/xen.h>
#include <xen/sched.h>
/* In this order: the later ones need the earlier ones. */
#include <xen/domctl.h>
#include <xen/sysctl.h>

#define REAL_TIME 1 /* domains, in the order of the device tree */
#define LINUX 2
#define CORES 4

#define KIB_PER_PAGE 4

#define WEIGHT_MAX 65535 /* of credit and credit2 alike; the default is 256 */

void setup(void);

static long hypercall(unsigned long number, unsigned long a, unsigned long b, unsigned long c) {
    register unsigned long x0 __asm__("x0") = a;
    register unsigned long x1 __asm__("x1") = b;
    register unsigned long x2 __asm__("x2") = c;
    register unsigned long x16 __asm__("x16") = number;

    __asm__ volatile("hvc %4" : "+r"(x0), "+r"(x1), "+r"(x2), "+r"(x16) : "i"(XEN_HYPERCALL_TAG) : "memory");
    return (long)x0;
}

static void say(const char *text) {
    size_t length = 0;

    while (text[length] != '\0') {
        length++;
    }
    hypercall(__HYPERVISOR_console_io, CONSOLEIO_write, length, (unsigned long)text);
}

/* Xen reads through the caches what was written past them, with the MMU off, so they must not hold any of it. */
static void publish(const void *start, size_t size) {
    for (const char *at = start; at < (const char *)start + size; at++) {
        __asm__ volatile("dc civac, %0" : : "r"(at) : "memory");
    }
    __asm__ volatile("dsb sy" : : : "memory");
}

static long control(struct xen_domctl *call) {
    call->interface_version = XEN_DOMCTL_INTERFACE_VERSION;
    publish(call, sizeof *call);
    return hypercall(__HYPERVISOR_domctl, (unsigned long)call, 0, 0);
}

static long set_weight_of_credit2(domid_t domain, uint16_t weight) {
    struct xen_domctl call = {.cmd = XEN_DOMCTL_scheduler_op, .domain = domain};

    call.u.scheduler_op.sched_id = XEN_SCHEDULER_CREDIT2;
    call.u.scheduler_op.cmd = XEN_DOMCTL_SCHEDOP_putinfo;
    call.u.scheduler_op.u.credit2.weight = weight;
    return control(&call);
}

static long set_weight_of_credit(domid_t domain, uint16_t weight) {
    struct xen_domctl call = {.cmd = XEN_DOMCTL_scheduler_op, .domain = domain};

    call.u.scheduler_op.sched_id = XEN_SCHEDULER_CREDIT;
    call.u.scheduler_op.cmd = XEN_DOMCTL_SCHEDOP_putinfo;
    call.u.scheduler_op.u.credit.weight = weight;
    return control(&call);
}

static long pin(domid_t domain, uint32_t vcpu, uint32_t core) {
    uint8_t cores = (uint8_t)(1u << core);
    struct xen_domctl call = {.cmd = XEN_DOMCTL_setvcpuaffinity, .domain = domain};

    call.u.vcpuaffinity.vcpu = vcpu;
    call.u.vcpuaffinity.flags = XEN_VCPUAFFINITY_HARD;
    set_xen_guest_handle(call.u.vcpuaffinity.cpumap_hard.bitmap, &cores);
    call.u.vcpuaffinity.cpumap_hard.nr_bits = 8 * sizeof cores;
    publish(&cores, sizeof cores);
    return control(&call);
}

/* The number of a domain's vCPUs, or 0. */
static uint32_t vcpus_of(domid_t domain) {
    struct xen_domctl call = {.cmd = XEN_DOMCTL_getdomaininfo, .domain = domain};

    if (control(&call) != 0) {
        return 0;
    }
    publish(&call, sizeof call); /* Xen has written it through the caches. */
    return call.u.getdomaininfo.max_vcpu_id + 1;
}

/* Prints how much memory neither Xen nor a domain has: the line is for bench/src/console.rs. */
static void say_free_memory(void) {
    struct xen_sysctl call = {.cmd = XEN_SYSCTL_physinfo, .interface_version = XEN_SYSCTL_INTERFACE_VERSION};
    char line[] = "system-result free_kib=0000000000\n";
    char *digit = line + sizeof line - sizeof "\n" - 1;

    publish(&call, sizeof call);
    if (hypercall(__HYPERVISOR_sysctl, (unsigned long)&call, 0, 0) != 0) {
        say("xen-error: Xen does not say how much memory is free: is it the version of guests/xen/build.sh?\n");
        return;
    }
    publish(&call, sizeof call); /* what Xen has written must leave the caches, too */
    for (uint64_t kib = call.u.physinfo.free_pages * KIB_PER_PAGE; kib > 0; kib /= 10) {
        *digit-- = (char)('0' + kib % 10);
    }
    publish(line, sizeof line);
    say(line);
}

void setup(void) {
    /* Xen has one of the two schedulers, and refuses a call that names the other one. */
    long is_credit = set_weight_of_credit2(REAL_TIME, WEIGHT_MAX);
    long failed = is_credit ? set_weight_of_credit(REAL_TIME, WEIGHT_MAX) : 0;

    /*
     * The real-time domain is on the last core, since core 0 handles the interrupts of Xen's console. It shares that core with
     * Linux's last CPU, unless Linux has a CPU less. With credit, Linux must float if it shares: credit counts weights over all
     * cores, so a CPU of Linux that has to stay on this one takes half of it.
     */
    uint32_t vcpus = vcpus_of(LINUX);
    bool is_shared = vcpus == CORES;

    failed |= vcpus == 0;
    failed |= pin(REAL_TIME, 0, CORES - 1);
    for (uint32_t vcpu = 0; vcpu < vcpus && !(is_shared && is_credit); vcpu++) {
        failed |= pin(LINUX, vcpu, vcpu);
    }
    say(failed == 0 ? "xen-setup: weights and affinities are set\n"
                    : "xen-error: Xen refused a weight or an affinity: is it the version of guests/xen/build.sh?\n");
    say_free_memory();
    for (;;) {
        hypercall(__HYPERVISOR_sched_op, SCHEDOP_block, 0, 0);
    }
}
