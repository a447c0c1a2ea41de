/* Fused weights and slices, element by element against the modules that they are made of. Cases
 * T13, T14 (b, c), T39 (b). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "ipc/base/num.h"
#include "tests/harness/family_writer.h"
#include "tests/harness/random.h"

#include "daemon/weights/model_load.h"
#include "daemon/weights/plan_read.h"

#define MODULES_MAX 8

struct fixture {
    struct temp_folder folder;
    struct tensor_file file;
    struct gk_canonical modules[MODULES_MAX]; /* as written */
    uint32_t n_modules;
    uint64_t random;
    struct model_source source;
    struct progress progress;
    struct warnings warnings;
    struct reason why;
};

static struct fixture f;

static void forget_source(void)
{
    model_source_finish(&f.source);
    warnings_finish(&f.warnings);
    f.why = REASON_NULL;
}

static int set_up(void **state)
{
    (void)state;
    f = (struct fixture){.source = MODEL_SOURCE_NULL, .random = 7};
    temp_folder_init(&f.folder);
    tensor_file_init(&f.file);
    progress_init(&f.progress);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    forget_source();
    for (uint32_t i = 0; i < f.n_modules; i++) {
        gk_canonical_finish(&f.modules[i]);
    }
    progress_finish(&f.progress);
    tensor_file_finish(&f.file);
    temp_folder_finish(&f.folder);
    return 0;
}

/* One more module of the checkpoint. */
static void write_module(const char *name, enum written_family family, const struct gk_desc *desc)
{
    assert_true(f.n_modules < MODULES_MAX);
    struct gk_canonical *canonical = &f.modules[f.n_modules++];
    random_weight(canonical, desc, &f.random);
    tensor_file_add_weight(&f.file, name, family, canonical);
}

static int open_with(const char *config, const char *fuse, const char *split, uint32_t tp_rank,
                     uint32_t tp_size)
{
    struct msg_shaping shaping = {.tp_rank = tp_rank, .tp_size = tp_size};
    forget_source();
    (void)snprintf(shaping.fuse, sizeof(shaping.fuse), "%s", fuse);
    (void)snprintf(shaping.split, sizeof(shaping.split), "%s", split);
    write_text(temp_path(&f.folder, "config.json"), config);
    tensor_file_write(&f.file, temp_path(&f.folder, "model.safetensors"));
    return model_source_open(f.folder.path, &shaping, &f.warnings, &f.source, &f.why);
}

static void expect_open(const char *config, const char *fuse, uint32_t tp_rank, uint32_t tp_size)
{
    if (open_with(config, fuse, "", tp_rank, tp_size) != 0) {
        fail_msg("%s", f.why.text);
    }
}

static void expect_refusal(const char *config, const char *fuse, uint32_t tp_size, int status,
                           const char *text)
{
    int r = open_with(config, fuse, "", 0, tp_size);
    if (r != status || !strstr(f.why.text, text)) {
        fail_msg("%d '%s', expected %d '%s'", r, f.why.text, status, text);
    }
}

/* Rows [first_n, ...) and columns [first_k, ...) of the weight are those of the piece. */
static void expect_block(const struct gk_canonical *weight, uint32_t at_n,
                         const struct gk_canonical *module, uint32_t first_n, uint32_t n,
                         uint32_t first_k)
{
    for (uint32_t i_n = 0; i_n < n; i_n++) {
        for (uint32_t i_k = 0; i_k < weight->desc.k; i_k++) {
            double found = gk_canonical_value(weight, at_n + i_n, i_k);
            double expected = gk_canonical_value(module, first_n + i_n, first_k + i_k);
            if (found != expected) {
                fail_msg("[%u, %u] is %g, expected %g", at_n + i_n, i_k, found, expected);
            }
        }
        double bias = first_k == 0 ? gk_canonical_bias(module, first_n + i_n) : 0;
        assert_true(gk_canonical_bias(weight, at_n + i_n) == bias);
    }
}

static struct gk_canonical read_item(const char *name)
{
    struct gk_canonical canonical;
    const struct plan_item *item = plan_get(&f.source.plan, name);
    assert_non_null(item);
    int r = plan_read(item, &f.progress, &f.warnings, &canonical, &f.why);
    if (r != 0) {
        fail_msg("%s", f.why.text);
    }
    assert_int_equal(canonical.desc.n, item->desc.n);
    assert_int_equal(canonical.desc.k, item->desc.k);
    assert_int_equal(canonical.desc.group_n, item->desc.group_n);
    assert_int_equal(canonical.desc.scale_dtype, item->desc.scale_dtype);
    return canonical;
}

/* ---- fusing ---- */

#define GPTQ32 "{\"quantization_config\":{\"quant_method\":\"gptq\",\"bits\":4,\"group_size\":32}}"
#define FP8(scheme)                                                                                \
    "{\"quantization_config\":{\"quant_method\":\"fp8\",\"activation_scheme\":\"" scheme "\"}}"
#define FP8_BLOCK                                                                                  \
    "{\"quantization_config\":{\"quant_method\":\"fp8\",\"activation_scheme\":\"dynamic\","        \
    "\"weight_block_size\":[128,128]}}"

static struct gk_desc int4(uint32_t n, uint32_t k)
{
    return (struct gk_desc){
        .n = n, .k = k, .code = GK_CODE_U4, .group_n = 1, .group_k = 32, .scale_dtype = DTYPE_F16};
}

static struct gk_desc fp8(uint32_t n, uint32_t k, uint32_t group_n, uint32_t group_k,
                          enum gk_act act, float act_scale)
{
    return (struct gk_desc){.n = n,
                            .k = k,
                            .code = GK_CODE_E4M3,
                            .group_n = group_n,
                            .group_k = group_k,
                            .scale_dtype = DTYPE_F32,
                            .act = act,
                            .act_scale = act_scale};
}

static void write_qkv(enum written_family family, const struct gk_desc descs[3])
{
    static const char *const names[] = {"l.attn.q_proj", "l.attn.k_proj", "l.attn.v_proj"};
    for (uint32_t i = 0; i < 3; i++) {
        write_module(names[i], family, &descs[i]);
    }
}

/* The parts, in the rule's order, whatever that of their names. */
static void expect_fused(const char *name)
{
    struct gk_canonical fused = read_item(name);
    uint32_t at_n = 0;
    for (uint32_t i = 0; i < 3; i++) {
        expect_block(&fused, at_n, &f.modules[i], 0, f.modules[i].desc.n, 0);
        at_n += f.modules[i].desc.n;
    }
    assert_int_equal(fused.desc.n, at_n);
    gk_canonical_finish(&fused);
}

static void test_fuse_int4(void **state)
{
    (void)state;
    write_qkv(WRITTEN_GPTQ_V1, (const struct gk_desc[]){int4(64, 64), int4(16, 64), int4(16, 64)});
    const struct gk_desc other = int4(24, 96);
    write_module("l.attn.o_proj", WRITTEN_GPTQ_V1, &other);
    expect_open(GPTQ32, "qkv_proj=q_proj,k_proj,v_proj", 0, 1);
    assert_int_equal(f.source.plan.n, 2);
    assert_null(plan_get(&f.source.plan, "l.attn.q_proj"));
    assert_non_null(plan_get(&f.source.plan, "l.attn.o_proj"));
    expect_fused("l.attn.qkv_proj");
    expect_open(GPTQ32, "usual", 0, 1);
    assert_int_equal(f.warnings.n, 1);
    assert_non_null(strstr(f.warnings.items[0], "fuse 'gate_up_proj': no module"));
    expect_fused("l.attn.qkv_proj");
    expect_open(GPTQ32, "", 0, 1);
    assert_int_equal(f.source.plan.n, 4);
}

/* T13: scales a hundred times apart stay what they are. */
static void test_fuse_per_tensor_scales(void **state)
{
    (void)state;
    write_qkv(WRITTEN_FP8, (const struct gk_desc[]){
                               fp8(64, 128, 64, 128, GK_ACT_FP8_TENSOR, 1.0f),
                               fp8(64, 128, 64, 128, GK_ACT_FP8_TENSOR, 1.0f),
                               fp8(64, 128, 64, 128, GK_ACT_FP8_TENSOR, 1.0f),
                           });
    static const float scales[] = {1.0f, 0.01f, 100.0f};
    tensor_file_finish(&f.file);
    tensor_file_init(&f.file);
    for (uint32_t i = 0; i < 3; i++) {
        static const char *const names[] = {"l.attn.q_proj", "l.attn.k_proj", "l.attn.v_proj"};
        *(float *)f.modules[i].scales = scales[i];
        tensor_file_add_weight(&f.file, names[i], WRITTEN_FP8, &f.modules[i]);
    }
    expect_open(FP8("static"), "usual", 0, 1);
    expect_fused("l.attn.qkv_proj");
}

/* T14: parts that end inside a block keep their own scales. */
static void test_fuse_blocks(void **state)
{
    (void)state;
    write_qkv(WRITTEN_FP8_INV, (const struct gk_desc[]){
                                   fp8(384, 128, 128, 128, GK_ACT_FP8_GROUP, 0),
                                   fp8(64, 128, 64, 128, GK_ACT_FP8_GROUP, 0),
                                   fp8(192, 128, 128, 128, GK_ACT_FP8_GROUP, 0),
                               });
    expect_open(FP8_BLOCK, "usual", 0, 1);
    expect_fused("l.attn.qkv_proj");
}

static void test_fuse_refusals(void **state)
{
    (void)state;
    write_qkv(WRITTEN_GPTQ_V1, (const struct gk_desc[]){int4(64, 64), int4(16, 64), int4(16, 96)});
    expect_refusal(GPTQ32, "usual", 1, STATUS_UNSUPPORTED, "weight 'l.attn.qkv_proj': ");
    expect_refusal(GPTQ32, "x=q_proj,w_proj", 1, STATUS_INVALID_ARGUMENT,
                   "fuse 'x': 'l.attn.w_proj' is not there beside 'l.attn.q_proj'");
    expect_refusal(GPTQ32, "x=a,b", 1, STATUS_INVALID_ARGUMENT,
                   "fuse 'x': no module of the checkpoint has those parts");
    expect_refusal(GPTQ32, "v_proj=q_proj,k_proj", 1, STATUS_BAD_CHECKPOINT,
                   "'l.attn.v_proj' would have the name of a module");
    expect_refusal(GPTQ32, "x=q_proj,k_proj y=k_proj,q_proj", 1, STATUS_INVALID_ARGUMENT,
                   "is fused already");
}

/* Two rules may have one name, but not where both find their parts: a name is one weight's. */
static void test_fuse_two_of_one_name(void **state)
{
    (void)state;
    const struct gk_desc desc = int4(16, 64);
    static const char *const names[] = {"l.q", "l.k", "l.v", "l.o", "m.v", "m.o"};
    for (uint32_t i = 0; i < 2; i++) {
        write_module(names[i], WRITTEN_GPTQ_V1, &desc);
        write_module(names[i + 4], WRITTEN_GPTQ_V1, &desc);
    }
    expect_open(GPTQ32, "x=q,k x=v,o", 0, 1);
    assert_non_null(plan_get(&f.source.plan, "l.x"));
    assert_non_null(plan_get(&f.source.plan, "m.x"));
    write_module(names[2], WRITTEN_GPTQ_V1, &desc);
    write_module(names[3], WRITTEN_GPTQ_V1, &desc);
    expect_refusal(GPTQ32, "x=q,k x=v,o", 1, STATUS_INVALID_ARGUMENT,
                   "fuse 'x': two weights would be 'l.x', that of 'l.");
}

static void test_fuse_static_activations_that_differ(void **state)
{
    (void)state;
    write_qkv(WRITTEN_FP8, (const struct gk_desc[]){
                               fp8(8, 32, 8, 32, GK_ACT_FP8_TENSOR, 1.0f),
                               fp8(8, 32, 8, 32, GK_ACT_FP8_TENSOR, 2.0f),
                               fp8(8, 32, 8, 32, GK_ACT_FP8_TENSOR, 1.0f),
                           });
    expect_refusal(FP8("static"), "usual", 1, STATUS_UNSUPPORTED, "weight 'l.attn.qkv_proj': ");
}

/* T39 (b): the group that names the parts goes before the one that means their class. */
static void test_fuse_by_named_group(void **state)
{
    (void)state;
    write_qkv(WRITTEN_CT_PACKED, (const struct gk_desc[]){int4(8, 64), int4(8, 64), int4(8, 64)});
    expect_open("{\"quantization_config\":{\"quant_method\":\"compressed-tensors\","
                "\"format\":\"pack-quantized\",\"config_groups\":{"
                "\"group_1\":{\"targets\":[\"Linear\"],\"weights\":{\"num_bits\":8}},"
                "\"group_0\":{\"targets\":[\"l.attn.q_proj\",\"re:.*(k|v)_proj\"],"
                "\"weights\":{\"num_bits\":4,\"group_size\":32}}}}}",
                "usual", 0, 1);
    expect_fused("l.attn.qkv_proj");
}

/* ---- slices ---- */

static void test_slices(void **state)
{
    (void)state;
    struct gk_desc desc = int4(64, 128);
    desc.bias_dtype = DTYPE_F16;
    write_module("l.q_proj", WRITTEN_GPTQ_V1, &desc);
    write_module("l.o_proj", WRITTEN_GPTQ_V1, &desc);
    write_module("l.router", WRITTEN_GPTQ_V1, &desc);
    for (uint32_t rank = 0; rank < 4; rank++) {
        expect_open(GPTQ32, "", rank, 4);
        assert_int_equal(f.warnings.n, 1);
        assert_non_null(strstr(f.warnings.items[0], "'l.router' is served whole: its name does"));
        struct gk_canonical q = read_item("l.q_proj");
        assert_int_equal(q.desc.n, 16);
        expect_block(&q, 0, &f.modules[0], 16 * rank, 16, 0);
        struct gk_canonical o = read_item("l.o_proj");
        assert_int_equal(o.desc.k, 32);
        expect_block(&o, 0, &f.modules[1], 0, 64, 32 * rank);
        struct gk_canonical router = read_item("l.router");
        expect_block(&router, 0, &f.modules[2], 0, 64, 0);
        gk_canonical_finish(&q);
        gk_canonical_finish(&o);
        gk_canonical_finish(&router);
    }
}

/* A rank's fused weight has its rows of each part. */
static void test_slices_of_fused(void **state)
{
    (void)state;
    write_qkv(WRITTEN_GPTQ_V1, (const struct gk_desc[]){int4(64, 64), int4(16, 64), int4(16, 64)});
    expect_open(GPTQ32, "usual", 1, 2);
    struct gk_canonical fused = read_item("l.attn.qkv_proj");
    assert_int_equal(fused.desc.n, 48);
    expect_block(&fused, 0, &f.modules[0], 32, 32, 0);
    expect_block(&fused, 32, &f.modules[1], 8, 8, 0);
    expect_block(&fused, 40, &f.modules[2], 8, 8, 0);
    gk_canonical_finish(&fused);
    /* one key-value head for all ranks: whole beside the slice of q */
    assert_int_equal(open_with(GPTQ32, "usual", "k_proj=whole v_proj=whole", 1, 2), 0);
    fused = read_item("l.attn.qkv_proj");
    assert_int_equal(fused.desc.n, 64);
    expect_block(&fused, 0, &f.modules[0], 32, 32, 0);
    expect_block(&fused, 32, &f.modules[1], 0, 16, 0);
    gk_canonical_finish(&fused);
}

static void test_slice_refusals(void **state)
{
    (void)state;
    const struct gk_desc desc = int4(64, 96);
    struct gk_desc ordered = int4(64, 128);
    ordered.has_perm = true;
    write_module("l.o_proj", WRITTEN_GPTQ_V1, &desc);
    expect_refusal(GPTQ32, "", 5, STATUS_UNSUPPORTED,
                   "module 'l.o_proj': k 96 cannot be cut into 5 equal pieces");
    /* pieces of 16 lie within groups of 32; those of 24 go through them */
    assert_int_equal(open_with(GPTQ32, "", "", 5, 6), 0);
    assert_int_equal(open_with(GPTQ32, "", "", 1, 4), STATUS_UNSUPPORTED);
    assert_non_null(strstr(f.why.text, "module 'l.o_proj', rank 1 of 4: "));
    assert_int_equal(open_with(GPTQ32, "", "o_proj=n", 0, 4), 0);
    assert_int_equal(f.source.plan.items[0].desc.n, 16);
    write_module("l.down_proj", WRITTEN_GPTQ_V1, &ordered);
    expect_refusal("{\"quantization_config\":{\"quant_method\":\"gptq\",\"bits\":4,"
                   "\"group_size\":32,\"desc_act\":true,\"dynamic\":{\".*o_proj\":"
                   "{\"desc_act\":false}}}}",
                   "", 2, STATUS_UNSUPPORTED, "module 'l.down_proj', rank 0 of 2: ");
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(test_fuse_int4),
        CASE(test_fuse_per_tensor_scales),
        CASE(test_fuse_blocks),
        CASE(test_fuse_refusals),
        CASE(test_fuse_two_of_one_name),
        CASE(test_fuse_static_activations_that_differ),
        CASE(test_fuse_by_named_group),
        CASE(test_slices),
        CASE(test_slices_of_fused),
        CASE(test_slice_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
