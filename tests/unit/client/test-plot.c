/* test-plot.c - the pieces of a plot lie where they should, in well-formed XML. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "client/tool/plot.h"
#include "tests/unit/client/xml_case.h"

static char *text;
static size_t n_bytes;
static struct plot plot;

static void begin(void)
{
    FILE *stream = open_memstream(&text, &n_bytes);
    assert_non_null(stream);
    plot = (struct plot){stream, 100, 50, 400, 200, 1, 16, 10, 1000};
    plot_page_begin(stream, 600, 300);
}

static void end(void)
{
    plot_page_end(plot.stream);
    assert_int_equal(fclose(plot.stream), 0);
    const char *fault = xml_fault(text);
    if (fault) {
        fail_msg("not XML at '%.60s'", fault);
    }
}

static void has(const char *piece)
{
    if (!strstr(text, piece)) {
        fail_msg("no '%s' in '%s'", piece, text);
    }
}

static void test_axes(void **state)
{
    (void)state;
    begin();
    plot_axes(&plot, "rows", "time");
    end();
    has("<text x=\"100.0\" y=\"267.0\" class=\"tick\" text-anchor=\"middle\">1</text>");
    has("<text x=\"300.0\" y=\"267.0\" class=\"tick\" text-anchor=\"middle\">4</text>"); /* half */
    has(">16</text>");
    has("<text x=\"92.0\" y=\"154.0\" class=\"tick\" text-anchor=\"end\">100</text>");
    has(">rows</text>");
    has(">time</text>");
    assert_null(strstr(text, ">32</text>"));
    assert_null(strstr(text, ">5</text>"));
    free(text);
}

static void test_lines(void **state)
{
    (void)state;
    static const struct plot_point points[] = {{1, 10}, {4, 100}, {16, 1000}};
    static const struct plot_pen solid = {"#123456", NULL, 2}, dashed = {"#abcdef", "3 3", 1};
    begin();
    plot_line(&plot, points, 3, &solid);
    plot_level(&plot, 100, &dashed);
    plot_diamond(&plot, &points[1], "#123456");
    plot_key(plot.stream, 520, 60, &dashed, "a key");
    end();
    has("points=\"100.0,250.0 300.0,150.0 500.0,50.0\"");
    has("<circle cx=\"300.0\" cy=\"150.0\" r=\"3\" fill=\"#123456\"/>");
    has("y1=\"150.0\" x2=\"500.0\" y2=\"150.0\" stroke=\"#abcdef\" stroke-width=\"1.0\" "
        "stroke-dasharray=\"3 3\"/>");
    has(">a key</text>");
    free(text);
}

static void test_text_is_escaped(void **state)
{
    (void)state;
    begin();
    plot_text(plot.stream, 1, 2, "note", "start", "a<b & \"c\" > d\n");
    end();
    has(">a&lt;b &amp; \"c\" &gt; d?</text>");
    free(text);
}

/* The judge of the tests can tell. */
static void test_bad_xml_is_seen(void **state)
{
    (void)state;
    assert_null(xml_fault("<?xml version=\"1.0\"?>\n<a><b c=\"d\"/>x &amp; y</a>\n"));
    assert_non_null(xml_fault("<a><b></a></b>"));
    assert_non_null(xml_fault("<a>"));
    assert_non_null(xml_fault("<a/></a>"));
    assert_non_null(xml_fault("<a>x & y</a>"));
    assert_non_null(xml_fault("<a>x < y</a>"));
    assert_non_null(xml_fault("<a></a><b></b>"));
    assert_non_null(xml_fault("<a b=\"c></a>"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_axes),
        cmocka_unit_test(test_lines),
        cmocka_unit_test(test_text_is_escaped),
        cmocka_unit_test(test_bad_xml_is_seen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
