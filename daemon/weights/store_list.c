/* store_list.c - snapshots of the store for replies. Models are held while they are described, so
 * that the store's mutex is not. */
#include <errno.h>
#include <stdlib.h>

#include "daemon/weights/nearest.h"
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

/* Without memory for it, the refusal says what it can. */
static int refuse_with_names(struct store *store, bool is_of_weights, const char *name,
                             struct reason *why)
{
    struct store_model **held;
    struct nearest nearest;
    uint32_t n_held;
    if (store_hold_all(store, NULL, &held, &n_held) != 0) {
        return STATUS_NOT_FOUND;
    }
    nearest_init(&nearest, name);
    for (uint32_t i = 0; i < n_held; i++) {
        const struct model *model = store_held(held[i]);
        if (!is_of_weights) {
            nearest_offer(&nearest, model->name);
        }
        for (uint32_t j = 0; is_of_weights && j < model->n_weights; j++) {
            nearest_offer(&nearest, model->weights[j]->name);
        }
    }
    release_models(held, n_held);
    nearest_append(&nearest, why);
    return STATUS_NOT_FOUND;
}

int store_no_model(struct store *store, const char *name, struct reason *why)
{
    (void)reason_set(why, STATUS_NOT_FOUND, "there is no model '%s'", name);
    return refuse_with_names(store, false, name, why);
}

int store_no_weight(struct store *store, const char *name, struct reason *why)
{
    (void)reason_set(why, STATUS_NOT_FOUND, "no weight '%s' is resident", name);
    return refuse_with_names(store, true, name, why);
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
        r = store_no_model(store, model, why);
    } else {
        r = describe_all(held, n_held, ret_weights, ret_n);
    }
    release_models(held, n_held);
    return r;
}
