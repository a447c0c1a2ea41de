/* team.c - members spin for the next job: a bench measures the job, not the wake-up. */
#include <stdlib.h>

#include "team.h"

static void *member(void *arg)
{
    struct team *team = arg;
    uint32_t i_part = atomic_fetch_add(&team->n_started, 1) + 1;
    for (uint64_t i_job = 1;; i_job++) {
        while (atomic_load_explicit(&team->i_job, memory_order_acquire) < i_job) {
        }
        if (team->run == NULL) {
            return NULL;
        }
        team->run(team->arg, i_part, team->n_threads);
        atomic_fetch_add(&team->n_done, 1);
    }
}

void team_init(struct team *team, uint32_t n_threads)
{
    *team = (struct team){.n_threads = n_threads};
    for (uint32_t i = 1; i < n_threads; i++) {
        if (pthread_create(&team->threads[i], NULL, member, team) != 0) {
            abort();
        }
    }
}

void team_finish(struct team *team)
{
    team->run = NULL;
    atomic_fetch_add_explicit(&team->i_job, 1, memory_order_release);
    for (uint32_t i = 1; i < team->n_threads; i++) {
        (void)pthread_join(team->threads[i], NULL);
    }
}

void team_run(struct team *team, team_fn run, void *arg)
{
    team->run = run;
    team->arg = arg;
    atomic_store(&team->n_done, 0);
    atomic_fetch_add_explicit(&team->i_job, 1, memory_order_release);
    run(arg, 0, team->n_threads);
    while (atomic_load(&team->n_done) < team->n_threads - 1) {
    }
}
