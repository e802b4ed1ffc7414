/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Common code of the test guests. They run on QEMU's virt machine, loaded at 0x40100000, without MMU. */

#define PSCI_SYSTEM_OFF   0x84000008
#define PSCI_CPU_ON       0xc4000003

#define UART              0x09000000
#define UART_DR           0x00
#define UART_FR           0x18
#define UART_FR_RXFE      4          /* bit number: nothing received */

#define GICD              0x08000000
#define GICD_CTLR         0x0000
#define GICD_CTLR_ARE_GRP1 0x12
#define GICR              0x080a0000 /* of core 0 */
#define GICR_SGI          0x10000    /* its second frame */
#define GICR_IGROUPR0     0x0080
#define GICR_ISENABLER0   0x0100
#define TIMER_INTID       30         /* EL1 physical timer */

        /* Sets a register to a 32-bit value. */
        .macro  set reg, value
        movz    \reg, #((\value) & 0xffff)
        movk    \reg, #((\value) >> 16), lsl #16
        .endm

        .macro  mark number
        movz    xzr, #\number
        .endm

        .macro  mark_x0 number
        movk    xzr, #\number
        .endm

        /* Writes a character to the serial line. Changes x1 and x2; X1 is then the UART. */
        .macro  say_running
        set     x1, UART
        mov     w2, #'r'
        str     w2, [x1, #UART_DR]
        .endm

        /* Ends the machine; `conduit` is hvc, or smc at EL2. */
        .macro  power_off conduit=hvc
        set     w0, PSCI_SYSTEM_OFF
        \conduit #0
        b       .
        .endm

        /* Starts a core at a label; changes x0 to x3. */
        .macro  start_core number, label
        set     w0, PSCI_CPU_ON
        mov     x1, #\number
        adr     x2, \label
        mov     x3, #\number
        hvc     #0
        .endm

        .macro  gic_distributor_init
        set     x0, GICD
        mov     w1, #GICD_CTLR_ARE_GRP1
        str     w1, [x0, #GICD_CTLR]
        .endm

        /* Lets the timer interrupt reach the core with the second redistributor frame at X0. */
        .macro  gic_core_init
        mov     w1, #-1
        str     w1, [x0, #GICR_IGROUPR0]
        mov     w1, #(1 << TIMER_INTID)
        str     w1, [x0, #GICR_ISENABLER0]
        mov     x1, #0xff
        msr     icc_pmr_el1, x1
        mov     x1, #1
        msr     icc_igrpen1_el1, x1
        isb
        .endm

        /* Lets the timer interrupt reach core 0. Changes x0 and x1. */
        .macro  gic_init
        gic_distributor_init
        set     x0, GICR + GICR_SGI
        gic_core_init
        .endm

        .text
        .global _start
