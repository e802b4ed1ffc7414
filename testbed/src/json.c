/* SPDX-License-Identifier: GPL-2.0-or-later */
#include "json.h"

#include <inttypes.h>

/* Deeper objects are written on one line. */
#define LINES_TO_DEPTH 2

static void quote(struct json *json, const char *text)
{
    fputc('"', json->to);
    for (; *text; text++)
        if (*text == '"' || *text == '\\')
            fprintf(json->to, "\\%c", *text);
        else if ((unsigned char)*text < ' ')
            fprintf(json->to, "\\u%04x", *text);
        else
            fputc(*text, json->to);
    fputc('"', json->to);
}

static void new_line(const struct json *json)
{
    if (json->depth <= LINES_TO_DEPTH)
        fprintf(json->to, "\n%*s", 2 * json->depth, "");
}

static void start_value(struct json *json, const char *name)
{
    if (!json->first)
        fputs(json->depth <= LINES_TO_DEPTH ? "," : ", ", json->to);
    json->first = false;
    if (json->depth)
        new_line(json);
    if (!name)
        return;
    quote(json, name);
    fputs(": ", json->to);
}

void json_open(struct json *json, const char *name, char bracket)
{
    if (!json->depth)
        json->first = true;
    start_value(json, name);
    fputc(bracket, json->to);
    json->depth++;
    json->first = true;
}

void json_close(struct json *json, char bracket)
{
    bool empty = json->first;
    bool lines = json->depth <= LINES_TO_DEPTH;

    json->depth--;
    json->first = false;
    if (!empty && lines)
        new_line(json);
    fputc(bracket, json->to);
    if (!json->depth)
        fputc('\n', json->to);
}

void json_number(struct json *json, const char *name, uint64_t value)
{
    start_value(json, name);
    fprintf(json->to, "%" PRIu64, value);
}

void json_seconds(struct json *json, const char *name, double value)
{
    start_value(json, name);
    fprintf(json->to, "%.3f", value);
}

void json_text(struct json *json, const char *name, const char *value)
{
    start_value(json, name);
    quote(json, value);
}

void json_hex(struct json *json, const char *name, uint64_t value)
{
    start_value(json, name);
    fprintf(json->to, "\"0x%016" PRIx64 "\"", value);
}
