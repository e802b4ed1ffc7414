/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Marks: one instruction by which the exact clock (testbed/) records that this point was reached.
 *
 *     movk xzr, #N      mark N, with the value of X0
 *
 * A write to XZR is discarded (Arm Architecture Reference Manual, C1.2.5), so without that clock
 * the instruction has no effect.
 */
#ifndef MARK_H
#define MARK_H

#include <stdint.h>

#define MARK_BEGIN 1   /* a measured run begins; value: its number, from 1 */
#define MARK_END 2     /* it has ended; the same value */
#define MARK_PIECE 3   /* a thread of a load begins a piece of work (duty.c); value: its number, from 1 */
#define MARK_PIECE_DONE 4 /* it has done it; the same value */
#define MARK_ONLINE 5  /* scripts only: CPUs have gone offline or come online; value: how many are online */
#define MARK_RESTS 6   /* scripts only: a load has ended, and its results are printed; the CPUs idle from now on */
#define MARK_RESET 10  /* a guest is about to restart itself */
#define MARK_FIRST 11  /* the first job of the real-time guest's periodic task begins */
#define MARK_THREAD 12 /* a real-time thread of Linux is about to start */
#define MARK_INIT 13   /* the first process of Linux runs */
#define MARK_WAIT 14   /* a job that counts has waited longer than all before; value: how long, in ns */
#define MARK_DONE 15   /* all results of a scenario have been printed on the console */
#define MARK_MODE 16   /* the probe only (tests/guests): it has set the mode of [power]; value: the mode */

/* `number` must be a constant, 0 to 65535: it is part of the instruction. */
#define MARK(number, value)                                              \
    do {                                                                 \
        register uint64_t mark_x0 __asm__("x0") = (value);               \
        __asm__ volatile("movk xzr, #%1" : : "r"(mark_x0), "i"(number) : "memory"); \
    } while (0)

#endif
