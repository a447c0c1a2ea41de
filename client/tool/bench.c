/* bench.c - gemmctl bench: shapes one after the other, each printed as soon as it is there; files
 * at the end. */
#include <errno.h>
#include <stdlib.h>

#include "ipc/base/error.h"

#include "client/tool/bench.h"
#include "client/tool/out_file.h"

typedef void (*writer_fn)(FILE *stream, const struct bench_outcome *outcomes, uint32_t n_outcomes);

/* Before minutes of measuring. */
static int check_file(const char *path)
{
    int r = path ? out_file_check(path) : 0;
    return r < 0 ? tool_cannot_write(path, -r) : 0;
}

static int write_stream(const char *path, writer_fn writer, const struct bench_outcome *outcomes,
                        uint32_t n_outcomes)
{
    FILE *stream = fopen(path, "we");
    if (!stream) {
        return err_raise(-errno);
    }
    writer(stream, outcomes, n_outcomes);
    int error = ferror(stream) ? EIO : 0;
    if (fclose(stream) != 0) {
        error = errno;
    }
    return error ? err_raise(-error) : 0;
}

static int write_file(const char *path, writer_fn writer, const struct bench_outcome *outcomes,
                      uint32_t n_outcomes)
{
    struct out_file out;
    if (!path) {
        return 0;
    }
    int r = out_file_begin(&out, path);
    if (r == 0) {
        r = out_file_end(&out, write_stream(out.path, writer, outcomes, n_outcomes));
    }
    return r < 0 ? tool_cannot_write(path, -r) : 0;
}

static int run_shape(struct tool *tool, const struct bench_options *options,
                     const struct bench_shape *shape, struct bench_outcome *outcome)
{
    struct bench_shape padded;
    int r = bench_run_sweep(tool, options, shape, &outcome->sweep);
    if (r == 0 && options->has_padding && bench_padded_shape(shape, &padded)) {
        outcome->is_padded = true;
        r = bench_run_sweep(tool, options, &padded, &outcome->padded);
    }
    if (r != 0 || tool->is_json) {
        return r;
    }
    bench_print_table(stdout, &outcome->sweep);
    if (options->has_padding) {
        bench_print_padding(stdout, outcome);
    }
    (void)putchar('\n');
    return tool_flush(0);
}

static int run_all(struct tool *tool, const struct bench_options *options,
                   struct bench_outcome *outcomes)
{
    for (uint32_t i = 0; i < options->n_shapes; i++) {
        int r = bench_check_sweep(tool, options, &options->shapes[i]);
        if (r != 0) {
            return r;
        }
    }
    for (uint32_t i = 0; i < options->n_shapes; i++) {
        int r = run_shape(tool, options, &options->shapes[i], &outcomes[i]);
        if (r != 0) {
            return r;
        }
    }
    int r = write_file(options->csv_path, bench_write_csv, outcomes, options->n_shapes);
    r = r != 0 ? r : write_file(options->svg_path, bench_write_svg, outcomes, options->n_shapes);
    return r != 0 || !tool->is_json ? r : tool_print_json(bench_json(outcomes, options->n_shapes));
}

int command_bench(struct tool *tool, int argc, char **argv)
{
    struct bench_options options;
    int r = bench_parse_options(argc, argv, &options);
    r = r != 0 ? r : check_file(options.csv_path);
    r = r != 0 ? r : check_file(options.svg_path);
    if (r != 0) {
        return r;
    }
    struct bench_outcome *outcomes = calloc(options.n_shapes, sizeof(*outcomes));
    if (!outcomes) {
        return tool_fail(client_refuse(STATUS_NO_MEMORY, "out of memory"));
    }
    r = run_all(tool, &options, outcomes);
    for (uint32_t i = 0; i < options.n_shapes; i++) {
        bench_sweep_finish(&outcomes[i].sweep);
        bench_sweep_finish(&outcomes[i].padded);
    }
    free(outcomes);
    return r;
}
