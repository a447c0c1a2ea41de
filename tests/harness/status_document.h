/* status_document.h - the daemon's STATUS document, so that a test can watch what the daemon
 * believes to hold. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tests/harness/fixture.h"

/* What clients make the daemon hold, and what it counts. The asking session is in it. */
struct status_counts {
    uint64_t n_sessions;
    uint64_t n_buffers;
    uint64_t buffer_bytes;
    uint64_t n_fds; /* charged to clients */
    uint64_t n_in_flight;
    uint64_t n_lanes;
    uint64_t n_ok; /* requests that ended well */
    uint64_t n_launches;
    uint64_t n_shared_launches;
    uint64_t n_bad_messages;
    uint64_t n_bad_framing;
    uint64_t n_endless; /* messages on the control socket that were cut off */
    uint64_t n_corrupt_lanes;
};

/* status_document_read() - asked over a session of its own. status_document_ask() - over one that
 * is there. The caller's; never NULL. */
json_t *status_document_read(const struct fixture *fixture);
json_t *status_document_ask(const struct fixture *fixture, gemmd_client_t *client);
void status_counts_read(const struct fixture *fixture, struct status_counts *ret_counts);

/* status_counts_settle() - until no request is in flight and only n_sessions are left, the asking
 * one (which has no lane) among them, or timeout_seconds have passed; the last look is in
 * *ret_counts either way. */
void status_counts_settle(const struct fixture *fixture, uint64_t n_sessions,
                          double timeout_seconds, struct status_counts *ret_counts);

/* status_counts_reach() - until the counter at that offset of struct status_counts is at least n.
 * False when timeout_seconds have passed; the last look is in *ret_counts either way. */
bool status_counts_reach(const struct fixture *fixture, size_t counter, uint64_t n,
                         double timeout_seconds, struct status_counts *ret_counts);
