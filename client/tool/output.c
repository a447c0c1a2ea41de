/* output.c - what commands print with. */
#include <errno.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "ipc/utf8.h"

#include "client/tool/tool.h"

const char *tool_hint;

int tool_usage(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    (void)fprintf(stderr, "gemmctl: ");
    (void)vfprintf(stderr, format, args);
    (void)fprintf(stderr, "; see gemmctl %s%s--help\n", tool_hint ? tool_hint : "",
                  tool_hint ? " " : "");
    va_end(args);
    return TOOL_USAGE;
}

int tool_fail(int status)
{
    (void)fprintf(stderr, "gemmctl: %s: %s\n", gemmd_status_name(status), gemmd_last_error());
    switch (gemmd_status_category(status)) {
    case GEMMD_CATEGORY_USAGE:
    case GEMMD_CATEGORY_QUOTA:
    case GEMMD_CATEGORY_UNSUPPORTED:
    case GEMMD_CATEGORY_BUSY:
        return TOOL_REFUSED;
    default:
        return status == GEMMD_DISCONNECTED ? TOOL_NO_DAEMON : TOOL_FAILED;
    }
}

int tool_bad_option(int key, char **argv)
{
    if (key == ':') {
        return tool_usage("%s: '%s' wants a value", argv[0], argv[optind - 1]);
    }
    return optopt ? tool_usage("%s has no option '-%c'", argv[0], optopt)
                  : tool_usage("%s has no option '%s'", argv[0], argv[optind - 1]);
}

int tool_cannot_write(const char *what, int error)
{
    (void)fprintf(stderr, "gemmctl: cannot write %s: %s\n", what, strerror(error));
    return TOOL_FAILED;
}

int tool_flush(int code)
{
    bool has_failed = ferror(stdout) != 0;
    errno = 0;
    if (fflush(stdout) == 0 && !has_failed) {
        return code;
    }
    return tool_cannot_write("standard output", errno ? errno : EIO);
}

int tool_print_json(json_t *document)
{
    if (!document) {
        (void)fprintf(stderr, "gemmctl: out of memory\n");
        return TOOL_FAILED;
    }
    int r = json_dumpf(document, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
    json_decref(document);
    (void)putchar('\n');
    return r == 0 ? TOOL_DONE : TOOL_FAILED;
}

const char *tool_bytes(uint64_t n_bytes, char text[32])
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double amount = (double)n_bytes;
    size_t i = 0;
    while (amount >= 1024 && i < 4) {
        amount /= 1024;
        i++;
    }
    (void)snprintf(text, 32, i ? "%.1f %s" : "%.0f %s", amount, units[i]);
    return text;
}

const char *tool_plural(uint64_t n)
{
    return n == 1 ? "" : "s";
}

int tool_act(const char *text, enum gemmd_dtype *ret_dtype)
{
    if (strcmp(text, "bf16") == 0) {
        *ret_dtype = GEMMD_BF16;
        return 0;
    }
    if (strcmp(text, "f16") == 0 || strcmp(text, "fp16") == 0) {
        *ret_dtype = GEMMD_F16;
        return 0;
    }
    return tool_usage("--act '%s' is neither bf16 nor f16", text);
}

int tool_name(const char *argument, char *ret_name, size_t size_bytes)
{
    if (strlen(argument) >= size_bytes) {
        return tool_usage("'%.32s...' is %zu bytes long, the limit is %zu", argument,
                          strlen(argument), size_bytes - 1);
    }
    size_t n_valid = utf8_valid_bytes(argument, strlen(argument));
    if (argument[n_valid] != '\0') {
        return tool_usage("'%.*s...' is not UTF-8 from byte %zu on", (int)n_valid, argument,
                          n_valid);
    }
    memcpy(ret_name, argument, strlen(argument) + 1);
    return 0;
}
