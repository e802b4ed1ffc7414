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

/* Words that are changed between two looks at the clock. */
#define WORDS_AT_ONCE 64

/* Behind the stacks, where nothing clears it: pages that are not used are never touched. */
__attribute__((section(".table"))) static volatile uint64_t table[TABLE_MAX / sizeof(uint64_t)];
static uint64_t table_words;
static volatile uint64_t walked;
static uint64_t stopped_at;

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

/* The same, and changes the words of the table one after the other. */
static void walk_until(uint64_t end) {
    uint64_t at = walked % table_words;

    while (!stopped && timer_now() < end) {
        for (uint64_t word = at; word < at + WORDS_AT_ONCE; word++) {
            table[word]++;
        }
        at += WORDS_AT_ONCE;
        at = at == table_words ? 0 : at;
        walked += WORDS_AT_ONCE;
    }
}

static void burner(void *unused) {
    uint64_t busy = ns_to_ticks(busy_ns, timer_frequency());
    uint64_t release_time = timer_origin();
    struct due_chain next = due_chain_start(release_time, burst_ns, timer_frequency());

    (void)unused;
    while (!stopped) {
        if (table_words == 0) {
            spin_until(release_time + busy);
        } else {
            walk_until(release_time + busy);
        }
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
    table_words = parameters->table / sizeof(uint64_t);
    burst_ns = parameters->burst_ns;
    busy_ns = burst_ns * parameters->load_percent / 100;
    timer_configure(TIMER_BURST, burst_ns, release);
    task = xTaskCreateStatic(burner, "burner", configMINIMAL_STACK_SIZE, NULL, PRIORITY_BURNER,
                             stack, &task_memory);
}

uint64_t burner_walked(void) {
    return walked;
}

uint64_t burner_ticks(void) {
    return stopped ? stopped_at - timer_origin() : timer_now() - timer_origin();
}

void burner_stop(void) {
    stopped_at = timer_now();
    stopped = true;
}
