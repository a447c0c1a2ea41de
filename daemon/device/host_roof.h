/* host_roof.h - how fast the host's memory can be read: what no kernel can beat that has to stream
 * a weight, and so the floor that `explain` compares with. */
#pragma once

#include <stdint.h>

#include "daemon/device/thread_pool.h"

/* host_roof_gbps() - 1e9 bytes a second that the pool's threads read together; measured here, in
 * about 0.1 s, and little over 1 s on a machine too busy to run it, with memory that is given back:
 * at most an eighth of available_bytes. 0: not known, where memory is too short or the machine too
 * slow to tell. Nothing may run on the pool. */
double host_roof_gbps(struct thread_pool *pool, uint32_t n_threads, uint64_t available_bytes);
