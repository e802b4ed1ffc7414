/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "echo.h"

#include "FreeRTOS.h"
#include "fault.h"
#include "gic.h"
#include "irq.h"
#include "spumone_link.h"
#include "task.h"
#include "tasks.h"

/* Larger messages are not echoed. */
#define MESSAGE_MAX 4096u

static StaticTask_t task_memory;
static StackType_t stack[configMINIMAL_STACK_SIZE];
static TaskHandle_t task;

static struct spumone_link link;
static uint32_t interrupt;
static uint32_t message[MESSAGE_MAX / sizeof(uint32_t)];

/* How often within a tick the task waits for the peer's signal; after that, it waits for the next tick first. */
#define WAITS_PER_TICK 16u

/*
 * Held back until the task allows it again, so a peer that signals without end causes no more than WAITS_PER_TICK interrupts
 * within a tick, and as many waits of the task. They are what it costs the tasks of higher priority; the rest is time that
 * those leave.
 */
static void signalled(void) {
    BaseType_t woken = pdFALSE;

    gic_mask_spi(interrupt);
    vTaskNotifyGiveFromISR(task, &woken);
    portYIELD_FROM_ISR(woken);
}

/* Waits for the peer's signal. */
static void wait(void) {
    static TickType_t tick;
    static uint32_t waits;

    if (waits == WAITS_PER_TICK && tick == xTaskGetTickCount()) {
        /* Nobody notifies while the interrupt is masked, so this is the end of the tick. */
        ulTaskNotifyTake(pdTRUE, 1);
    }
    if (tick != xTaskGetTickCount()) {
        tick = xTaskGetTickCount();
        waits = 0;
    }
    waits++;
    gic_unmask_spi(interrupt);
    ulTaskNotifyTake(pdTRUE, portMAX_DELAY);
}

/* Sends the message back. False: the peer has begun a new session meanwhile or broken the ring, and the message is lost. */
static bool send_back(uint32_t bytes) {
    /* While there is no room, the peer must read first. */
    for (;;) {
        int sent = spumone_link_send(&link, message, bytes);

        if (sent != SPUMONE_LINK_FULL) {
            return sent == SPUMONE_LINK_DONE;
        }
        spumone_link_arm(&link);
        sent = spumone_link_send(&link, message, bytes);
        if (sent != SPUMONE_LINK_FULL) {
            return sent == SPUMONE_LINK_DONE;
        }
        wait();
    }
}

/* Whether there was a message. */
static bool echo_one(void) {
    int bytes = spumone_link_receive(&link, message, MESSAGE_MAX);

    return bytes == SPUMONE_LINK_LARGE || (bytes >= 0 && send_back((uint32_t)bytes));
}

static void echo(void *unused) {
    (void)unused;
    for (;;) {
        spumone_link_poll(&link);
        while (echo_one()) {
        }
        spumone_link_arm(&link);
        if (!echo_one()) {
            wait();
        }
    }
}

void echo_create(const struct echo_link *where) {
    if (!spumone_link_open(&link, (volatile void *)where->registers, (volatile void *)where->memory)) {
        fault_stop("the memory link is not one to which this guest may write",
                   "remove `read-only` from the [[link]]");
    }
    interrupt = where->interrupt;
    irq_enable_spi(interrupt, signalled);
    task = xTaskCreateStatic(echo, "echo", configMINIMAL_STACK_SIZE, NULL, PRIORITY_ECHO, stack,
                             &task_memory);
}
