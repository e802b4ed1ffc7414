/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "periodic.h"

#include <stdint.h>

#include "FreeRTOS.h"
#include "burner.h"
#include "console.h"
#include "mark.h"
#include "report.h"
#include "sysreg.h"
#include "task.h"
#include "tasks.h"
#include "timer.h"
#include "watchdog.h"

/*
 * How many releases the task may be behind. If the guest was kept from running, each due time that
 * passed still gets its job, one after the other; beyond this many the oldest are given up and
 * counted as lost.
 */
#define BACKLOG_MAX UINT64_C(1000000)

/* How often a measurement without an end reports. */
#define REPORT_EVERY_NS (10 * NS_PER_SECOND)

static StaticTask_t task_memory;
static StackType_t stack[configMINIMAL_STACK_SIZE];
static TaskHandle_t task;

static uint64_t period_ns;
static uint64_t warmup;
static bool has_watchdog;
static uint64_t periods_until_hang; /* 0: it does not hang */
static uint64_t periods_wanted; /* with the warm-up; UINT64_MAX: for ever */

/* Due times for which the timer interrupt has released a job. */
static volatile uint64_t released;

/* Written by the periodic task only; `changes` tells a reader of lower priority that it was. */
static struct accounting accounting;
static struct histogram histogram;
static volatile uint64_t changes;

static void release(uint64_t passed) {
    BaseType_t woken = pdFALSE;

    released += passed;
    vTaskNotifyGiveFromISR(task, &woken);
    portYIELD_FROM_ISR(woken);
}

/* How many due times have had their job or were given up, in the warm-up or after it. */
static uint64_t periods_done(const struct accounting *accounts) {
    return warmup - accounts->warmup + accounts->jobs + accounts->lost;
}

/* How many jobs are released and neither run nor given up. */
static uint64_t backlog(void) {
    uint64_t due = released < periods_wanted ? released : periods_wanted;

    return due - periods_done(&accounting);
}

static void job(void) {
    uint64_t now = timer_now(); /* first of all, since this time is measured */
    uint64_t longest = accounting.latency_max;

    if (periods_done(&accounting) == 0) {
        MARK(MARK_FIRST, 0);
    }
    while (backlog() > BACKLOG_MAX) {
        accounting_give_up(&accounting);
    }
    accounting_job(&accounting, &histogram, now);
    changes++;
    /* For runs that end before this guest reports. */
    if (accounting.latency_max > longest) {
        MARK(MARK_WAIT, ticks_to_ns(accounting.latency_max, timer_frequency()));
    }
}

/* Hangs as a driver with a defect does. The watchdog was petted at the time that is printed. */
static __attribute__((noreturn)) void hang(void) {
    mask_interrupts();
    if (has_watchdog) {
        watchdog_pet();
    }
    console_printf("watchdog-petted us=%lu\n", ticks_to_ns(timer_now(), timer_frequency()) / 1000);
    for (;;) {
    }
}

static void periodic(void *unused) {
    uint64_t report_every = REPORT_EVERY_NS / period_ns;
    uint64_t next_report = report_every;

    (void)unused;
    accounting = accounting_start(due_chain_start(timer_origin(), period_ns, timer_frequency()), warmup);
    while (periods_done(&accounting) < periods_wanted) {
        ulTaskNotifyTake(pdTRUE, portMAX_DELAY);
        while (backlog() > 0) {
            job();
        }
        if (has_watchdog) {
            watchdog_pet();
        }
        if (periods_until_hang != 0 && periods_done(&accounting) >= periods_until_hang) {
            hang();
        }
        if (periods_wanted == UINT64_MAX && periods_done(&accounting) >= next_report) {
            next_report += report_every;
            report_request(REPORT_INTERIM);
        }
    }
    if (has_watchdog) {
        watchdog_stop();
    }
    timer_stop(TIMER_RELEASE);
    timer_stop(TIMER_BURST);
    burner_stop();
    report_request(REPORT_FINAL);
    vTaskSuspend(NULL);
}

void periodic_create(const struct parameters *parameters) {
    period_ns = parameters->period_ns;
    warmup = parameters->warmup;
    periods_wanted = parameters->periods != 0 ? warmup + parameters->periods : UINT64_MAX;
    has_watchdog = parameters->watchdog_s != 0;
    if (has_watchdog) {
        watchdog_start(parameters->watchdog_s);
    }
    if (parameters->hang_ns != 0) {
        /* At least one. */
        periods_until_hang = (parameters->hang_ns + period_ns - 1) / period_ns;
    }
    timer_configure(TIMER_RELEASE, period_ns, release);
    task = xTaskCreateStatic(periodic, "periodic", configMINIMAL_STACK_SIZE, NULL,
                             PRIORITY_PERIODIC, stack, &task_memory);
}

struct accounting periodic_snapshot(void) {
    struct accounting copy;
    uint64_t before;
    uint64_t now;

    /* The copy takes far less than a period, so this repeats once at most, unless the guest was
     * stopped in between. */
    do {
        before = changes;
        __asm__ volatile("" : : : "memory");
        copy = accounting;
        now = timer_now();
        __asm__ volatile("" : : : "memory");
    } while (changes != before);

    uint64_t missing = accounting_missing(&copy, now);
    uint64_t open = periods_wanted - periods_done(&copy);
    copy.lost += missing < open ? missing : open;
    return copy;
}

const struct histogram *periodic_histogram(void) {
    return &histogram;
}
