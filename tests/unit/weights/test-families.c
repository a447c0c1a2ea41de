/* Every family of checkpoints, written by the tests' own writer and read back element by element.
 * Cases T09, T12, T13, T14, T40 as they concern what is found and read. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "ipc/base/num.h"
#include "tests/harness/family_cases.h"
#include "tests/harness/random.h"

#include "daemon/weights/model_load.h"
#include "daemon/weights/module_read.h"

struct fixture {
    struct temp_folder folder;
    struct model_source source;
    struct progress progress;
    struct warnings warnings;
    struct reason why;
};

static struct fixture f;

static const struct msg_shaping whole = {.tp_size = 1};

static void forget(void)
{
    model_source_finish(&f.source);
    warnings_finish(&f.warnings);
    f.why = REASON_NULL;
}

static int set_up(void **state)
{
    (void)state;
    f = (struct fixture){.source = MODEL_SOURCE_NULL};
    temp_folder_init(&f.folder);
    progress_init(&f.progress);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    forget();
    progress_finish(&f.progress);
    temp_folder_finish(&f.folder);
    return 0;
}

#define FP8(rest) "{\"quantization_config\":{\"quant_method\":\"fp8\"," rest "}}"

/* ---- reading back ---- */

static void write_model(const char *config, const struct tensor_file *file)
{
    forget();
    write_text(temp_path(&f.folder, "config.json"), config);
    tensor_file_write(file, temp_path(&f.folder, "model.safetensors"));
}

static void expect_same_desc(size_t i_case, const struct gk_desc *found,
                             const struct gk_desc *expected)
{
    char text[2][128];
    gk_desc_format(found, text[0], sizeof(text[0]));
    gk_desc_format(expected, text[1], sizeof(text[1]));
    bool is_same =
        strcmp(text[0], text[1]) == 0 && found->n == expected->n && found->k == expected->k &&
        found->act_scale == expected->act_scale && found->act_zero == expected->act_zero &&
        found->is_act_scale_pow2 == expected->is_act_scale_pow2 &&
        found->bias_dtype == expected->bias_dtype && found->column_scale == expected->column_scale;
    if (!is_same) {
        fail_msg("case %zu: %u x %u %s, expected %u x %u %s", i_case, found->n, found->k, text[0],
                 expected->n, expected->k, text[1]);
    }
}

static void expect_same_weight(size_t i_case, const struct gk_canonical *found,
                               const struct gk_canonical *expected)
{
    for (uint32_t i_n = 0; i_n < expected->desc.n; i_n++) {
        for (uint32_t i_k = 0; i_k < expected->desc.k; i_k++) {
            double a = gk_canonical_value(found, i_n, i_k);
            double b = gk_canonical_value(expected, i_n, i_k);
            if (a != b) {
                fail_msg("case %zu: [%u, %u] is %g, expected %g", i_case, i_n, i_k, a, b);
            }
        }
        assert_true(gk_canonical_bias(found, i_n) == gk_canonical_bias(expected, i_n));
    }
}

static void read_back(size_t i_case, const struct family_case *family)
{
    uint64_t random = i_case * 2 + 1;
    struct gk_canonical written;
    struct gk_canonical read;
    struct tensor_file file;
    random_weight(&written, &family->desc, &random);
    tensor_file_init(&file);
    tensor_file_add_weight(&file, "a.b", family->family, &written);
    write_model(family->config, &file);
    tensor_file_finish(&file);
    int r = model_source_open(f.folder.path, &whole, &f.warnings, &f.source, &f.why);
    if (r != 0) {
        fail_msg("case %zu: %s", i_case, f.why.text);
    }
    assert_int_equal(f.warnings.n, 0);
    assert_int_equal(f.source.modules.n, 1);
    const struct module *module = &f.source.modules.items[0];
    expect_same_desc(i_case, &module->desc, &family->desc);
    r = module_read(module, &f.progress, &f.warnings, &read, &f.why);
    if (r != 0) {
        fail_msg("case %zu: %s", i_case, f.why.text);
    }
    expect_same_weight(i_case, &read, &written);
    gk_canonical_finish(&read);
    gk_canonical_finish(&written);
}

static void test_read_back(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < n_family_cases; i++) {
        read_back(i, &family_cases[i]);
    }
}

/* ---- shapes of scales ---- */

/* An FP8 layer (n 24, k 40) whose scales are written with any shape; T13, T35, T40. */
static int find_with_scales(const char *leaf, const char *dtype, uint32_t n_dims,
                            const uint64_t *dims, const void *scales, uint64_t size_bytes)
{
    static const uint64_t weight_dims[] = {24, 40};
    static uint8_t weight[24 * 40];
    struct tensor_file file;
    memset(weight, 0x38, sizeof(weight)); /* 1.0 */
    tensor_file_init(&file);
    tensor_file_add(&file, "p.weight", "F8_E4M3", 2, weight_dims, weight, sizeof(weight));
    if (leaf) {
        tensor_file_add(&file, leaf, dtype, n_dims, dims, scales, size_bytes);
    }
    write_model(FP8("\"activation_scheme\":\"dynamic\""), &file);
    tensor_file_finish(&file);
    return model_source_open(f.folder.path, &whole, &f.warnings, &f.source, &f.why);
}

static void expect_last_value(double value, uint32_t group_n)
{
    struct gk_canonical read;
    assert_int_equal(f.source.modules.items[0].desc.group_n, group_n);
    assert_int_equal(
        module_read(&f.source.modules.items[0], &f.progress, &f.warnings, &read, &f.why), 0);
    assert_true(gk_canonical_value(&read, 23, 39) == value);
    gk_canonical_finish(&read);
}

static void test_scales_of_any_rank(void **state)
{
    (void)state;
    static const struct {
        uint32_t n_dims;
        uint64_t dims[4];
        uint32_t group_n;
    } shapes[] = {
        {0, {0}, 24},    {1, {1}, 24}, {2, {1, 1}, 24},
        {2, {24, 1}, 1}, {1, {24}, 1}, {4, {24, 1, 1, 1}, 1},
    };
    static float scales[24];
    for (size_t i = 0; i < ARRAY_LENGTH(scales); i++) {
        scales[i] = 0.15625f;
    }
    static const char *const leaves[] = {"p.weight_scale", "p.weight_scale_inv"};
    for (size_t i = 0; i < ARRAY_LENGTH(shapes) * 2; i++) {
        size_t i_shape = i / 2;
        uint64_t n_scales = shapes[i_shape].group_n == 1 ? 24 : 1;
        int r = find_with_scales(leaves[i % 2], "F32", shapes[i_shape].n_dims, shapes[i_shape].dims,
                                 scales, n_scales * sizeof(float));
        assert_int_equal(r, 0);
        expect_last_value(0.15625, shapes[i_shape].group_n);
    }
}

static void test_scales_that_do_not_fit(void **state)
{
    (void)state;
    static const uint64_t wrong[] = {12, 2};
    static const uint64_t right[] = {24, 1};
    static const uint8_t zeros[24 * 8];
    assert_int_equal(find_with_scales(NULL, NULL, 0, NULL, NULL, 0), STATUS_BAD_CHECKPOINT);
    assert_non_null(strstr(f.why.text, "'p.weight_scale' is missing beside 'p.weight'"));
    assert_int_equal(find_with_scales("p.weight_scale", "F32", 2, wrong, zeros, 96),
                     STATUS_BAD_CHECKPOINT);
    assert_non_null(strstr(f.why.text, "'p.weight_scale' is [12, 2], neither one scale nor one "
                                       "for each of the 24 rows"));
    static const struct {
        const char *dtype;
        uint64_t size_bytes;
    } dtypes[] = {{"F64", 192}, {"I32", 96}, {"F8_E4M3", 24}, {"U8", 24}};
    for (size_t i = 0; i < ARRAY_LENGTH(dtypes); i++) {
        int r = find_with_scales("p.weight_scale", dtypes[i].dtype, 2, right, zeros,
                                 dtypes[i].size_bytes);
        assert_int_equal(r, STATUS_UNSUPPORTED);
        assert_non_null(strstr(f.why.text, "tensor 'p.weight_scale' is "));
        assert_non_null(strstr(f.why.text, dtypes[i].dtype));
    }
}

/* T40 (f): values, told by tensor and place; 0 is let through. */
static void test_scale_values(void **state)
{
    (void)state;
    static const struct {
        float value;
        int status;
    } values[] = {{0.0f, 0},
                  {-1.0f, STATUS_BAD_CHECKPOINT},
                  {__builtin_inff(), STATUS_BAD_CHECKPOINT},
                  {__builtin_nanf(""), STATUS_BAD_CHECKPOINT}};
    for (size_t i = 0; i < ARRAY_LENGTH(values); i++) {
        struct gk_canonical read;
        assert_int_equal(find_with_scales("p.weight_scale", "F32", 0, NULL, &values[i].value, 4),
                         0);
        int r = module_read(&f.source.modules.items[0], &f.progress, &f.warnings, &read, &f.why);
        assert_int_equal(r, values[i].status);
        if (r == 0) {
            gk_canonical_finish(&read);
        } else {
            assert_non_null(strstr(f.why.text, "module 'p'"));
        }
    }
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(test_read_back),
        CASE(test_scales_of_any_rank),
        CASE(test_scales_that_do_not_fit),
        CASE(test_scale_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
