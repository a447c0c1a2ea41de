/* store_list.c - snapshots of the store for replies. Models are held while they are described, so
 * that the store's mutex is not. */
#include <errno.h>
#include <stdlib.h>

#include "daemon/weights/store.h"
#include "ipc/base/error.h"

static void release_models(struct store_model **held, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        store_release(held[i]);
    }
    free(held);
}

int store_list_models(struct store *store, struct msg_model **ret_models, uint32_t *ret_n)
{
    struct store_model **held;
    uint32_t n;
    int r = store_hold_all(store, NULL, &held, &n);
    if (r != 0) {
        return r;
    }
    struct msg_model *models = calloc((size_t)n + 1, sizeof(*models));
    for (uint32_t i = 0; models && i < n; i++) {
        model_describe(store_held(held[i]), &models[i]);
    }
    release_models(held, n);
    if (!models) {
        return err_raise(-ENOMEM);
    }
    *ret_models = models;
    *ret_n = n;
    return 0;
}

static int describe_all(struct store_model *const *held, uint32_t n_held,
                        struct msg_weight **ret_weights, uint32_t *ret_n)
{
    uint64_t n_all = 0;
    for (uint32_t i = 0; i < n_held; i++) {
        n_all += store_held(held[i])->n_weights;
    }
    struct msg_weight *weights = n_all < UINT32_MAX ? calloc(n_all + 1, sizeof(*weights)) : NULL;
    if (!weights) {
        return err_raise(-ENOMEM);
    }
    uint32_t n = 0;
    for (uint32_t i = 0; i < n_held; i++) {
        for (uint32_t j = 0; j < store_held(held[i])->n_weights; j++) {
            weight_describe(store_held(held[i])->weights[j], &weights[n++]);
        }
    }
    *ret_weights = weights;
    *ret_n = n;
    return 0;
}

int store_list_weights(struct store *store, const char *model, struct msg_weight **ret_weights,
                       uint32_t *ret_n, struct reason *why)
{
    struct store_model **held;
    uint32_t n_held;
    int r = store_hold_all(store, model, &held, &n_held);
    if (r != 0) {
        return r;
    }
    if (n_held == 0 && model && model[0] != '\0') {
        r = reason_set(why, STATUS_NOT_FOUND, "there is no model '%s'", model);
    } else {
        r = describe_all(held, n_held, ret_weights, ret_n);
    }
    release_models(held, n_held);
    return r;
}
