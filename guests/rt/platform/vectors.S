/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The EL1 vector table (Arm ARM D1.3). The FreeRTOS port expects the application to bring it,
 * under this name. Tasks run at EL1t, interrupt handlers at EL1h, so a second interrupt inside a
 * handler arrives through the EL1h vectors.
 *
 * A synchronous exception that is not the port's yield (SVC) is a fault: the port would spin on
 * it silently, so it is detected here and reported (fault.c).
 */
#define ESR_EC_SHIFT 26
#define ESR_EC_SVC64 0x15

    /* \number: the vector's place in the table, for the report. */
    .macro fault number
    .balign 128
    mov     x0, #\number
    b       fault_entry
    .endm

    .section .text.vectors, "ax"
    .balign 2048
    .global _freertos_vector_table
_freertos_vector_table:
    b       task_sync                 /* 0: EL1t, synchronous */
    .balign 128
    b       FreeRTOS_IRQ_Handler      /* 1: EL1t, IRQ */
    fault   2
    fault   3
    fault   4                         /* EL1h, synchronous */
    .balign 128
    b       FreeRTOS_IRQ_Handler      /* 5: EL1h, IRQ */
    fault   6
    fault   7
    fault   8                         /* lower levels: nothing runs there */
    fault   9
    fault   10
    fault   11
    fault   12
    fault   13
    fault   14
    fault   15
    .balign 128

task_sync:
    stp     x0, x1, [sp, #-16]!
    mrs     x0, esr_el1
    lsr     x0, x0, #ESR_EC_SHIFT
    cmp     x0, #ESR_EC_SVC64         /* flags are free: the task's are in SPSR_EL1 */
    ldp     x0, x1, [sp], #16
    b.eq    FreeRTOS_SWI_Handler
    mov     x0, #0

fault_entry:
    mrs     x1, esr_el1
    mrs     x2, elr_el1
    mrs     x3, far_el1
    b       fault_report              /* does not return */
