/* test-layout-versions.c - weights outlive the daemon, and the next one may be of another build: a
 * layout's version is all that keeps it from reading what it would misunderstand. So packed bytes
 * are held to what they were when the version was last counted up. */
#include <stdlib.h>
#include <string.h>

#include "cmocka_all.h"
#include "gk/digest.h"
#include "ipc/base/num.h"
#include "kernel_case.h"
#include "kernels/layout/cuda_kmajor.h"
#include "kernels/layout/cuda_strip.h"
#include "kernels/layout/cuda_swizzle.h"
#include "kernels/layout/host_panel.h"

/* Odd, and more than one of whatever a layout cuts a weight into. */
#define N 200u
#define K 4352u

/* On a change of the bytes: count the layout's version up, and put both in here. */
static const struct {
    const struct gk_layout *layout;
    const char *format;
    uint32_t version;
    uint64_t digest_sum;
} rows[] = {
    {&host_panel_layout, "plain bf16", 1, 0x925f17b0aa1d26bb},
    {&host_panel_layout, "int4 g64 zeros", 1, 0xf7f9e2dc9ecc2a4c},
    {&host_panel_layout, "int8 w8a8 token zeros", 1, 0x7d49a0cb34a366a8},
    {&host_panel_layout, "fp8 128x128", 1, 0x9e600452511cb1e2},
    {&host_panel_layout, "nvfp4", 1, 0x6f7dec66553cf29b},
    {&cuda_strip_u4_layout, "int4 g64 zeros", 1, 0x2e0c3c961ca496bc},
    {&cuda_strip_u4_layout, "int4 g128 act-order", 1, 0x032813d10517b902},
    {&cuda_strip_u8_layout, "int8 g32 zeros", 1, 0x7ef55bca7e33c5f8},
    {&cuda_strip_e4m3_layout, "fp8 128x128", 1, 0x2bdde88f5485b1e8},
    {&cuda_strip_e4m3_layout, "mxfp8", 1, 0xad5b25ba25f8bb2e},
    {&cuda_strip_e2m1_layout, "nvfp4", 2, 0x7c4d5a52d13daf36},
    {&cuda_strip_e2m1_layout, "mxfp4", 2, 0xdce99cfe75f1465e},
    {&cuda_swizzle_layout, "fp8 w8a8 128x128", 1, 0xe6499b2cb5ff6bd2},
    {&cuda_swizzle_layout, "int8 w8a8 token zeros", 1, 0x54cb224a7278dcc6},
    {&cuda_kmajor_layout, "plain f16", 1, 0x251140746b838478},
    {&cuda_kmajor_layout, "int4 g32 zeros act-order", 1, 0xa08fa92755f21276},
};

static const struct format_case *find_format(const char *name)
{
    for (uint32_t i = 0; i < n_format_cases; i++) {
        if (strcmp(format_cases[i].name, name) == 0) {
            return &format_cases[i];
        }
    }
    fail_msg("no format '%s'", name);
    return NULL;
}

static struct gk_digest digest_of(const struct gk_layout *layout, const struct gk_desc *desc)
{
    struct random random = {7};
    struct gk_canonical canonical;
    struct gk_digest digest = {0};
    canonical_random(&canonical, desc, &random);
    uint64_t size_bytes = layout->packed_bytes(desc);
    void *packed = aligned_alloc(64, num_align_up(size_bytes, 64));
    assert_non_null(packed);
    layout->pack(&canonical, packed);
    gk_digest_add(&digest, packed, 0, size_bytes / sizeof(uint64_t));
    free(packed);
    gk_canonical_finish(&canonical);
    return digest;
}

static void test_bytes_are_those_of_the_version(void **state)
{
    (void)state;
    uint32_t n_wrong = 0;
    for (uint32_t i = 0; i < ARRAY_LENGTH(rows); i++) {
        struct gk_desc desc = format_desc(find_format(rows[i].format), N, K, DTYPE_F32);
        assert_true(rows[i].layout->fits(&desc));
        struct gk_digest digest = digest_of(rows[i].layout, &desc);
        if (rows[i].version != rows[i].layout->version || rows[i].digest_sum != digest.sum) {
            print_error("%s of %s: version %u, bytes 0x%016llx; known are version %u, 0x%016llx\n",
                        rows[i].layout->tag, rows[i].format, rows[i].layout->version,
                        (unsigned long long)digest.sum, rows[i].version,
                        (unsigned long long)rows[i].digest_sum);
            n_wrong++;
        }
    }
    assert_int_equal(n_wrong, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bytes_are_those_of_the_version),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
