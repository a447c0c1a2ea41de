/* kernel_case.c - see kernel_case.h. Guard zones are 64 bytes of 0x5a before and after each row and
 * around the workspace; y and the workspace are filled with 0xff (NaN in every type) before a run.
 */
#include <stdlib.h>
#include <string.h>

#include "cmocka_all.h"
#include "ipc/base/num.h"
#include "kernel_case.h"

#define GUARD_BYTES 64u
#define GUARD_BYTE  0x5a
#define POISON_BYTE 0xff

void weight_case_init(struct weight_case *weight, const struct gk_canonical *canonical)
{
    weight->canonical = *canonical;
    weight->layout = gk_layout_for(&canonical->desc, GK_DEVICE_HOST);
    assert_non_null(weight->layout);
    uint64_t size_bytes = weight->layout->packed_bytes(&canonical->desc);
    weight->packed = aligned_alloc(64, size_bytes);
    assert_non_null(weight->packed);
    weight->layout->pack(canonical, weight->packed);
}

void weight_case_finish(struct weight_case *weight)
{
    free(weight->packed);
    gk_canonical_finish(&weight->canonical);
}

/* A row starts one element past a 64-byte boundary: aligned to its elements and to nothing more. */
void rows_init(struct rows_case *rows, uint32_t m, uint32_t n_elems, enum dtype dtype)
{
    *rows = (struct rows_case){.m = m, .dtype = dtype, .row_bytes = n_elems * dtype_bytes(dtype)};
    uint64_t pitch = num_align_up(rows->row_bytes + dtype_bytes(dtype) + 2 * GUARD_BYTES, 64);
    rows->memory = aligned_alloc(64, pitch * m);
    assert_non_null(rows->memory);
    memset(rows->memory, GUARD_BYTE, pitch * m);
    for (uint32_t i = 0; i < m; i++) {
        rows->rows[i] = rows->memory + i * pitch + GUARD_BYTES + dtype_bytes(dtype);
    }
}

void rows_finish(struct rows_case *rows)
{
    free(rows->memory);
}

void rows_random(struct rows_case *rows, struct random *random)
{
    for (uint32_t i = 0; i < rows->m; i++) {
        for (uint32_t j = 0; j < rows->row_bytes / dtype_bytes(rows->dtype); j++) {
            elem_store(rows->rows[i], rows->dtype, j, random_unit(random));
        }
    }
}

void rows_poison(struct rows_case *rows)
{
    for (uint32_t i = 0; i < rows->m; i++) {
        memset(rows->rows[i], POISON_BYTE, rows->row_bytes);
    }
}

static void assert_guard(const uint8_t *guard)
{
    for (uint32_t i = 0; i < GUARD_BYTES; i++) {
        assert_int_equal(guard[i], GUARD_BYTE);
    }
}

void rows_assert_guards(const struct rows_case *rows)
{
    for (uint32_t i = 0; i < rows->m; i++) {
        assert_guard((const uint8_t *)rows->rows[i] - GUARD_BYTES);
        assert_guard((const uint8_t *)rows->rows[i] + rows->row_bytes);
    }
}

void rows_assert_equal(const struct rows_case *a, const struct rows_case *b)
{
    assert_int_equal(a->m, b->m);
    for (uint32_t i = 0; i < a->m; i++) {
        assert_memory_equal(a->rows[i], b->rows[i], a->row_bytes);
    }
}

const struct gk_kernel *kernel_find(const char *name)
{
    uint32_t n_kernels;
    const struct gk_kernel *const *kernels = gk_kernels(GK_DEVICE_HOST, &n_kernels);
    for (uint32_t i = 0; i < n_kernels; i++) {
        if (strcmp(kernels[i]->name, name) == 0) {
            return kernels[i];
        }
    }
    return NULL;
}

static struct gk_problem problem_of(const struct weight_case *weight, const struct rows_case *x,
                                    const struct rows_case *y)
{
    return (struct gk_problem){.desc = weight->canonical.desc,
                               .layout = weight->layout,
                               .m = x->m,
                               .x_dtype = x->dtype,
                               .y_dtype = y->dtype};
}

bool kernel_fits(const struct gk_kernel *kernel, const struct weight_case *weight,
                 const struct rows_case *x, const struct rows_case *y)
{
    struct gk_problem problem = problem_of(weight, x, y);
    return kernel->can_implement(&problem, NULL) == 0;
}

const struct gk_kernel *kernel_best(const struct weight_case *weight, const struct rows_case *x,
                                    const struct rows_case *y)
{
    struct gk_problem problem = problem_of(weight, x, y);
    const struct gk_kernel *kernel = NULL;
    struct reason why = REASON_NULL;
    if (gk_select(&problem, &kernel, &why) != 0) {
        fail_msg("%s", why.text);
    }
    return kernel;
}

void kernel_run(const struct gk_kernel *kernel, const struct weight_case *weight,
                const struct rows_case *x, struct rows_case *y, uint32_t n_parts)
{
    struct gk_launch launch = {.problem = problem_of(weight, x, y),
                               .packed = weight->packed,
                               .x_rows = (const void *const *)x->rows,
                               .x_scale_rows = x->has_scales ? x->scales : NULL,
                               .y_rows = y->rows};
    uint64_t size_bytes = kernel->workspace_bytes(&launch.problem);
    uint8_t *memory = aligned_alloc(64, num_align_up(size_bytes, 64) + 2 * GUARD_BYTES);
    assert_non_null(memory);
    memset(memory, GUARD_BYTE, num_align_up(size_bytes, 64) + 2 * GUARD_BYTES);
    memset(memory + GUARD_BYTES, POISON_BYTE, size_bytes);
    launch.workspace = memory + GUARD_BYTES;
    rows_poison(y);
    /* Last part first: no part may lean on another's having gone before. */
    for (uint32_t i = n_parts; i-- > 0;) {
        kernel->prepare(&launch, i, n_parts);
    }
    for (uint32_t i = n_parts; i-- > 0;) {
        kernel->run(&launch, i, n_parts);
    }
    rows_assert_guards(x);
    rows_assert_guards(y);
    assert_guard(memory);
    assert_guard(memory + GUARD_BYTES + size_bytes);
    free(memory);
}

const struct gk_kernel *portable_of(const struct weight_case *weight)
{
    switch (weight->canonical.desc.code) {
    case GK_CODE_U4:
        return kernel_find("portable_int4_gemm_group");
    case GK_CODE_U8:
        return kernel_find("portable_int8_gemm_group");
    case GK_CODE_E4M3:
        return kernel_find("portable_fp8_gemm_group");
    case GK_CODE_E2M1:
        return kernel_find("portable_fp4_gemm_group");
    default:
        return kernel_find("portable_plain_gemm");
    }
}
