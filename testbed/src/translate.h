/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Decodes the blocks that QEMU translates, and has their execution counted. */
#ifndef TRANSLATE_H
#define TRANSLATE_H

#include "qemu-api.h"

/* Called by QEMU for each block that it translates. */
void translate_block(qemu_plugin_id_t id, struct qemu_plugin_tb *tb);

#endif
