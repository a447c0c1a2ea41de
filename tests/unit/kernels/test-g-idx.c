/* test-g-idx.c - act-order from the file (case T10): every kind of g_idx, and what is refused. */
#include <string.h>

#include "cmocka_all.h"
#include "reader_case.h"

#define K       256u
#define GROUP_K 64u

struct g_idx_case {
    uint8_t bytes[1 + 4 * K]; /* read from its second byte: unaligned, as in a mapped file */
    uint32_t perm[K];
    enum gk_g_idx kind;
    struct reason why;
};

static void put(struct g_idx_case *g_idx, uint32_t i_k, int32_t value)
{
    memcpy(g_idx->bytes + 1 + 4 * i_k, &value, sizeof(value));
}

static void put_all(struct g_idx_case *g_idx, int32_t value)
{
    for (uint32_t i_k = 0; i_k < K; i_k++) {
        put(g_idx, i_k, value);
    }
}

static int read_g_idx(struct g_idx_case *g_idx, bool is_declared)
{
    return gk_g_idx_read(g_idx->bytes + 1, K, GROUP_K, is_declared, g_idx->perm, &g_idx->kind,
                         &g_idx->why);
}

static void expect_refused(struct g_idx_case *g_idx, int status, const char *text)
{
    assert_int_equal(read_g_idx(g_idx, true), status);
    assert_int_equal(g_idx->why.status, status);
    assert_non_null(strstr(g_idx->why.text, text));
}

/* Element i belongs to group i % 4: sorted stably, groups are 0 4 8 ..., 1 5 9 ... */
static void test_order(void **state)
{
    (void)state;
    struct g_idx_case g_idx = {.kind = 0};
    for (uint32_t i_k = 0; i_k < K; i_k++) {
        put(&g_idx, i_k, (int32_t)(i_k % 4));
    }
    assert_int_equal(read_g_idx(&g_idx, false), 0);
    assert_int_equal(g_idx.kind, GK_G_IDX_ORDER);
    for (uint32_t i = 0; i < K; i++) {
        assert_int_equal(g_idx.perm[i], i % GROUP_K * 4 + i / GROUP_K);
    }
}

static void test_order_with_a_short_group(void **state)
{
    (void)state;
    static const int32_t words[] = {2, 0, 1, 0, 1};
    static const uint32_t sorted[] = {1, 3, 2, 4, 0};
    uint32_t perm[5];
    enum gk_g_idx kind;
    assert_int_equal(gk_g_idx_read(words, 5, 2, true, perm, &kind, NULL), 0);
    assert_int_equal(kind, GK_G_IDX_ORDER);
    assert_memory_equal(perm, sorted, sizeof(sorted));
}

static void test_trivial(void **state)
{
    (void)state;
    struct g_idx_case g_idx = {.perm = {77}};
    for (uint32_t i_k = 0; i_k < K; i_k++) {
        put(&g_idx, i_k, (int32_t)(i_k / GROUP_K));
    }
    assert_int_equal(read_g_idx(&g_idx, true), 0);
    assert_int_equal(g_idx.kind, GK_G_IDX_PLAIN);
    put_all(&g_idx, -1);
    assert_int_equal(read_g_idx(&g_idx, false), 0);
    assert_int_equal(g_idx.kind, GK_G_IDX_UNSET);
    put_all(&g_idx, 0);
    assert_int_equal(read_g_idx(&g_idx, false), 0);
    assert_int_equal(g_idx.kind, GK_G_IDX_ZEROS);
    assert_int_equal(g_idx.perm[0], 77);
    assert_int_equal(
        gk_g_idx_read(g_idx.bytes + 1, K, K, true, g_idx.perm, &g_idx.kind, &g_idx.why), 0);
    assert_int_equal(g_idx.kind, GK_G_IDX_PLAIN); /* one group: there is nothing to order */
}

static void test_refusals(void **state)
{
    (void)state;
    struct g_idx_case g_idx = {.kind = 0};
    put_all(&g_idx, 0);
    expect_refused(&g_idx, STATUS_UNSUPPORTED, "puts 256 elements into group 0, not 64");
    for (uint32_t i_k = 0; i_k < K; i_k++) {
        put(&g_idx, i_k, i_k < 100 ? 0 : (int32_t)(i_k / GROUP_K));
    }
    expect_refused(&g_idx, STATUS_UNSUPPORTED, "puts 100 elements into group 0, not 64");
    put(&g_idx, 200, 4);
    expect_refused(&g_idx, STATUS_BAD_CHECKPOINT, "element 200 is 4, outside the 4 groups");
    put(&g_idx, 200, -7);
    expect_refused(&g_idx, STATUS_BAD_CHECKPOINT, "element 200 is -7");
    put(&g_idx, 200, INT32_MAX);
    expect_refused(&g_idx, STATUS_BAD_CHECKPOINT, "element 200 is 2147483647");
    put_all(&g_idx, -1);
    put(&g_idx, 9, 0);
    expect_refused(&g_idx, STATUS_BAD_CHECKPOINT, "element 0 is -1");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_order_with_a_short_group),
        cmocka_unit_test(test_trivial),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
