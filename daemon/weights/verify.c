/* Verification runs on the loader's thread with memory of its own, so that serving goes on
 * meanwhile. Reading the checkpoint again, rather than keeping digests of what was loaded, also
 * finds a mistake in the packing itself. */
#include "daemon/weights/verify.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/weights/model_load.h"
#include "daemon/weights/plan_read.h"
#include "ipc/base/cleanup.h"
#include "ipc/base/error.h"
#include "ipc/base/half.h"
#include "ipc/base/num.h"

#define VERIFY_ROWS 3u

#define WRONG(why, ...) reason_set((why), STATUS_INTERNAL, __VA_ARGS__)

/* The worst product so far. */
struct worst {
    double error;
    const char *weight;
    const char *kernel;
    uint32_t m;
};

/* ---- bits ---- */

static bool is_same_desc(const struct gk_desc *a, const struct gk_desc *b)
{
    return a->n == b->n && a->k == b->k && a->code == b->code && a->group_n == b->group_n &&
           a->group_k == b->group_k && a->scale_dtype == b->scale_dtype &&
           a->has_zeros == b->has_zeros && a->has_perm == b->has_perm &&
           a->column_scale == b->column_scale && a->act == b->act &&
           a->is_act_scale_pow2 == b->is_act_scale_pow2 && a->act_scale == b->act_scale &&
           a->act_zero == b->act_zero && a->bias_dtype == b->bias_dtype;
}

/* Rows of n_cols elements; names the first that differs. */
static int compare_bits(const char *weight, const char *what, const void *packed, const void *read,
                        uint64_t n_rows, uint64_t n_cols, uint32_t element_bytes,
                        struct reason *why)
{
    const char *a = packed;
    const char *b = read;
    for (uint64_t i = 0; i < n_rows * n_cols; i++) {
        if (memcmp(a + i * element_bytes, b + i * element_bytes, element_bytes) != 0) {
            return WRONG(why,
                         "weight '%s': %s [%llu, %llu] differs from the checkpoint; has the "
                         "checkpoint changed since it was loaded?",
                         weight, what, (unsigned long long)(i / n_cols),
                         (unsigned long long)(i % n_cols));
        }
    }
    return 0;
}

static int compare_canonical(const char *weight, const struct gk_canonical *packed,
                             const struct gk_canonical *read, struct reason *why)
{
    const struct gk_desc *desc = &read->desc;
    bool is_plain = gk_code_is_plain(desc->code);
    uint32_t n_groups = gk_desc_groups(desc);
    uint32_t n_columns = gk_desc_scale_columns(desc);
    int r = compare_bits(weight, is_plain ? "value" : "code", packed->codes, read->codes, desc->n,
                         desc->k, is_plain ? gk_code_bits(desc->code) / 8 : 1, why);
    if (r == 0) {
        r = compare_bits(weight, "scale", packed->scales, read->scales, n_groups, n_columns,
                         dtype_bytes(desc->scale_dtype), why);
    }
    if (r == 0 && desc->has_zeros) {
        r = compare_bits(weight, "zero point", packed->zeros, read->zeros, n_groups, n_columns, 1,
                         why);
    }
    if (r == 0 && desc->has_perm) {
        r = compare_bits(weight, "act-order", packed->perm, read->perm, 1, desc->k,
                         sizeof(*read->perm), why);
    }
    if (r == 0 && desc->column_scale != GK_COLUMN_SCALE_NONE) {
        r = compare_bits(weight, "column scale", packed->column_scales, read->column_scales, 1,
                         desc->n, sizeof(*read->column_scales), why);
    }
    if (r == 0 && desc->bias_dtype != DTYPE_NONE) {
        r = compare_bits(weight, "bias", packed->bias, read->bias, 1, desc->n,
                         dtype_bytes(desc->bias_dtype), why);
    }
    return r;
}

static int check_bits(const struct weight *weight, const struct gk_canonical *read,
                      struct reason *why)
{
    if (!is_same_desc(&weight->desc, &read->desc)) {
        return WRONG(why, "weight '%s' (%u x %u) has another shape or format in the checkpoint now",
                     weight->name, weight->desc.n, weight->desc.k);
    }
    struct gk_canonical unpacked;
    int r = gk_canonical_alloc(&unpacked, &weight->desc);
    if (r != 0) {
        return r;
    }
    void *packed;
    r = device_view_begin(weight->device, &weight->packed, DEVICE_READ, &packed, why);
    if (r == 0) {
        weight->layout->unpack(packed, &unpacked);
        r = device_view_end(weight->device, &weight->packed, DEVICE_READ, why);
    }
    r = r != 0 ? r : compare_canonical(weight->name, &unpacked, read, why);
    gk_canonical_finish(&unpacked);
    return r;
}

/* ---- products ---- */

/* Buffers of one weight's trial, freed as a whole. */
struct trial {
    void *x;           /* (VERIFY_ROWS, k) of act_dtype */
    float *y;          /* (VERIFY_ROWS, n) */
    double *reference; /* (VERIFY_ROWS, n) */
};

static void trial_finish(struct trial *trial)
{
    free(trial->x);
    free(trial->y);
    free(trial->reference);
    *trial = (struct trial){.x = NULL};
}

/* The same rows every time, so that a failure can be repeated: xorshift, mapped to [-1, 1). */
static void fill_rows(void *x, enum dtype dtype, uint64_t n_elements)
{
    uint64_t state = 0x9e3779b97f4a7c15u;
    for (uint64_t i = 0; i < n_elements; i++) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        float value = (float)(int32_t)(uint32_t)(state >> 32) * 0x1p-31f;
        if (dtype == DTYPE_F32) {
            ((float *)x)[i] = value;
        } else if (dtype == DTYPE_F16) {
            ((uint16_t *)x)[i] = half_from_f32(value);
        } else {
            ((uint16_t *)x)[i] = bf16_from_f32(value);
        }
    }
}

static int trial_init(struct trial *trial, const struct weight *weight)
{
    uint64_t n_x = (uint64_t)VERIFY_ROWS * weight->desc.k;
    uint64_t n_y = (uint64_t)VERIFY_ROWS * weight->desc.n;
    *trial = (struct trial){
        .x = calloc(n_x, dtype_bytes(weight->act_dtype)),
        .y = calloc(n_y, sizeof(float)),
        .reference = calloc(n_y, sizeof(double)),
    };
    if (!trial->x || !trial->y || !trial->reference) {
        trial_finish(trial);
        return err_raise(-ENOMEM);
    }
    fill_rows(trial->x, weight->act_dtype, n_x);
    return 0;
}

/* Row by row, because in double precision a large weight takes seconds. */
static int compute_reference(const struct weight *weight, const struct gk_canonical *canonical,
                             const struct trial *trial, struct progress *progress,
                             struct reason *why)
{
    uint64_t row_bytes = (uint64_t)weight->desc.k * dtype_bytes(weight->act_dtype);
    for (uint64_t i = 0; i < VERIFY_ROWS; i++) {
        int r = progress_check(progress, why);
        if (r != 0) {
            return r;
        }
        r = gk_reference_gemm(canonical, (const char *)trial->x + i * row_bytes, weight->act_dtype,
                              weight->desc.k, 1, trial->reference + i * weight->desc.n);
        if (r != 0) {
            return r;
        }
    }
    return 0;
}

static int run_kernel(const struct weight *weight, const struct trial *trial,
                      const struct gk_problem *problem, const struct gk_kernel *kernel,
                      struct reason *why)
{
    const void *x_rows[VERIFY_ROWS];
    void *y_rows[VERIFY_ROWS];
    uint64_t row_bytes = (uint64_t)weight->desc.k * dtype_bytes(weight->act_dtype);
    for (uint64_t i = 0; i < VERIFY_ROWS; i++) {
        x_rows[i] = (const char *)trial->x + i * row_bytes;
        y_rows[i] = trial->y + i * weight->desc.n;
    }
    struct gk_launch launch = {
        .problem = *problem, .packed = weight->packed.base, .x_rows = x_rows, .y_rows = y_rows};
    return device_run_alone(weight->device, kernel, &launch, why);
}

/* ||y - r|| / ||r||; 0 when both are zero, infinite or NaN where there is nothing to be relative
 * to. */
static double relative_error(const float *y, const double *reference, uint64_t n)
{
    double sum_error = 0;
    double sum_reference = 0;
    for (uint64_t i = 0; i < n; i++) {
        double difference = (double)y[i] - reference[i];
        sum_error += difference * difference;
        sum_reference += reference[i] * reference[i];
    }
    return sum_error == 0 ? 0 : sqrt(sum_error) / sqrt(sum_reference);
}

static int check_product(const struct weight *weight, const struct trial *trial, uint32_t m,
                         struct worst *worst, struct reason *why)
{
    struct gk_problem problem = weight_problem(weight);
    problem.m = m;
    problem.y_dtype = DTYPE_F32;
    const struct gk_kernel *kernel;
    int r = gk_select(&problem, &kernel, why);
    if (r == 0) {
        r = run_kernel(weight, trial, &problem, kernel, why);
    }
    if (r != 0) {
        return r;
    }
    double error = relative_error(trial->y, trial->reference, (uint64_t)m * weight->desc.n);
    double tolerance = VERIFY_TOLERANCE(weight->desc.k);
    if (!(error <= tolerance)) { /* NaN too */
        return WRONG(why, "weight '%s': kernel %s at m %u is off by %.3g, relative; at most %.1e",
                     weight->name, kernel->name, m, error, tolerance);
    }
    if (!worst->weight || error > worst->error) {
        *worst = (struct worst){error, weight->name, kernel->name, m};
    }
    return 0;
}

static int check_products(const struct weight *weight, const struct gk_canonical *canonical,
                          struct progress *progress, struct worst *worst, struct reason *why)
{
    struct trial trial;
    int r = trial_init(&trial, weight);
    if (r != 0) {
        return r;
    }
    r = compute_reference(weight, canonical, &trial, progress, why);
    if (r == 0) {
        r = check_product(weight, &trial, 1, worst, why);
    }
    if (r == 0) {
        r = check_product(weight, &trial, VERIFY_ROWS, worst, why);
    }
    trial_finish(&trial);
    return r;
}

/* ---- a model ---- */

static const struct plan_item *find_item(const struct plan *plan, const char *weight_name)
{
    const char *slash = strchr(weight_name, '/');
    GD_ASSERT(slash); /* the store's names are MODEL/module.path */
    return plan_get(plan, slash + 1);
}

static int verify_weight(const struct weight *weight, const struct plan *plan,
                         struct progress *progress, struct warnings *warnings, struct worst *worst,
                         struct reason *why)
{
    const struct plan_item *item = find_item(plan, weight->name);
    if (!item) {
        return reason_set(why, STATUS_NOT_FOUND, "weight '%s' is not in the checkpoint any more",
                          weight->name);
    }
    progress_step(progress, "%s", item->name);
    struct gk_canonical canonical;
    int r = plan_read(item, progress, warnings, &canonical, why);
    if (r != 0) {
        return r;
    }
    r = check_bits(weight, &canonical, why);
    if (r == 0) {
        r = check_products(weight, &canonical, progress, worst, why);
    }
    gk_canonical_finish(&canonical);
    return r;
}

static bool is_wanted(const struct weight *weight, const char *weight_name)
{
    return !weight_name || strcmp(weight->name, weight_name) == 0;
}

static void count_bytes(const struct model *model, const char *weight_name, const struct plan *plan,
                        struct progress *progress)
{
    uint64_t total_bytes = 0;
    for (uint32_t i = 0; i < model->n_weights; i++) {
        const struct plan_item *item = find_item(plan, model->weights[i]->name);
        if (item && is_wanted(model->weights[i], weight_name)) {
            total_bytes += plan_item_bytes(item);
        }
    }
    atomic_store(&progress->total_bytes, total_bytes);
}

static int verify_weights(const struct model *model, const char *weight_name,
                          const struct plan *plan, struct progress *progress,
                          struct warnings *warnings, char ret_report[MSG_TEXT_BYTES],
                          struct reason *why)
{
    struct worst worst = {.weight = NULL};
    uint32_t n_verified = 0;
    count_bytes(model, weight_name, plan, progress);
    for (uint32_t i = 0; i < model->n_weights; i++) {
        if (!is_wanted(model->weights[i], weight_name)) {
            continue;
        }
        int r = verify_weight(model->weights[i], plan, progress, warnings, &worst, why);
        if (r != 0) {
            return r;
        }
        n_verified++;
    }
    if (n_verified == 0) {
        return reason_set(why, STATUS_NOT_FOUND, "there is no weight '%s'",
                          weight_name ? weight_name : model->name);
    }
    (void)snprintf(ret_report, MSG_TEXT_BYTES,
                   "model '%s': %u of %u weights are bit for bit those of the checkpoint; worst "
                   "relative error %.3g, at '%s' (kernel %s, m %u)",
                   model->name, n_verified, model->n_weights, worst.error, worst.weight,
                   worst.kernel, worst.m);
    return 0;
}

int verify_model(const struct model *model, const char *weight_name, struct progress *progress,
                 struct warnings *warnings, char ret_report[MSG_TEXT_BYTES], struct reason *why)
{
    struct model_source source = MODEL_SOURCE_NULL;
    progress_step(progress, "reading headers");
    int r = model_source_open(model->path, &model->shaping, warnings, &source, why);
    if (r == 0) {
        r = verify_weights(model, weight_name, &source.plan, progress, warnings, ret_report, why);
    }
    model_source_finish(&source);
    return r;
}
