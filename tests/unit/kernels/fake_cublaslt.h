/* fake_cublaslt.h - a vendor's library, and as much of a CUDA runtime as trying its algorithms
 * takes, without a GPU: memory is the CPU's, launches are made at once, and the clock goes by what
 * they are said to take. Stands in for both in a program that links neither. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "ipc/base/dtype.h"

/* In which order an algorithm adds up: two that keep to one, and what changes a row with m. */
enum fake_order { FAKE_ORDER_A = 0, FAKE_ORDER_B, FAKE_ORDER_BY_M };

struct fake_algorithm {
    enum fake_order order;
    float msec;      /* of a launch of few_rows and fewer */
    float many_msec; /* of more; 0: as few */
    uint32_t few_rows;
    uint32_t ranked_max; /* the library names it for up to so many rows; 0: for any number */
    uint32_t refused_m;  /* the one m that it does not take; 0: none */
    bool is_dense_only;  /* wants rows of x without a gap */
    bool truncates;      /* to 16 bits, where others round */
    bool fails;          /* at each product */
};

/* What the library has, most highly ranked first; left alone while it is in use. */
extern const struct fake_algorithm *fake_algorithms;
extern uint32_t fake_n_algorithms;
extern bool fake_has_no_memory;      /* cudaMalloc() fails */
extern bool fake_is_lost_at_product; /* and then no call of the device's succeeds */
extern int32_t fake_n_held;          /* allocations, streams and events that were not given back */

extern uint32_t fake_n_opened;   /* calls of cublaslt_open() */
extern uint32_t fake_n_products; /* that were asked for */
extern uint64_t fake_version;    /* of the library */

/* fake_index_of() - which of them an algorithm of the library's is. */
uint32_t fake_index_of(const void *algorithm);
