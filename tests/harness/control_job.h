/* control_job.h - control verbs from tests, over the library's own control calls. */
#pragma once

#include "client/client.h"

/* control_verb() - one verb that takes a name or nothing; the reply's body is dropped. The status;
 * gemmd_last_error() has the sentence. */
int control_verb(gemmd_client_t *client, enum msg_verb verb, const char *name);

/* control_job() - LOAD (with path), RELOAD or VERIFY, followed to its end. The status it ended
 * with, and its text in *ret_text (MSG_TEXT_BYTES), which may be NULL. */
int control_job(gemmd_client_t *client, enum msg_verb verb, const char *name, const char *path,
                char *ret_text);

/* control_load() - LOAD in a certain shape (NULL: each module as it is), likewise.
 * control_load_on() - LOAD to the device of that name. */
int control_load_on(gemmd_client_t *client, const char *name, const char *path, const char *device,
                    char *ret_text);
int control_load(gemmd_client_t *client, const char *name, const char *path,
                 const struct msg_shaping *shaping, char *ret_text);
