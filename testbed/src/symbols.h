/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Names of addresses, from files as `nm` writes them and as Linux's System.map and /proc/kallsyms
 * are: address in hexadecimal, a letter, the name.
 */
#ifndef SYMBOLS_H
#define SYMBOLS_H

#include <stdbool.h>
#include <stdint.h>

/*
 * Loads a file for the code of one exception level. `specification` is `elN:FILE`, `elN:FILE:OFFSET`
 * with an offset to add to the addresses in the file, or `elN:FILE:auto` for a Linux kernel that
 * moves itself: the offset is then taken from VBAR_ELN, which holds the address of `vectors`.
 * Several files may be loaded for one level. Returns false, with a message, if that is not possible.
 */
bool symbols_load(const char *specification);

/* The name of the function that an address of this level lies in; NULL: not known. */
const char *symbols_find(int el, uint64_t address);

/* Call with code that is about to be executed: finds an automatic offset that is not known yet. */
void symbols_watch_offset(int el, uint64_t address);

#endif
