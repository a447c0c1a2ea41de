/* top.h - the live view: its text, and the terminal it is shown in. */
#pragma once

#include <jansson.h>
#include <stdio.h>

#include "client/tool/look.h"

/* top_print() - the view as lines of text: the state, each device, kernels, models. health: see
 * look_health(). */
void top_print(const struct look *now, const struct look *then, const char *health, FILE *out);

/* top_json() - the same figures as one document; a new reference, NULL without memory. */
json_t *top_json(const struct look *now, const struct look *then, const char *health);

/* top_screen_begin() - take the terminal over; false when it is none. top_screen_show() - the text,
 * as much of it as fits. top_screen_wait() - until the time is over or a key is pressed; false: the
 * key says to leave. top_screen_end() - give the terminal back. */
bool top_screen_begin(void);
void top_screen_show(const char *text);
bool top_screen_wait(uint32_t timeout_msec);
void top_screen_end(void);
