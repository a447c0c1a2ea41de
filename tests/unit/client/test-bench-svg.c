/* test-bench-svg.c - what a sweep looks like as SVG, CSV, JSON and a table. */
#include <stdlib.h>
#include <string.h>

#include "tests/unit/client/bench_case.h"
#include "tests/unit/client/xml_case.h"

static struct bench_outcome outcome;
static char *text;

static int set_up(void **state)
{
    (void)state;
    outcome = (struct bench_outcome){.is_padded = true};
    sweep_init(&outcome.sweep);
    sweep_init(&outcome.padded);
    outcome.padded.shape.n = 1024;
    outcome.padded.shape.k = 1024;
    outcome.padded.series[0].points[0].usec = 32; /* of 40: the odd shape costs a quarter more */
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    free(text);
    text = NULL;
    bench_sweep_finish(&outcome.sweep);
    bench_sweep_finish(&outcome.padded);
    return 0;
}

static FILE *begin(size_t *ret_n_bytes)
{
    FILE *stream = open_memstream(&text, ret_n_bytes);
    assert_non_null(stream);
    return stream;
}

static void has(const char *piece)
{
    if (!strstr(text, piece)) {
        fail_msg("no '%s' in:\n%s", piece, text);
    }
}

static uint32_t count(const char *piece)
{
    uint32_t n = 0;
    for (const char *at = text; (at = strstr(at, piece)) != NULL; at++) {
        n++;
    }
    return n;
}

static void write_svg(const struct bench_outcome *outcomes, uint32_t n)
{
    size_t n_bytes;
    FILE *stream = begin(&n_bytes);
    bench_write_svg(stream, outcomes, n);
    assert_int_equal(fclose(stream), 0);
    const char *fault = xml_fault(text);
    if (fault) {
        fail_msg("not XML at '%.60s'", fault);
    }
}

static void test_svg(void **state)
{
    (void)state;
    write_svg(&outcome, 1);
    has("<svg xmlns=\"http://www.w3.org/2000/svg\"");
    has(">model layer: N 1000, K 1000</text>");
    has("test \"device\" &lt;1&gt; &amp; co; bf16 activations");
    has(">int4  decode</text>");
    has(">speed-up over bf16</text>");
    has(">M (rows of x)</text>");
    assert_int_equal(count("<polyline"), 6); /* three series in two plots */
    assert_int_equal(count("<path"), 2);     /* two of them turn */
    assert_null(strstr(text, "another order"));
    assert_null(strstr(text, "nan"));
    assert_null(strstr(text, "inf"));
}

static void test_svg_of_a_series_that_may_not_serve(void **state)
{
    (void)state;
    struct bench_series *series = &outcome.sweep.series[0];
    for (uint32_t i = 0; i < series->n_points; i++) {
        series->points[i].is_eligible = false;
    }
    write_svg(&outcome, 1);
    has("adds up in another order");
    assert_int_equal(count("stroke-dasharray=\"2 4\""), 4); /* two lines, two keys */
}

static void test_svg_of_many_series(void **state)
{
    (void)state;
    char formats[12][8];
    for (uint32_t i = 0; i < 12; i++) {
        const struct bench_case_row row = {1, "k", 5 + i, true};
        (void)snprintf(formats[i], sizeof(formats[i]), "f%u", i);
        add_format(&outcome.sweep, formats[i], &row, 1);
    }
    write_svg(&outcome, 1);
    assert_int_equal(count("<polyline"), 2 * BENCH_PLOTTED_MAX);
    has(">5 slower series are not drawn</text>");
}

static void test_svg_of_nothing(void **state)
{
    (void)state;
    struct bench_outcome empty = {.sweep = {.shape = {.n = 1, .k = 2}, .baseline = "bf16"}};
    write_svg(&empty, 1);
    has(">nothing was measured</text>");
}

static void test_csv(void **state)
{
    (void)state;
    size_t n_bytes;
    FILE *stream = begin(&n_bytes);
    bench_write_csv(stream, &outcome, 1);
    assert_int_equal(fclose(stream), 0);
    assert_int_equal(count("\n"), 1 + 2 * 9);
    has("device,layer,n,k,act,format,kernel,m,launches,packed_bytes,usec,");
    has("\n\"test \"\"device\"\" <1> & co\",\"model layer\",1000,1000,bf16,\"int4\",\"decode\",1,1,"
        "1000000,20,10,2,0.5,50,0.1,40,2,1,1,1\n");
    has(",1024,1024,bf16,\"bf16\",\"plain\",1,1,1000000,32,");
    const char *line = strchr(text, '\n');
    uint32_t n_columns = 1, n_values = 1;
    for (const char *at = text; at < line; at++) {
        n_columns += *at == ',';
    }
    for (const char *at = line + 1; *at != '\n'; at++) {
        n_values += *at == ',';
    }
    assert_int_equal(n_columns, n_values);
}

static void test_table(void **state)
{
    (void)state;
    size_t n_bytes;
    FILE *stream = begin(&n_bytes);
    bench_print_table(stream, &outcome.sweep);
    bench_print_padding(stream, &outcome);
    assert_int_equal(fclose(stream), 0);
    has("model layer: N 1000, K 1000, bf16 activations, test \"device\"");
    has("     1 *>  int4                decode                               20.0     2.00    50 %"
        "    50.0     0.10     2.00\n");
    has("plain                          M 16.0\n");
    has("wide                           beyond M 64\n");
    has("int4 wide overtakes int4 decode\n");
    has("price of 1000 x 1000 against 1024 x 1024, which needs no padding:");
    has("     1     bf16                      40.0       32.0    +25.0 %\n");
}

static void test_json(void **state)
{
    (void)state;
    json_t *document = bench_json(&outcome, 1);
    json_t *shape = json_array_get(json_object_get(document, "shapes"), 0);
    json_t *series = json_array_get(json_object_get(shape, "series"), 1);
    assert_int_equal(json_integer_value(json_object_get(shape, "n")), 1000);
    assert_string_equal(json_string_value(json_object_get(series, "kernel")), "decode");
    assert_near(json_real_value(json_object_get(series, "ridge_m")), 2, 1e-9);
    assert_int_equal(json_array_size(json_object_get(series, "points")), 3);
    json_t *crossover = json_array_get(json_object_get(shape, "crossovers"), 0);
    assert_true(json_real_value(json_object_get(crossover, "m")) > 1);
    json_t *padded = json_object_get(shape, "padded");
    assert_int_equal(json_integer_value(json_object_get(padded, "n")), 1024);
    json_decref(document);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(test_##name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(svg),
        TEST(svg_of_a_series_that_may_not_serve),
        TEST(svg_of_many_series),
        TEST(svg_of_nothing),
        TEST(csv),
        TEST(table),
        TEST(json),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
