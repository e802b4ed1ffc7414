/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The task that prints, of the lowest priority above idle, so that printing (slow, and under a
 * hypervisor a trap for each character) never delays the measured task.
 */
#ifndef REPORT_H
#define REPORT_H

#include "bootargs.h"

enum report_kind {
    REPORT_INTERIM, /* print the figures so far */
    REPORT_FINAL,   /* print the figures and switch the machine off */
};

/* Prints the parameters of the run. Before the scheduler starts. */
void report_banner(const struct parameters *parameters, uint64_t entry_level, const char *tree_origin,
                   uint64_t tree_address);

/* Creates the task. Before the scheduler starts; `parameters` must stay valid. */
void report_create(const struct parameters *parameters);

/* Asks for a report. Called by a task; returns at once. */
void report_request(enum report_kind kind);

#endif
