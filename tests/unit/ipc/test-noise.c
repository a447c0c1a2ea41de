/* test-noise.c - the numbers that kernels are timed on: in range, spread, and the same each time.
 */
#include <math.h>
#include <string.h>

#include "ipc/base/half.h"
#include "ipc/base/noise.h"
#include "t.h"

#define N 4096u

static float load(const void *elems, enum dtype dtype, uint32_t i)
{
    if (dtype == DTYPE_F32) {
        return ((const float *)elems)[i];
    }
    uint16_t code = ((const uint16_t *)elems)[i];
    return dtype == DTYPE_F16 ? half_to_f32(code) : bf16_to_f32(code);
}

static void test_spread(void **state)
{
    (void)state;
    static const enum dtype dtypes[] = {DTYPE_F32, DTYPE_F16, DTYPE_BF16};
    for (uint32_t i_type = 0; i_type < 3; i_type++) {
        float elems[N + 1], again[N + 1];
        double sum = 0, squares = 0;
        elems[N] = again[N] = 7;
        memset(again, 0x5a, N * sizeof(*again));
        noise_fill(elems, dtypes[i_type], N);
        noise_fill(again, dtypes[i_type], N);
        assert_memory_equal(elems, again, N * dtype_bytes(dtypes[i_type]));
        for (uint32_t i = 0; i < N; i++) {
            double value = load(elems, dtypes[i_type], i);
            assert_true(fabs(value) <= 1);
            sum += value;
            squares += value * value;
        }
        assert_true(fabs(sum / N) < 0.05);
        assert_true(fabs(squares / N - 1.0 / 3) < 0.02);
        assert_true(elems[N] == 7); /* nothing beyond n */
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_spread)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
