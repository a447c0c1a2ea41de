/* bench.c - see bench.h. */
#include "tests/unit/engine/bench.h"

#include "tests/unit/engine/cmocka_all.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ipc/base/half.h"

/* Shapes that are multiples of nothing but what the formats demand. */
static const struct gk_desc descs[N_WEIGHTS] = {
    [WEIGHT_INT4] = {.n = 200,
                     .k = 320,
                     .code = GK_CODE_U4,
                     .group_n = 1,
                     .group_k = 64,
                     .scale_dtype = DTYPE_F16,
                     .bias_dtype = DTYPE_F16},
    [WEIGHT_PLAIN] = {.n = 72, .k = 96, .code = GK_CODE_BF16},
    [WEIGHT_FP8_GROUP] = {.n = 140,
                          .k = 200,
                          .code = GK_CODE_E4M3,
                          .group_n = 128,
                          .group_k = 128,
                          .scale_dtype = DTYPE_F32,
                          .act = GK_ACT_FP8_GROUP},
    [WEIGHT_FP8_TENSOR] = {.n = 70,
                           .k = 90,
                           .code = GK_CODE_E4M3,
                           .group_n = 70,
                           .group_k = 90,
                           .scale_dtype = DTYPE_F32,
                           .act = GK_ACT_FP8_TENSOR,
                           .act_scale = 0x1p-9f},
    [WEIGHT_INT8_TOKEN] = {.n = 76,
                           .k = 104,
                           .code = GK_CODE_U8,
                           .group_n = 1,
                           .group_k = 104,
                           .scale_dtype = DTYPE_F32,
                           .act = GK_ACT_INT8_TOKEN},
};

static uint32_t random_bits(uint32_t *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return *seed >> 8;
}

static float random_value(uint32_t *seed)
{
    return (float)((int32_t)(random_bits(seed) & 0xffff) - 0x8000) / 32768.0f;
}

static void put_value(void *array, uint64_t i, enum dtype dtype, float value)
{
    uint16_t half = dtype == DTYPE_BF16 ? bf16_from_f32(value) : half_from_f32(value);
    if (dtype == DTYPE_F32) {
        memcpy((uint8_t *)array + i * 4, &value, 4);
    } else {
        memcpy((uint8_t *)array + i * 2, &half, 2);
    }
}

/* Any code of that kind but NaN. */
static uint8_t random_code(enum gk_code code, uint32_t *seed)
{
    uint8_t bits = (uint8_t)random_bits(seed);
    if (code == GK_CODE_U4) {
        return bits & 15u;
    }
    return code == GK_CODE_E4M3 && (bits & 0x7f) == 0x7f ? 0 : bits;
}

static void fill_canonical(struct gk_canonical *canonical, uint32_t seed)
{
    const struct gk_desc *desc = &canonical->desc;
    uint64_t n_values = (uint64_t)desc->n * desc->k;
    bool is_plain = gk_code_is_plain(desc->code);
    for (uint64_t i = 0; is_plain && i < n_values; i++) {
        put_value(canonical->codes, i, gk_code_dtype(desc->code), random_value(&seed));
    }
    for (uint64_t i = 0; !is_plain && i < n_values; i++) {
        ((uint8_t *)canonical->codes)[i] = random_code(desc->code, &seed);
    }
    uint64_t n_scales = (uint64_t)gk_desc_groups(desc) * gk_desc_scale_columns(desc);
    for (uint64_t i = 0; !is_plain && i < n_scales; i++) {
        put_value(canonical->scales, i, desc->scale_dtype, 0.25f + (float)(i % 7) / 16.0f);
    }
    for (uint64_t i = 0; desc->bias_dtype != DTYPE_NONE && i < desc->n; i++) {
        put_value(canonical->bias, i, desc->bias_dtype, random_value(&seed));
    }
}

static struct weight *make_weight(struct bench *bench, uint32_t i_weight)
{
    struct weight *weight;
    struct gk_canonical canonical;
    struct reason why = REASON_NULL;
    assert_int_equal(weight_new(bench->device, &weight), 0);
    (void)snprintf(weight->name, sizeof(weight->name), "bench/w%u", i_weight);
    weight->desc = descs[i_weight];
    weight->act_dtype = DTYPE_F16;
    weight->layout = gk_layout_for(&weight->desc, GK_DEVICE_HOST);
    assert_non_null(weight->layout);
    uint64_t size_bytes = weight->layout->packed_bytes(&weight->desc);
    assert_int_equal(
        bench->device->ops->region_new(bench->device, "weight", size_bytes, &weight->packed, &why),
        0);
    assert_int_equal(gk_canonical_alloc(&canonical, &weight->desc), 0);
    fill_canonical(&canonical, 17 + i_weight);
    weight->layout->pack(&canonical, weight->packed.base);
    gk_canonical_finish(&canonical);
    const struct gk_problem problem = weight_problem(weight);
    uint64_t scratch_bytes = gk_workspace_max(&problem);
    assert_int_equal(bench->device->ops->reserve(bench->device, scratch_bytes, 0, &why), 0);
    return weight;
}

static void publish(struct bench *bench)
{
    struct model *model = calloc(1, sizeof(*model));
    assert_non_null(model);
    (void)snprintf(model->name, sizeof(model->name), "bench");
    model->device = bench->device;
    model->act_dtype = DTYPE_F16;
    model->n_weights = N_WEIGHTS;
    model->weights = calloc(N_WEIGHTS, sizeof(struct weight *));
    assert_non_null(model->weights);
    for (uint32_t i = 0; i < N_WEIGHTS; i++) {
        model->weights[i] = make_weight(bench, i);
        bench->weights[i] = weight_ref(model->weights[i]);
    }
    assert_int_equal(store_publish(bench->store, model), 0);
}

void bench_init(struct bench *bench, uint32_t n_threads)
{
    struct reason why = REASON_NULL;
    struct quota_limits limits;
    *bench = (struct bench){0};
    for (int i = 0; i < QUOTA_KINDS; i++) {
        limits.per_user[i] = limits.total[i] = 1u << 30;
    }
    assert_int_equal(device_open("host", 0, n_threads, &bench->device, &why), 0);
    assert_int_equal(store_new(&bench->store), 0);
    assert_int_equal(quota_new(&limits, &bench->quota), 0);
    publish(bench);
}

void bench_finish(struct bench *bench)
{
    for (uint32_t i = 0; i < bench->n_views; i++) {
        region_finish(&bench->views[i]);
    }
    for (uint32_t i = 0; i < N_WEIGHTS; i++) {
        (void)weight_unref(bench->weights[i]);
    }
    (void)store_free(bench->store);
    (void)quota_free(bench->quota);
    (void)device_close(bench->device);
}

struct buffers *bench_buffers(void)
{
    struct buffers *buffers;
    assert_int_equal(buffers_new(16, &buffers), 0);
    return buffers;
}

uint64_t bench_add(struct bench *bench, struct buffers *buffers, uint64_t size_bytes,
                   uint8_t **ret_base)
{
    struct region region = REGION_NULL;
    struct quota_charge charge = QUOTA_CHARGE_NULL;
    uint64_t id;
    assert_int_equal(
        bench->device->ops->region_new(bench->device, "buffer", size_bytes, &region, NULL), 0);
    assert_int_equal(quota_take(bench->quota, 1, (uint64_t[]){0, 1, size_bytes, 1}, &charge, NULL),
                     0);
    assert_true(bench->n_views < BENCH_VIEWS_MAX);
    struct region *view = &bench->views[bench->n_views++];
    assert_int_equal(region_attach(view, fcntl(region.fd, F_DUPFD_CLOEXEC, 0), region.size_bytes),
                     0);
    *ret_base = view->base;
    assert_int_equal(buffers_add(buffers, bench->device, &region, &charge, &id, NULL), 0);
    return id;
}

struct request_desc bench_desc(const struct weight *weight, uint64_t request_id, uint32_t m,
                               const struct place *x, const struct place *y)
{
    return (struct request_desc){
        .request_id = request_id,
        .weight_id = weight->slot_id,
        .x_buffer_id = x->buffer_id,
        .x_offset_bytes = x->offset_bytes,
        .x_stride_elems = x->stride_elems,
        .y_buffer_id = y->buffer_id,
        .y_offset_bytes = y->offset_bytes,
        .y_stride_elems = y->stride_elems,
        .m = m,
        .n = weight->desc.n,
        .k = weight->desc.k,
        .op = REQUEST_OP_GEMM,
        .x_dtype = (uint8_t)x->dtype,
        .y_dtype = (uint8_t)y->dtype,
    };
}

static uint8_t *row_of(const struct place *place, uint64_t i_row)
{
    return place->base + place->offset_bytes +
           i_row * place->stride_elems * dtype_bytes(place->dtype);
}

void bench_fill(const struct place *x, uint32_t m, uint32_t k, uint32_t seed)
{
    for (uint32_t i_row = 0; i_row < m; i_row++) {
        for (uint32_t i = 0; i < k; i++) {
            put_value(row_of(x, i_row), i, x->dtype, random_value(&seed));
        }
    }
}

bool bench_row_is_right(const struct weight *weight, const struct place *x, const struct place *y,
                        uint32_t i_row)
{
    const void *x_rows[] = {row_of(x, i_row)};
    uint64_t row_bytes = (uint64_t)weight->desc.n * dtype_bytes(y->dtype);
    void *expected = calloc(1, row_bytes);
    void *y_rows[] = {expected};
    const struct gk_problem like = weight_problem(weight);
    struct gk_launch launch = {
        .problem = {weight->desc, weight->layout, 1, x->dtype, y->dtype},
        .packed = weight->packed.base,
        .x_rows = x_rows,
        .y_rows = y_rows,
        .workspace = aligned_alloc(64, gk_workspace_max(&like) / 64 * 64 + 64),
    };
    const struct gk_kernel *kernel;
    struct reason why = REASON_NULL;
    assert_int_equal(gk_select(&launch.problem, &kernel, &why), 0);
    kernel->prepare(&launch, 0, 1);
    kernel->run(&launch, 0, 1);
    bool is_right = memcmp(expected, row_of(y, i_row), row_bytes) == 0;
    free(launch.workspace);
    free(expected);
    return is_right;
}

bool bench_is_right(const struct weight *weight, const struct place *x, const struct place *y,
                    uint32_t m)
{
    for (uint32_t i = 0; i < m; i++) {
        if (!bench_row_is_right(weight, x, y, i)) {
            return false;
        }
    }
    return true;
}
