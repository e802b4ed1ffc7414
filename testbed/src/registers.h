/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Guest registers of the core that executes, read through the plugin interface. */
#ifndef REGISTERS_H
#define REGISTERS_H

#include <stdint.h>

enum guest_register {
    REGISTER_X0, /* X1 to X30 follow */
    REGISTER_X30 = REGISTER_X0 + 30,
    REGISTER_PSTATE,
    REGISTER_VBAR_EL1,
    REGISTER_VBAR_EL2,
    REGISTER_ESR_EL2,
    REGISTER_VTTBR_EL2,
    REGISTERS,
};

/* Looks up QEMU's handles. Call in the thread that runs the cores. */
void registers_find(void);

/* The value, or 0 if this machine has no such register. */
uint64_t registers_read(enum guest_register which);

/* The exception level that the core is at. */
int registers_exception_level(void);

#endif
