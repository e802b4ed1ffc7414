/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "burner.h"

#include <stdbool.h>
#include <stdint.h>

#include "FreeRTOS.h"
#include "duechain.h"
#include "task.h"
#include "tasks.h"
#include "timer.h"

static StaticTask_t task_memory;
static StackType_t stack[configMINIMAL_STACK_SIZE];
static TaskHandle_t task;

static uint64_t burst_ns;
static uint64_t busy_ns;
static volatile bool stopped;

static void release(uint64_t passed) {
    BaseType_t woken = pdFALSE;

    (void)passed;
    vTaskNotifyGiveFromISR(task, &woken);
    portYIELD_FROM_ISR(woken);
}

/* Spins without YIELD or WFE, which would release the core to others. */
static void spin_until(uint64_t end) {
    while (!stopped && timer_now() < end) {
    }
}

static void burner(void *unused) {
    uint64_t busy = ns_to_ticks(busy_ns, timer_frequency());
    uint64_t release_time = timer_origin();
    struct due_chain next = due_chain_start(release_time, burst_ns, timer_frequency());

    (void)unused;
    while (!stopped) {
        spin_until(release_time + busy);
        ulTaskNotifyTake(pdTRUE, portMAX_DELAY);
        /* A burst that was missed as a whole is skipped: its end is in the past. */
        uint64_t now = timer_now();
        while (next.next <= now) {
            release_time = next.next;
            due_chain_step(&next);
        }
    }
    vTaskSuspend(NULL);
}

void burner_create(const struct parameters *parameters) {
    if (parameters->load_percent == 0) {
        return;
    }
    burst_ns = parameters->burst_ns;
    busy_ns = burst_ns * parameters->load_percent / 100;
    timer_configure(TIMER_BURST, burst_ns, release);
    task = xTaskCreateStatic(burner, "burner", configMINIMAL_STACK_SIZE, NULL, PRIORITY_BURNER,
                             stack, &task_memory);
}

void burner_stop(void) {
    stopped = true;
}
