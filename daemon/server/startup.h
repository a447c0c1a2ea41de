/* startup.h - the models of --model and the file, loaded one after the other before the daemon is
 * ready. The main loop polls, so that a signal is heard meanwhile. Main thread. */
#pragma once

#include <stdint.h>

#include "daemon/server/core.h"
#include "ipc/base/check.h"

struct startup {
    struct core *core; /* borrowed */
    uint32_t i_model;  /* being loaded, or to be loaded next */
    uint64_t job_id;   /* 0: not started */
};

/* startup_poll() - go on. Return: 0 when all models serve, -EAGAIN while loading, another negative
 * errno, or the status of the load that failed, its sentence starting with the model's name. */
int startup_poll(struct startup *startup, struct reason *why) GD_MUST_CHECK;

/* startup_describe() - what it is at, for people: "loading 'm': packing ...". */
void startup_describe(const struct startup *startup, char *text, uint32_t size_bytes);
