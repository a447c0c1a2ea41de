/* The digest of memory: one value, however the memory is cut, and another for any change. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "gk/digest.h"
#include "tests/harness/random.h"

#define N_WORDS 4099u

static uint64_t words[N_WORDS];

static int fill(void **state)
{
    (void)state;
    uint64_t random = 0x5eed;
    for (uint32_t i = 0; i < N_WORDS; i++) {
        words[i] = test_random(&random);
    }
    return 0;
}

static struct gk_digest whole(void)
{
    struct gk_digest digest = {0, 0};
    gk_digest_add(&digest, words, 0, N_WORDS);
    return digest;
}

/* Manifests of earlier builds hold such values. */
static void test_known_values(void **state)
{
    (void)state;
    static const uint64_t three[] = {0, 1, UINT64_MAX};
    struct gk_digest digest = {0, 0};
    gk_digest_add(&digest, three, 0, 0);
    assert_int_equal(digest.sum, 0);
    gk_digest_add(&digest, three, 0, 3);
    assert_int_equal(digest.sum, UINT64_C(0xc29c079dd4c3450a));
    assert_int_equal(digest.parity, UINT64_C(0x2164085acb653ab0));
}

static void test_any_cut(void **state)
{
    (void)state;
    const struct gk_digest expected = whole();
    for (uint32_t cut = 0; cut <= N_WORDS; cut += 1 + cut / 3) {
        struct gk_digest back = {0, 0};
        struct gk_digest front = {0, 0};
        gk_digest_add(&back, words + cut, cut, N_WORDS - cut);
        gk_digest_add(&front, words, 0, cut);
        gk_digest_join(&back, &front);
        assert_true(gk_digest_is_same(&back, &expected));
    }
}

static void test_any_bit(void **state)
{
    (void)state;
    const struct gk_digest expected = whole();
    uint64_t random = 1;
    for (uint32_t i = 0; i < 2000; i++) {
        uint64_t r = test_random(&random);
        words[r % N_WORDS] ^= UINT64_C(1) << (r >> 32) % 64;
        struct gk_digest digest = whole();
        assert_true(digest.sum != expected.sum && digest.parity != expected.parity);
        words[r % N_WORDS] ^= UINT64_C(1) << (r >> 32) % 64;
    }
}

/* The same words at other places, and zeros that are more or fewer. */
static void test_places(void **state)
{
    (void)state;
    static const uint64_t zeros[8];
    const struct gk_digest expected = whole();
    uint64_t first = words[7];
    words[7] = words[8];
    words[8] = first;
    struct gk_digest swapped = whole();
    assert_false(gk_digest_is_same(&swapped, &expected));
    struct gk_digest seven = {0, 0};
    struct gk_digest eight = {0, 0};
    gk_digest_add(&seven, zeros, 0, 7);
    gk_digest_add(&eight, zeros, 0, 8);
    assert_false(gk_digest_is_same(&seven, &eight));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_known_values, fill),
        cmocka_unit_test_setup(test_any_cut, fill),
        cmocka_unit_test_setup(test_any_bit, fill),
        cmocka_unit_test_setup(test_places, fill),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
