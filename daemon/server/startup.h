/* startup.h - the way to being ready: adopt the weights that were kept, then load the models of
 * --model and the file that are not among them, then what was kept and could not be adopted. The
 * main loop polls, so that a signal is heard meanwhile. Main thread. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "daemon/server/core.h"
#include "ipc/base/check.h"

struct startup {
    struct core *core; /* borrowed */
    bool has_adopted;
    uint32_t i_model; /* being loaded, or to be loaded next: first the configured, then the lost */
    uint64_t job_id;  /* 0: not started */
};

/* startup_poll() - go on. Return: 0 when all configured models serve, -EAGAIN while loading,
 * another negative errno, or the status of the load that failed, its sentence starting with the
 * model's name; STATUS_EXISTS as core_adopt(). */
int startup_poll(struct startup *startup, struct reason *why) GD_MUST_CHECK;

/* startup_describe() - what it is at, for people: "loading 'm': packing ...". */
void startup_describe(const struct startup *startup, char *text, uint32_t size_bytes);
