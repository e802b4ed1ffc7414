/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A hypervisor with two guests, which differ in the VMID only. The EL2 timer interrupts them ten times;
 * each second time the hypervisor enters the other guest. It executes 12 instructions then, otherwise
 * 10.
 */
#include "lib.S"
#define HCR_RW          (1 << 31)
#define HCR_IMO         (1 << 4)
#define SPSR_EL1H       0x3c5
#define VMID_SHIFT      48
#define HYP_TIMER_INTID 26
#define INTERRUPTS      10
_start:
        set     x0, HCR_RW | HCR_IMO
        msr     hcr_el2, x0
        adr     x0, vectors
        msr     vbar_el2, x0
        gic_distributor_init
        set     x0, GICR + GICR_SGI
        gic_core_init
        mov     w1, #(1 << HYP_TIMER_INTID)
        str     w1, [x0, #GICR_ISENABLER0]
        mov     x23, #INTERRUPTS
        mov     x24, #1
        lsl     x25, x24, #VMID_SHIFT
        set     x26, 6250               /* 100 µs */
        msr     cnthp_tval_el2, x26
        msr     cnthp_ctl_el2, x24
        adr     x0, guest
        msr     elr_el2, x0
        mov     x0, #SPSR_EL1H
        msr     spsr_el2, x0
        isb
        eret
guest:  b       guest

interrupt:                              /* 1 instruction before this */
        mrs     x20, icc_iar1_el1
        msr     cnthp_tval_el2, x26     /* no longer due */
        isb
        msr     icc_eoir1_el1, x20
        subs    x23, x23, #1
        b.eq    1f
        tbz     x23, #0, 2f
        eor     x21, x21, x25
        msr     vttbr_el2, x21
2:      nop
        eret
1:      power_off smc

        .balign 0x800
vectors:
        .skip   0x480                   /* IRQ, from a lower level */
        b       interrupt
