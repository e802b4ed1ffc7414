/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * How FreeRTOS is built here. Its sources are unchanged: it is configured by this file, by the
 * hooks (irq.c, main.c) and by -DGUEST on the command line, which makes the AArch64 SRE port run
 * at EL1 and yield by SVC.
 */
#ifndef FREERTOS_CONFIG_H
#define FREERTOS_CONFIG_H

#include <stdint.h>

/* Scheduling: plain fixed priorities with preemption. */
#define configUSE_PREEMPTION 1
#define configUSE_TIME_SLICING 0
#define configMAX_PRIORITIES 5
#define configIDLE_SHOULD_YIELD 0
#define configUSE_IDLE_HOOK 1
#define configUSE_TICK_HOOK 0
#define configTICK_RATE_HZ 1000
#define configTICK_TYPE_WIDTH_IN_BITS TICK_TYPE_WIDTH_64_BITS
#define configUSE_TASK_NOTIFICATIONS 1

/* Memory: static only, so no allocation can fail. A StackType_t is 8 bytes. */
#define configSUPPORT_STATIC_ALLOCATION 1
#define configSUPPORT_DYNAMIC_ALLOCATION 0
#define configKERNEL_PROVIDED_STATIC_MEMORY 1
#define configMINIMAL_STACK_SIZE 512
#define configMAX_TASK_NAME_LEN 12
#define configCHECK_FOR_STACK_OVERFLOW 1

/* Not used. */
#define configUSE_MUTEXES 0
#define configUSE_TIMERS 0
#define configUSE_CO_ROUTINES 0
#define configUSE_MALLOC_FAILED_HOOK 0
#define INCLUDE_vTaskDelay 0
#define INCLUDE_vTaskSuspend 1 /* portMAX_DELAY then means: without a limit */

/* No code here uses the floating-point registers, so no task carries them. */
#define configUSE_TASK_FPU_SUPPORT 1

/*
 * The interrupt priorities. 32 levels (5 bits) are what the GIC of QEMU and its virtual CPU
 * interface have. The port wants a level above 16 as the highest that may call FreeRTOS; it is
 * what the priority mask is set to inside FreeRTOS's critical sections.
 */
#define configUNIQUE_INTERRUPT_PRIORITIES 32
#define configMAX_API_CALL_INTERRUPT_PRIORITY 18

/* The tick is one of the chains of the one timer. The interrupt line is down before it is called. */
void rt_start_timer(void);
#define configSETUP_TICK_INTERRUPT() rt_start_timer()
#define configCLEAR_TICK_INTERRUPT()

__attribute__((noreturn)) void fault_assert(const char *file, uint64_t line);
#define configASSERT(condition)              \
    do {                                     \
        if (!(condition)) {                  \
            fault_assert(__FILE__, __LINE__); \
        }                                    \
    } while (0)

#endif
