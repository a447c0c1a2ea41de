/* log_sink.h - where log lines go: standard error, with the "<6>" priorities of sd-daemon(3) when
 * that is the journal. Levels per topic: "info,worker:debug". The environment variable GEMMD_LOG
 * goes before the option. Lines that a client can provoke pass log_allows() first. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "ipc/base/check.h"
#include "ipc/base/log.h"
#include "ipc/base/reason.h"

/* log_sink_levels() - set the levels; also while threads run. log_sink_check() - could they be set?
 * 0 or STATUS_INVALID_ARGUMENT. */
int log_sink_check(const char *spec, struct reason *why) GD_MUST_CHECK;
int log_sink_levels(const char *spec, struct reason *why) GD_MUST_CHECK;

/* log_sink_configure() - the levels of GEMMD_LOG in the environment if it is set, else those of the
 * option `log`. Return as above. */
int log_sink_configure(const char *option, struct reason *why) GD_MUST_CHECK;

/* log_sink_event_id() - 32 hexadecimal digits that name an event in the journal and its catalog. */
const char *log_sink_event_id(enum log_event event);

/* log_sink_install() - become the sink of log.h. Before any thread starts. */
void log_sink_install(void);

/* At most n_per_second lines a second; the rest is counted and told when a line passes again. One
 * thread. */
struct log_rate {
    uint64_t second;
    uint32_t n_lines;
    uint64_t n_suppressed;
};

#define LOG_RATE_NULL ((struct log_rate){0})

/* log_allows() - may one more line be written? now_nsec: CLOCK_MONOTONIC. */
bool log_allows(struct log_rate *rate, uint32_t n_per_second, uint64_t now_nsec);
