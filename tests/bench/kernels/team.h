/* team.h - a fixed team of threads that run one function at once and meet at spinning barriers. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#define TEAM_MAX 64u

typedef void (*team_fn)(void *arg, uint32_t i_part, uint32_t n_parts);

struct team {
    uint32_t n_threads; /* the caller's own included */
    pthread_t threads[TEAM_MAX];
    team_fn run; /* NULL: leave */
    void *arg;
    _Atomic uint32_t n_started; /* members number themselves by it */
    _Atomic uint32_t n_done;
    _Atomic uint64_t i_job;
};

void team_init(struct team *team, uint32_t n_threads);
void team_finish(struct team *team);

/* team_run() - run(arg, i_part, n_threads) on every member; returns when all have. */
void team_run(struct team *team, team_fn run, void *arg);
