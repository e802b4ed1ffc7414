/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Pets the watchdog that is open as file 3 for the last time, and has the kernel panic. Prints when it did so, in microseconds of the
 * system counter.
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <termios.h>
#include <unistd.h>

#define WATCHDOG 3
#define US_PER_S 1000000u

static _Noreturn void die(const char *what) {
    fprintf(stderr, "lastpet: %s\n", what);
    exit(1);
}

static uint64_t counter_us(void) {
    uint64_t ticks;
    uint64_t frequency_hz;

    __asm__ volatile("isb\n\tmrs %0, cntvct_el0\n\tmrs %1, cntfrq_el0" : "=r"(ticks), "=r"(frequency_hz) : : "memory");
    return ticks / frequency_hz * US_PER_S + ticks % frequency_hz * US_PER_S / frequency_hz;
}

int main(void) {
    int trigger = open("/proc/sysrq-trigger", O_WRONLY);

    if (trigger < 0) {
        die("cannot open /proc/sysrq-trigger");
    }
    if (write(WATCHDOG, ".", 1) != 1) {
        die("file 3 is not a watchdog");
    }
    printf("watchdog-petted us=%ju\n", (uintmax_t)counter_us());
    fflush(stdout);
    /* What the console has not printed when the kernel panics is lost. */
    tcdrain(STDOUT_FILENO);
    if (write(trigger, "c", 1) != 1) {
        die("cannot write /proc/sysrq-trigger");
    }
    die("the kernel did not panic");
}
