/* anchor.h - one row of x among others: its row of y must have the same bits wherever it stands and
 * however many stand with it. A GPU has two classes of requests, of up to 64 rows and of more
 * (kernels/NUMERICS.md), and may add up in another order in each; the host has one. */
#pragma once

#include "tests/harness/product.h"

#define ANCHOR_ROWS_MAX 1024u

struct anchor {
    struct product alone;  /* the anchor by itself */
    struct product many;   /* the anchor and 64 more behind it: of the second class */
    struct product around; /* it is row ANCHOR_ROWS_MAX - 1 of twice as many but one */
};

/* anchor_init() - of bf16, with that weight of MODEL; alone and many are computed, and on the host
 * they have to be the same. False with a line on stderr. */
bool anchor_init(struct anchor *anchor, gemmd_client_t *client, const char *model,
                 const struct test_weight *weight, enum gemmd_dtype y_dtype);
void anchor_finish(struct anchor *anchor);

/* anchor_holds() - m rows, at most ANCHOR_ROWS_MAX, the anchor at `place` among them: the bits of
 * its class. */
bool anchor_holds(struct anchor *anchor, gemmd_client_t *client, uint32_t m, uint32_t place);
