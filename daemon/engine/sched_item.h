/* sched_item.h - a request as the scheduler sees it: what its queues and its deadlines have in
 * common. */
#pragma once

#include <stdint.h>

#include "ipc/base/list.h"

enum sched_state { SCHED_OUTSIDE = 0, SCHED_QUEUED, SCHED_TAKEN };

struct sched_stream;

/* Embedded in the owner's request. The owner fills the first block before push. */
struct sched_item {
    /* Requests with equal keys may share a launch: one weight generation, same x and y dtype. */
    uint64_t weight_key;
    uint32_t class_key;
    uint64_t session_id;
    uint32_t n_rows;        /* >= 1 */
    uint64_t deadline_nsec; /* 0: none */

    enum sched_state state; /* the rest is sched's */
    uint64_t arrival_nsec;
    uint32_t i_deadline;
    struct sched_stream *stream;
    struct list in_stream;
};
