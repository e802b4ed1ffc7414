/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "registers.h"

#include "qemu-api.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* As in QEMU's descriptions for GDB; it calls PSTATE by its AArch32 name. */
static const char *const names[REGISTERS] = {
    [REGISTER_PSTATE] = "cpsr",
    [REGISTER_VBAR_EL1] = "VBAR",
    [REGISTER_VBAR_EL2] = "VBAR_EL2",
    [REGISTER_ESR_EL2] = "ESR_EL2",
    [REGISTER_VTTBR_EL2] = "VTTBR_EL2",
};

static struct qemu_plugin_register *handles[REGISTERS];
static GByteArray *buffer;

static bool is_named(const char *name, int which)
{
    char general[4];

    if (names[which])
        return !strcmp(name, names[which]);
    snprintf(general, sizeof(general), "x%d", which - REGISTER_X0);
    return !strcmp(name, general);
}

void registers_find(void)
{
    GArray *list = qemu_plugin_get_registers();
    const qemu_plugin_reg_descriptor *all = (const void *)list->data;

    if (!buffer)
        buffer = g_byte_array_new();
    for (unsigned i = 0; i < list->len; i++)
        for (int which = 0; which < REGISTERS; which++)
            if (!handles[which] && is_named(all[i].name, which))
                handles[which] = all[i].handle;
}

uint64_t registers_read(enum guest_register which)
{
    uint64_t value = 0;

    if (!handles[which])
        return 0;
    g_byte_array_set_size(buffer, 0);
    if (qemu_plugin_read_register(handles[which], buffer) <= 0)
        return 0;
    memcpy(&value, buffer->data, buffer->len < sizeof(value) ? buffer->len : sizeof(value));
    return value;
}

int registers_exception_level(void)
{
    /* PSTATE.EL, bits 3:2. */
    return (int)(registers_read(REGISTER_PSTATE) >> 2 & 3);
}
