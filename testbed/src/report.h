/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The results: a JSON file, and a line on standard error. */
#ifndef REPORT_H
#define REPORT_H

#include <stdbool.h>

/* Opens the files, so that a wrong path is known before the run. False, with a message, if it fails. */
bool report_open(void);

/* Writes everything. Called once, when the machine has stopped. */
void report_write(void);

#endif
