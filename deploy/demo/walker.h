/* walker.h - one client process of the demo: walks the layers of the model over and over, as a
 * decoder does, and checks every product. */
#ifndef DEPLOY_DEMO_WALKER_H
#define DEPLOY_DEMO_WALKER_H

#include <gemmd.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "deploy/demo/checkpoint.h"
#include "deploy/demo/reference.h"

#define PROCESSES_MAX 64u

/* What a walker found out; in memory that it shares with the process that reports. */
struct walk {
    enum gemmd_dtype dtype; /* of its x and y */
    uint64_t n_gemms;
    uint64_t n_rows;
    double n_launches; /* a launch that r requests shared counts as 1/r for each */
    uint64_t
        n_by_sessions[PROCESSES_MAX + 1]; /* requests by how many processes shared their launch */
    struct error_sum error;
    double seconds;
    bool is_done; /* false: it died, or gave up after saying why */
};

/* What all walkers are given. */
struct walk_plan {
    const char *socket_dir; /* NULL: the library's default */
    const char *model;
    const struct checkpoint *checkpoint;
    const struct reference *references; /* one for each layer */
    uint32_t n_processes;
    double seconds;
    atomic_uint *n_ready; /* shared: they start together, when all are connected */
};

/* walk_run() - connect, walk for plan->seconds, fill *walk, hang up.
 * i_process: which of them this is; it decides the element type and the random choices. Says why on
 * standard error when it gives up. */
void walk_run(const struct walk_plan *plan, uint32_t i_process, struct walk *walk);

#endif
