/* test-golden.c - what other people's tools wrote is what we read: every element, and every
 * product, of a layer in each format of tests/data/golden/ against that tool's own dequantisation.
 */
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cmocka_all.h"
#include "daemon/weights/safetensors.h"
#include "ipc/base/num.h"
#include "kernel_case.h"

#define GOLDEN_M    2u
#define TENSORS_MAX 8

/* A file with the tensors read from it, each one byte off any alignment. */
struct golden_file {
    struct safetensors file;
    void *tensors[TENSORS_MAX];
    uint32_t n_tensors;
};

static void golden_open(struct golden_file *golden, const char *name, const char *file_name)
{
    char path[512];
    struct reason why = REASON_NULL;
    *golden = (struct golden_file){.file = SAFETENSORS_NULL};
    (void)snprintf(path, sizeof(path), "%s/tests/data/golden/%s", getenv("GEMMD_SOURCE_DIR"), name);
    int folder_fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(folder_fd >= 0);
    if (safetensors_open(folder_fd, file_name, &golden->file, &why) != 0) {
        fail_msg("%s: %s", name, why.text);
    }
    close(folder_fd);
}

static void golden_close(struct golden_file *golden)
{
    for (uint32_t i = 0; i < golden->n_tensors; i++) {
        free(golden->tensors[i]);
    }
    safetensors_finish(&golden->file);
}

/* NULL when the file has no such tensor. */
static const void *tensor_if_any(struct golden_file *golden, const char *name)
{
    const struct safetensors_tensor *tensor = safetensors_find(&golden->file, name);
    if (tensor == NULL) {
        return NULL;
    }
    assert_true(golden->n_tensors < TENSORS_MAX);
    char *memory = malloc(tensor->size_bytes + 1);
    golden->tensors[golden->n_tensors++] = memory;
    assert_int_equal(
        safetensors_read(&golden->file, tensor, 0, memory + 1, tensor->size_bytes, NULL), 0);
    return memory + 1;
}

static const void *tensor_of(struct golden_file *golden, const char *name)
{
    const void *bytes = tensor_if_any(golden, name);
    if (bytes == NULL) {
        fail_msg("no tensor '%s'", name);
    }
    return bytes;
}

/* ---- one reader of each family ---- */

struct golden_case;
typedef int read_function(const struct golden_case *golden, struct golden_file *file,
                          struct gk_canonical *canonical, struct reason *why);

struct golden_case {
    const char *name;
    read_function *read;
    struct gk_desc desc;
    bool is_v1;
    /* 0: the tool's f32 holds code times scale exactly. Else it rounds once, to scales of f32, or
     * twice, with a global scale. */
    double tolerance;
};

#define ROUNDED_ONCE  0x1p-24
#define ROUNDED_TWICE 0x1p-23

static int read_g_idx(const struct golden_case *golden, const void *g_idx,
                      struct gk_canonical *canonical, struct reason *why)
{
    enum gk_g_idx kind;
    uint32_t perm[256];
    int r = gk_g_idx_read(g_idx, golden->desc.k, golden->desc.group_k, golden->desc.has_perm, perm,
                          &kind, why);
    if (r != 0) {
        return r;
    }
    assert_int_equal(kind, golden->desc.has_perm ? GK_G_IDX_ORDER : GK_G_IDX_PLAIN);
    if (golden->desc.has_perm) {
        memcpy(canonical->perm, perm, golden->desc.k * sizeof(*perm));
    }
    return 0;
}

static int read_gptq(const struct golden_case *golden, struct golden_file *file,
                     struct gk_canonical *canonical, struct reason *why)
{
    const struct gk_gptq source = {tensor_of(file, "layer.qweight"),
                                   tensor_of(file, "layer.qzeros"), tensor_of(file, "layer.scales"),
                                   golden->is_v1};
    int r = read_g_idx(golden, tensor_of(file, "layer.g_idx"), canonical, why);
    return r != 0 ? r : gk_gptq_read(&source, canonical, NULL, why);
}

static int read_awq(const struct golden_case *golden, struct golden_file *file,
                    struct gk_canonical *canonical, struct reason *why)
{
    (void)golden;
    const struct gk_awq source = {tensor_of(file, "layer.qweight"), tensor_of(file, "layer.qzeros"),
                                  tensor_of(file, "layer.scales")};
    return gk_awq_read(&source, canonical, why);
}

static int read_ct_packed(const struct golden_case *golden, struct golden_file *file,
                          struct gk_canonical *canonical, struct reason *why)
{
    const struct gk_ct_packed source = {
        tensor_of(file, "layer.weight_packed"), tensor_of(file, "layer.weight_scale"),
        tensor_if_any(file, "layer.weight_zero_point"), tensor_of(file, "layer.weight_shape")};
    if (golden->desc.has_perm) {
        int r = read_g_idx(golden, tensor_of(file, "layer.weight_g_idx"), canonical, why);
        if (r != 0) {
            return r;
        }
    }
    return gk_ct_packed_read(&source, canonical, why);
}

static int read_int8(const struct golden_case *golden, struct golden_file *file,
                     struct gk_canonical *canonical, struct reason *why)
{
    (void)golden;
    const struct gk_int8 source = {tensor_of(file, "layer.weight"),
                                   tensor_of(file, "layer.weight_scale"),
                                   tensor_if_any(file, "layer.weight_zero_point")};
    return gk_int8_read(&source, canonical, why);
}

static int read_fp8(const struct golden_case *golden, struct golden_file *file,
                    struct gk_canonical *canonical, struct reason *why)
{
    (void)golden;
    const void *scale = tensor_if_any(file, "layer.weight_scale_inv");
    const struct gk_fp8 source = {tensor_of(file, "layer.weight"),
                                  scale != NULL ? scale : tensor_of(file, "layer.weight_scale")};
    return gk_fp8_read(&source, canonical, why);
}

static int read_fp4(const struct golden_case *golden, struct golden_file *file,
                    struct gk_canonical *canonical, struct reason *why)
{
    bool is_modelopt = golden->desc.column_scale == GK_COLUMN_SCALE_MULTIPLIES;
    const struct gk_fp4 source = {
        tensor_of(file, is_modelopt ? "layer.weight" : "layer.weight_packed"),
        tensor_of(file, "layer.weight_scale"),
        tensor_if_any(file, is_modelopt ? "layer.weight_scale_2" : "layer.weight_global_scale")};
    return gk_fp4_read(&source, canonical, why);
}

/* ---- comparison ---- */

/* A weight that was read, with the tool's own numbers. */
struct golden_weight {
    const struct golden_case *golden;
    struct gk_canonical canonical;
    struct golden_file expected;
};

static void check_elements(struct golden_weight *it)
{
    const struct gk_canonical *canonical = &it->canonical;
    const char *rows = tensor_of(&it->expected, "rows");
    const void *values = tensor_of(&it->expected, "weight");
    uint64_t n_rows = safetensors_find(&it->expected.file, "rows")->dims[0];
    assert_int_equal(n_rows, 8);
    for (uint32_t i = 0; i < n_rows * canonical->desc.k; i++) {
        uint32_t i_n, i_k = i % canonical->desc.k;
        memcpy(&i_n, rows + i / canonical->desc.k * sizeof(i_n), sizeof(i_n));
        double expected = elem_load(values, DTYPE_F32, i);
        double value = gk_canonical_value(canonical, i_n, i_k);
        if (fabs(value - expected) > it->golden->tolerance * fabs(expected)) {
            fail_msg("%s: element (%u, %u) is %.17g, not %.17g", it->golden->name, i_n, i_k, value,
                     expected);
        }
    }
}

/* Sum of |x w|: what rounding errors of a product are measured by. */
static double magnitude(const struct golden_weight *it, const void *x, uint32_t i_m, uint32_t i_n)
{
    uint32_t k = it->canonical.desc.k;
    double sum = 0;
    for (uint32_t i_k = 0; i_k < k; i_k++) {
        double w = gk_canonical_value(&it->canonical, i_n, i_k);
        sum += fabs(elem_load(x, DTYPE_F32, (uint64_t)i_m * k + i_k) * w);
    }
    return sum;
}

static void check_product(const struct golden_weight *it, const char *who, double y, uint32_t i,
                          const void *x, const char *expected_y, double tolerance)
{
    uint32_t n = it->canonical.desc.n;
    double expected;
    memcpy(&expected, expected_y + i * sizeof(expected), sizeof(expected));
    if (!(fabs(y - expected) <= tolerance * magnitude(it, x, i / n, i % n))) {
        fail_msg("%s, %s: y (%u, %u) is %.17g, not %.17g", it->golden->name, who, i / n, i % n, y,
                 expected);
    }
}

static void check_reference(struct golden_weight *it)
{
    const struct gk_desc *desc = &it->canonical.desc;
    const void *x = tensor_of(&it->expected, "x");
    const void *expected = tensor_of(&it->expected, "y");
    double *y = calloc((uint64_t)GOLDEN_M * desc->n, sizeof(*y));
    assert_int_equal(gk_reference_gemm(&it->canonical, x, DTYPE_F32, desc->k, GOLDEN_M, y), 0);
    for (uint32_t i = 0; i < GOLDEN_M * desc->n; i++) {
        check_product(it, "reference", y[i], i, x, expected, it->golden->tolerance + 0x1p-45);
    }
    free(y);
}

/* kernels/NUMERICS.md: a rounding for each k of a block, each block and each scale; no block is
 * shorter than 16. */
static void check_kernels(struct golden_weight *it)
{
    const struct gk_desc *desc = &it->canonical.desc;
    const char *x_bytes = tensor_of(&it->expected, "x");
    const void *expected = tensor_of(&it->expected, "y");
    struct rows_case x, y;
    struct weight_case weight;
    weight_case_init(&weight, &it->canonical);
    rows_init(&x, GOLDEN_M, desc->k, DTYPE_F32);
    rows_init(&y, GOLDEN_M, desc->n, DTYPE_F32);
    for (uint32_t i_m = 0; i_m < GOLDEN_M; i_m++) {
        memcpy(x.rows[i_m], x_bytes + i_m * x.row_bytes, x.row_bytes);
    }
    double tolerance = (128 + desc->k / 16 + 8) * 0x1p-24;
    uint32_t n_kernels, n_run = 0;
    const struct gk_kernel *const *kernels = gk_kernels(GK_DEVICE_HOST, &n_kernels);
    for (uint32_t i = 0; i < n_kernels; i++) {
        if (!kernel_fits(kernels[i], &weight, &x, &y)) {
            continue;
        }
        kernel_run(kernels[i], &weight, &x, &y, 1);
        for (uint32_t j = 0; j < GOLDEN_M * desc->n; j++) {
            double value = elem_load(y.rows[j / desc->n], DTYPE_F32, j % desc->n);
            check_product(it, kernels[i]->name, value, j, x_bytes, expected, tolerance);
        }
        n_run++;
    }
    assert_true(n_run > 0);
    rows_finish(&x);
    rows_finish(&y);
    weight_case_finish(&weight); /* and the canonical weight, which it took over */
}

static void check(void **state)
{
    const struct golden_case *golden = *state;
    struct golden_weight it = {.golden = golden};
    struct golden_file file;
    struct reason why = REASON_NULL;
    golden_open(&file, golden->name, "model.safetensors");
    golden_open(&it.expected, golden->name, "expected.safetensors");
    if (gk_desc_check(&golden->desc, &why) != 0) {
        fail_msg("%s: %s", golden->name, why.text);
    }
    assert_int_equal(gk_canonical_alloc(&it.canonical, &golden->desc), 0);
    if (golden->read(golden, &file, &it.canonical, &why) != 0) {
        fail_msg("%s: %s", golden->name, why.text);
    }
    check_elements(&it);
    check_reference(&it);
    check_kernels(&it);
    golden_close(&it.expected);
    golden_close(&file);
}

/* ---- the cases ---- */

#define DESC(n_, k_, code_, group_n_, group_k_, scale_dtype_, ...)                                 \
    {                                                                                              \
        .n = (n_), .k = (k_), .code = (code_), .group_n = (group_n_), .group_k = (group_k_),       \
        .scale_dtype = (scale_dtype_), __VA_ARGS__                                                 \
    }

static struct golden_case CASES[] = {
    {"gptq-v1-int4-sym", read_gptq, DESC(64, 128, GK_CODE_U4, 1, 32, DTYPE_F16), .is_v1 = true},
    {"gptq-v1-int4-asym", read_gptq, DESC(64, 128, GK_CODE_U4, 1, 64, DTYPE_F16, .has_zeros = true),
     .is_v1 = true},
    {"gptq-v1-int8-asym", read_gptq, DESC(64, 128, GK_CODE_U8, 1, 64, DTYPE_F16, .has_zeros = true),
     .is_v1 = true},
    {"gptq-v2-int4-act-order", read_gptq,
     DESC(64, 128, GK_CODE_U4, 1, 32, DTYPE_F16, .has_zeros = true, .has_perm = true)},
    {"gptq-v2-int8-channel", read_gptq, DESC(64, 128, GK_CODE_U8, 1, 128, DTYPE_F16)},
    {"awq-int4", read_awq, DESC(64, 128, GK_CODE_U4, 1, 32, DTYPE_F16, .has_zeros = true)},
    {"ct-int4-sym", read_ct_packed, DESC(66, 128, GK_CODE_U4, 1, 32, DTYPE_BF16)},
    {"ct-int4-asym", read_ct_packed,
     DESC(66, 128, GK_CODE_U4, 1, 32, DTYPE_BF16, .has_zeros = true)},
    {"ct-int4-act-order", read_ct_packed,
     DESC(64, 128, GK_CODE_U4, 1, 32, DTYPE_F16, .has_perm = true)},
    {"ct-int8-packed-asym", read_ct_packed,
     DESC(66, 130, GK_CODE_U8, 1, 130, DTYPE_BF16, .has_zeros = true)},
    {"ct-int8-w8a8", read_int8, DESC(64, 128, GK_CODE_U8, 1, 128, DTYPE_BF16)},
    {"ct-int8-asym", read_int8, DESC(64, 128, GK_CODE_U8, 1, 128, DTYPE_BF16, .has_zeros = true)},
    {"ct-fp8-tensor", read_fp8, DESC(64, 128, GK_CODE_E4M3, 64, 128, DTYPE_BF16)},
    {"ct-fp8-channel", read_fp8, DESC(64, 128, GK_CODE_E4M3, 1, 128, DTYPE_BF16)},
    {"ct-fp8-block", read_fp8, DESC(72, 136, GK_CODE_E4M3, 72, 128, DTYPE_BF16)},
    {"fp8-block", read_fp8, DESC(64, 256, GK_CODE_E4M3, 32, 128, DTYPE_F32),
     .tolerance = ROUNDED_ONCE},
    {"modelopt-fp8", read_fp8, DESC(64, 128, GK_CODE_E4M3, 64, 128, DTYPE_F32),
     .tolerance = ROUNDED_ONCE},
    {"ct-mxfp8", read_fp8, DESC(64, 128, GK_CODE_E4M3, 1, 32, DTYPE_F8_E8M0)},
    {"modelopt-mxfp8", read_fp8, DESC(64, 128, GK_CODE_E4M3, 1, 32, DTYPE_F8_E8M0)},
    {"ct-mxfp4", read_fp4, DESC(64, 128, GK_CODE_E2M1, 1, 32, DTYPE_F8_E8M0)},
    {"ct-nvfp4", read_fp4,
     DESC(64, 128, GK_CODE_E2M1, 1, 16, DTYPE_F8_E4M3, .column_scale = GK_COLUMN_SCALE_DIVIDES),
     .tolerance = ROUNDED_TWICE},
    {"modelopt-nvfp4", read_fp4,
     DESC(64, 128, GK_CODE_E2M1, 1, 16, DTYPE_F8_E4M3, .column_scale = GK_COLUMN_SCALE_MULTIPLIES),
     .tolerance = ROUNDED_TWICE},
};

int main(void)
{
    struct CMUnitTest tests[ARRAY_LENGTH(CASES)];
    for (uint32_t i = 0; i < ARRAY_LENGTH(CASES); i++) {
        tests[i] = (struct CMUnitTest){CASES[i].name, check, NULL, NULL, &CASES[i]};
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
