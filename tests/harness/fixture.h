/* fixture.h - the real daemon on a private socket folder, for tests and benches. It owns the host
 * device, unless the configuration names devices or $GEMMD_TEST_GPU is set; $GEMMD_TEST_DEVICE is
 * what it owns whatever either says, of all that the machine has.
 *
 * The program is the one of the same build, or $GEMMD_PROGRAM. It dies with the thread that started
 * it (PR_SET_PDEATHSIG), so a test that fails half-way leaves no daemon behind. What goes wrong in
 * here ends the test program with the daemon's log on stderr: a test without a daemon has nothing
 * to say. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "client/include/gemmd.h"
#include "tests/harness/safetensors_writer.h"

/* What is promised of the daemon's end, and what a sanitizer, which also goes through all memory
 * that is given back, makes of that on a busy machine. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define FIXTURE_STOP_SECONDS 30.0
#else
#define FIXTURE_STOP_SECONDS 5.0
#endif
#define FIXTURE_READY_SECONDS 20.0

struct fixture {
    struct temp_folder folder; /* sockets in "s", configuration in "conf", log in "log" */
    char socket_dir[300];      /* "": what the configuration says */
    char log_path[300];
    pid_t pid; /* 0: not running */
};

struct fixture_options {
    const char *config;          /* lines `key = value`; NULL: none */
    const char *model;           /* "NAME=PATH" to load before being ready; NULL: none */
    const char *argument;        /* one more, as it is; NULL: none */
    uint64_t n_fds_max;          /* RLIMIT_NOFILE; 0: as it is */
    bool is_kept;                /* by --keeper: pid is the keeper's */
    void (*in_child)(void *arg); /* called last before exec(); NULL: nothing */
    void *arg;
};

void fixture_init(struct fixture *fixture);   /* makes the folder, starts nothing */
void fixture_finish(struct fixture *fixture); /* kills what runs, removes the folder */

/* fixture_spawn() - start it and return at once. fixture_wait_ready() - until a client can open it
 * and its model serves. fixture_start() - both. */
void fixture_spawn(struct fixture *fixture, const struct fixture_options *options);
void fixture_wait_ready(struct fixture *fixture, bool has_model);
void fixture_start(struct fixture *fixture, const struct fixture_options *options);

/* fixture_wait_exit() - the exit code, 256 + n after signal n, or -1 if it still ran then. */
int fixture_wait_exit(struct fixture *fixture, double timeout_seconds);
int fixture_stop(struct fixture *fixture);  /* SIGTERM, then as fixture_wait_exit() of 5 s */
void fixture_kill(struct fixture *fixture); /* SIGKILL, and reap */
bool fixture_is_running(struct fixture *fixture);

/* fixture_daemon_pid() - of the daemon itself, which a keeper may have started. */
pid_t fixture_daemon_pid(const struct fixture *fixture);

/* fixture_open() - a session, or the end of the test program. */
gemmd_client_t *fixture_open(const struct fixture *fixture, enum gemmd_path path);

/* fixture_fds(), fixture_maps() - descriptors open in the process `pid`, and its mappings. */
uint32_t fixture_fds(const struct fixture *fixture);
uint32_t fixture_maps(const struct fixture *fixture);

/* fixture_logged() - is that text in the log? fixture_wait_logged() - until it is there n times,
 * for 10 s at most. */
uint32_t fixture_logged(const struct fixture *fixture, const char *text);
void fixture_wait_logged(const struct fixture *fixture, const char *text, uint32_t n);

/* fixture_number() - how often or how much: that environment variable, for long runs, or the usual.
 */
uint32_t fixture_number(const char *variable, uint32_t usual);

double fixture_now(void); /* seconds, CLOCK_MONOTONIC */
void fixture_sleep(double seconds);
/* fixture_fail() - one line and the daemon's log to stderr, then abort(). */
void fixture_fail(const struct fixture *fixture, const char *format, ...)
    __attribute__((format(printf, 2, 3), noreturn));
