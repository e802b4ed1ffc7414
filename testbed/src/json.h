/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Writes JSON. The caller opens and closes objects and arrays in pairs; commas and indentation are
 * added. In an array `name` is NULL.
 */
#ifndef JSON_H
#define JSON_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct json {
    FILE *to;
    int depth;
    bool first; /* nothing yet in the innermost object or array */
};

void json_open(struct json *json, const char *name, char bracket);
void json_close(struct json *json, char bracket);
void json_number(struct json *json, const char *name, uint64_t value);
void json_seconds(struct json *json, const char *name, double value);
void json_text(struct json *json, const char *name, const char *value);
/* 64-bit values that are not amounts, as hexadecimal text: many JSON readers round large numbers. */
void json_hex(struct json *json, const char *name, uint64_t value);

#endif
