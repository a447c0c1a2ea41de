/* anchor.c - see anchor.h. */
#include "tests/harness/anchor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ANCHOR_SEED 5000u

static bool init(struct product *product, gemmd_client_t *client, const char *model,
                 const struct test_weight *weight, enum gemmd_dtype y_dtype, uint32_t m,
                 uint32_t place)
{
    const struct product_shape shape = {
        .m = m, .x_dtype = GEMMD_BF16, .y_dtype = y_dtype, .seed = ANCHOR_SEED - place};
    return product_init(product, client, model, weight, &shape);
}

static bool has_classes(void)
{
    return getenv("GEMMD_TEST_GPU") != NULL;
}

bool anchor_init(struct anchor *anchor, gemmd_client_t *client, const char *model,
                 const struct test_weight *weight, enum gemmd_dtype y_dtype)
{
    memset(anchor, 0, sizeof(*anchor));
    bool is_right = init(&anchor->alone, client, model, weight, y_dtype, 1, 0) &&
                    init(&anchor->many, client, model, weight, y_dtype, GK_BATCH_ROWS_MAX + 1, 0) &&
                    init(&anchor->around, client, model, weight, y_dtype, 2 * ANCHOR_ROWS_MAX - 1,
                         ANCHOR_ROWS_MAX - 1) &&
                    product_run(&anchor->alone, client) && product_run(&anchor->many, client);
    if (is_right && !has_classes() && !product_same_row(&anchor->alone, 0, &anchor->many, 0)) {
        (void)fprintf(stderr, "%s: the first of %u rows differs from what it is alone\n",
                      weight->module, anchor->many.gemm.m);
        is_right = false;
    }
    return is_right;
}

void anchor_finish(struct anchor *anchor)
{
    product_finish(&anchor->alone);
    product_finish(&anchor->many);
    product_finish(&anchor->around);
}

bool anchor_holds(struct anchor *anchor, gemmd_client_t *client, uint32_t m, uint32_t place)
{
    struct product *around = &anchor->around;
    const struct product *same = m > GK_BATCH_ROWS_MAX ? &anchor->many : &anchor->alone;
    around->gemm.m = m;
    around->gemm.x_offset_bytes =
        (ANCHOR_ROWS_MAX - 1 - place) * around->x_stride * sizeof(uint16_t);
    product_clear(around);
    if (!product_run(around, client)) {
        return false;
    }
    if (!product_same_row(same, 0, around, place)) {
        (void)fprintf(stderr, "%s: row %u of %u differs from what it is in %u\n",
                      around->handle.name, place, m, same->gemm.m);
        return false;
    }
    return true;
}
