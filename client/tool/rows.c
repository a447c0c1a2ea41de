/* rows.c - numbers on the command line: one, and lists of numbers of rows. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client/tool/tool.h"

bool tool_take_number(const char *text, uint32_t *ret_number, const char **ret_end)
{
    char *end;
    errno = 0;
    unsigned long number = strtoul(text, &end, 10);
    if (errno != 0 || text[0] < '0' || text[0] > '9' || number == 0 || number > UINT32_MAX) {
        return false;
    }
    *ret_number = (uint32_t)number;
    *ret_end = end;
    return true;
}

struct rows {
    uint32_t *m;
    uint32_t n;
    uint32_t n_max;
};

static bool add_rows(struct rows *rows, uint32_t m)
{
    if (rows->n == rows->n_max) {
        return false;
    }
    rows->m[rows->n++] = m;
    return true;
}

/* "3", or "8..64": doublings */
static bool take_run(struct rows *rows, const char *text, const char **ret_end)
{
    uint32_t first, last;
    bool is_good = tool_take_number(text, &first, ret_end);
    last = first;
    if (is_good && strncmp(*ret_end, "..", 2) == 0) {
        is_good = tool_take_number(*ret_end + 2, &last, ret_end) && last >= first;
    }
    for (uint64_t m = first; is_good && m <= last; m *= 2) {
        is_good = add_rows(rows, (uint32_t)m);
    }
    return is_good;
}

int tool_rows(const char *text, uint32_t n_max, uint32_t *ret_m, uint32_t *ret_n)
{
    struct rows rows = {.m = ret_m, .n_max = n_max};
    const char *at = text;
    bool is_good = take_run(&rows, at, &at);
    while (is_good && *at == ',') {
        is_good = take_run(&rows, at + 1, &at);
    }
    if (!is_good || *at != '\0') {
        return tool_usage("--m '%s' is not a list of at most %u numbers of rows, like 1,3,8..64, "
                          "where .. doubles",
                          text, n_max);
    }
    *ret_n = rows.n;
    return 0;
}
