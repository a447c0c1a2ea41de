/* explain_others.c - why the other kernels were not taken. The daemon says it for every kernel at
 * every number of rows, mostly with the same words: what is the same is said once. */
#include <stdlib.h>
#include <string.h>

#include "client/tool/explain.h"

#define HEAD_END                                                                                   \
    ": " /* the last one ends what reasons at several numbers of rows have in common               \
          */

/* A kernel, and its reason for each choice: NULL where it is the chosen one. */
struct other {
    const char *kernel;
    const char *reasons[MSG_EXPLAIN_M_MAX];
    bool is_said;
};

static struct other *find_other(struct other *others, uint32_t *n, const char *kernel)
{
    for (uint32_t i = 0; i < *n; i++) {
        if (strcmp(others[i].kernel, kernel) == 0) {
            return &others[i];
        }
    }
    others[*n] = (struct other){.kernel = kernel};
    return &others[(*n)++];
}

static uint32_t count_reasons(const struct msg_choice *choices, uint32_t n_choices)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < n_choices; i++) {
        n += choices[i].n_declined;
    }
    return n;
}

static uint32_t gather(const struct msg_choice *choices, uint32_t n_choices, struct other *others)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < n_choices; i++) {
        for (uint32_t j = 0; j < choices[i].n_declined; j++) {
            const struct msg_declined *declined = &choices[i].declined[j];
            find_other(others, &n, declined->kernel)->reasons[i] = declined->reason;
        }
    }
    return n;
}

static bool is_same_text(const char *a, const char *b)
{
    return a == b || (a && b && strcmp(a, b) == 0);
}

static bool is_same(const struct other *a, const struct other *b, uint32_t n_choices)
{
    for (uint32_t i = 0; i < n_choices; i++) {
        if (!is_same_text(a->reasons[i], b->reasons[i])) {
            return false;
        }
    }
    return true;
}

static bool is_one_reason(const struct other *other, uint32_t n_choices)
{
    for (uint32_t i = 1; i < n_choices; i++) {
        if (!is_same_text(other->reasons[0], other->reasons[i])) {
            return false;
        }
    }
    return true;
}

/* Bytes of what a reason has in common with those at other numbers of rows. */
static size_t head_bytes(const char *reason)
{
    const char *end = NULL;
    for (const char *at = reason; (at = strstr(at, HEAD_END)) != NULL; at++) {
        end = at;
    }
    return end ? (size_t)(end - reason) : strlen(reason);
}

/* "it could, and is not faster: 31.2 us measured (M 1), 33.0 us measured (M 2)" */
static void print_by_rows(FILE *stream, const struct other *other, const struct msg_choice *choices,
                          uint32_t n_choices)
{
    const char *last = NULL;
    for (uint32_t i = 0; i < n_choices; i++) {
        const char *reason = other->reasons[i];
        if (!reason) {
            continue;
        }
        size_t head = head_bytes(reason);
        bool is_continued = last && head_bytes(last) == head && memcmp(last, reason, head) == 0;
        if (is_continued && strcmp(last, reason) == 0) {
            (void)fprintf(stream, ", M %u", choices[i].m);
        } else if (is_continued) {
            (void)fprintf(stream, ",%s at M %u", reason + head + 1, choices[i].m);
        } else {
            (void)fprintf(stream, "%s%s at M %u", last ? "; " : "", reason, choices[i].m);
        }
        last = reason;
    }
}

static void print_line(FILE *stream, struct other *others, uint32_t n, uint32_t i_first,
                       const struct msg_choice *choices, uint32_t n_choices)
{
    const struct other *first = &others[i_first];
    (void)fprintf(stream, "  %s", first->kernel);
    for (uint32_t i = i_first + 1; i < n; i++) {
        if (is_same(first, &others[i], n_choices)) {
            (void)fprintf(stream, ", %s", others[i].kernel);
            others[i].is_said = true;
        }
    }
    (void)fprintf(stream, ": ");
    if (is_one_reason(first, n_choices)) {
        (void)fputs(first->reasons[0], stream);
    } else {
        print_by_rows(stream, first, choices, n_choices);
    }
    (void)fputc('\n', stream);
}

int explain_others(FILE *stream, const struct msg_choice *choices, uint32_t n_choices)
{
    uint32_t n_reasons = count_reasons(choices, n_choices);
    struct other *others = n_reasons > 0 ? calloc(n_reasons, sizeof(*others)) : NULL;
    if (!others) {
        return n_reasons == 0 ? TOOL_DONE
                              : tool_fail(client_refuse(STATUS_NO_MEMORY, "out of memory"));
    }
    uint32_t n = gather(choices, n_choices, others);
    (void)fprintf(stream, "not taken:\n");
    for (uint32_t i = 0; i < n; i++) {
        if (!others[i].is_said) {
            print_line(stream, others, n, i, choices, n_choices);
        }
    }
    free(others);
    return TOOL_DONE;
}
