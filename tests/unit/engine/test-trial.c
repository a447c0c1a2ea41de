/* test-trial.c - rounds of launches, their median, and a kernel timed on the host device. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cmocka_all.h"

#include "daemon/device/device.h"
#include "daemon/device/trial.h"

/* Rounds that take what they are told to. */
struct script {
    double usec_a_launch;
    uint32_t n_rounds;
    uint32_t n_launches;
    uint32_t i_failing; /* round, from 1; 0: none */
};

static int play(void *arg, uint32_t n_launches, double *ret_usec, struct reason *why)
{
    struct script *script = arg;
    script->n_rounds++;
    script->n_launches += n_launches;
    if (script->n_rounds == script->i_failing) {
        return reason_set(why, STATUS_DEVICE_ERROR, "round %u fails", script->n_rounds);
    }
    /* One slow round, as when somebody else had the device. */
    double factor = script->n_rounds == 5 ? 100.0 : 1.0;
    *ret_usec = factor * script->usec_a_launch * n_launches;
    return 0;
}

static void test_median(void **state)
{
    (void)state;
    struct script script = {.usec_a_launch = 10.0};
    double usec = 0;
    assert_int_equal(trial_median(play, &script, 10000, &usec, NULL), 0);
    assert_true(usec == 10.0);
    assert_in_range(script.n_launches, 900, 1010); /* the budget */
    script = (struct script){.usec_a_launch = 1e6};
    assert_int_equal(trial_median(play, &script, 10000, &usec, NULL), 0);
    assert_int_equal(script.n_launches, script.n_rounds); /* the least there is */
    assert_true(script.n_rounds <= 7);
}

static void test_failing_round_ends_it(void **state)
{
    (void)state;
    struct reason why = REASON_NULL;
    double usec = -1;
    for (uint32_t i = 1; i <= 7; i++) {
        struct script script = {.usec_a_launch = 10.0, .i_failing = i};
        assert_int_equal(trial_median(play, &script, 1000, &usec, &why), STATUS_DEVICE_ERROR);
        assert_int_equal(script.n_rounds, i);
    }
    assert_true(usec == -1);
}

static void test_host_kernel_is_timed(void **state)
{
    (void)state;
    struct gk_desc desc = {.n = 256, .k = 512, .code = GK_CODE_BF16};
    const struct gk_layout *layout = gk_layout_for(&desc, GK_DEVICE_HOST);
    struct gk_problem problem = {
        .desc = desc, .layout = layout, .m = 4, .x_dtype = DTYPE_BF16, .y_dtype = DTYPE_F16};
    struct device *device;
    void *packed = aligned_alloc(64, layout->packed_bytes(&desc));
    assert_non_null(packed);
    memset(packed, 0, layout->packed_bytes(&desc));
    const void *const copies[] = {packed, packed};
    struct device_trial trial = {
        .problem = problem, .packed = copies, .n_packed = 2, .budget_usec = 500};
    double usec = 0;
    assert_int_equal(gk_select(&problem, &trial.kernel, NULL), 0);
    assert_int_equal(device_host_open(0, 2, &device, NULL), 0);
    assert_int_equal(device_time(device, &trial, &usec, NULL), 0);
    assert_true(usec > 0 && usec < 1e6);
    (void)device_close(device);
    free(packed);
}

/* More rows than a table has are told by address and stride; those that fit are in it as well. */
static void test_launch_of_a_chunk(void **state)
{
    (void)state;
    static uint8_t memory[65536]; /* only computed with */
    struct gk_problem problem = {.desc = {.n = 100, .k = 50, .code = GK_CODE_F32},
                                 .m = GK_BATCH_ROWS_MAX + 36,
                                 .is_prefill = true,
                                 .x_dtype = DTYPE_F16,
                                 .y_dtype = DTYPE_F32};
    struct trial_layout layout = trial_layout(&problem, 1000);
    struct trial_rows rows;
    struct gk_launch launch;
    trial_launch(&layout, memory, &problem, &rows, &launch);
    assert_int_equal(launch.problem.m, 100);
    assert_ptr_equal(launch.workspace, memory);
    assert_ptr_equal(launch.prefill.x, memory + 1024);
    assert_int_equal(launch.prefill.x_stride_bytes, 100);
    assert_int_equal(launch.prefill.y_stride_bytes, 400);
    assert_ptr_equal(launch.prefill.y, memory + layout.y_offset);
    assert_true(layout.y_offset >= 1024 + 100 * 100);
    assert_ptr_equal(launch.x_rows[63], memory + 1024 + 63 * 100);
    assert_ptr_equal(launch.y_rows[63], memory + layout.y_offset + 63 * 400);
    assert_int_equal(layout.total_bytes, layout.y_offset + 100 * 400);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_median),
        cmocka_unit_test(test_failing_round_ends_it),
        cmocka_unit_test(test_host_kernel_is_timed),
        cmocka_unit_test(test_launch_of_a_chunk),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
