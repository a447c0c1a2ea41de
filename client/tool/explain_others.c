/* explain_others.c - why the other kernels were not taken. The daemon says it for every kernel at
 * every number of rows, mostly with the same words: what is the same is said once. */
#include <stdlib.h>
#include <string.h>

#include "client/tool/explain.h"

/* The last one ends what reasons at several numbers of rows have in common. */
#define HEAD_END ": "

/* Why a kernel was not taken for one choice; text NULL: it was. */
struct why_not {
    const char *text;
    size_t n_bytes;
};

struct other {
    const char *kernel;
    struct why_not reasons[MSG_EXPLAIN_M_MAX];
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

/* Without ", not 3" at its end, where 3 is the number of rows: that is said anyway. */
static struct why_not reason_at(const char *text, uint32_t m)
{
    struct why_not reason = {.text = text, .n_bytes = strlen(text)};
    char end[24];
    size_t n = (size_t)snprintf(end, sizeof(end), ", not %u", m);
    if (reason.n_bytes > n && strcmp(text + reason.n_bytes - n, end) == 0) {
        reason.n_bytes -= n;
    }
    return reason;
}

static uint32_t gather(const struct msg_choice *choices, uint32_t n_choices, struct other *others)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < n_choices; i++) {
        for (uint32_t j = 0; j < choices[i].n_declined; j++) {
            const struct msg_declined *declined = &choices[i].declined[j];
            find_other(others, &n, declined->kernel)->reasons[i] =
                reason_at(declined->reason, choices[i].m);
        }
    }
    return n;
}

static bool is_same_reason(const struct why_not *a, const struct why_not *b)
{
    return a->n_bytes == b->n_bytes && !a->text == !b->text &&
           (!a->text || memcmp(a->text, b->text, a->n_bytes) == 0);
}

static bool is_same(const struct other *a, const struct other *b, uint32_t n_choices)
{
    for (uint32_t i = 0; i < n_choices; i++) {
        if (!is_same_reason(&a->reasons[i], &b->reasons[i])) {
            return false;
        }
    }
    return true;
}

/* Bytes of what a reason has in common with those at other numbers of rows. */
static size_t head_bytes(const struct why_not *reason)
{
    size_t n = reason->n_bytes;
    while (n > 0 && strncmp(reason->text + n - 1, HEAD_END, strlen(HEAD_END)) != 0) {
        n--;
    }
    return n > 0 ? n - 1 : reason->n_bytes;
}

static bool has_same_head(const struct why_not *a, const struct why_not *b)
{
    size_t n = head_bytes(a);
    return n < a->n_bytes && n == head_bytes(b) && memcmp(a->text, b->text, n) == 0;
}

/* How many choices from i_first on have its reason. */
static uint32_t run_length(const struct other *other, uint32_t i_first, uint32_t n_choices)
{
    uint32_t i = i_first + 1;
    while (i < n_choices && is_same_reason(&other->reasons[i_first], &other->reasons[i])) {
        i++;
    }
    return i - i_first;
}

/* What stands before a reason, after `last`; how much of it is said already. */
static const char *separator(const struct why_not *last, const struct why_not *reason,
                             size_t *ret_n_said)
{
    bool is_same_head = last && has_same_head(last, reason);
    *ret_n_said = is_same_head ? head_bytes(reason) + 1 : 0;
    if (!last) {
        return "";
    }
    return is_same_head ? "," : "; ";
}

/* "it could, and is not faster: 31.2 us measured at M 1, 33.0 us measured at M 2 to 4" */
static void print_reasons(FILE *stream, const struct other *other, const struct msg_choice *choices,
                          uint32_t n_choices)
{
    const struct why_not *last = NULL;
    uint32_t n;
    for (uint32_t i = 0; i < n_choices; i += n) {
        const struct why_not *reason = &other->reasons[i];
        n = run_length(other, i, n_choices);
        if (!reason->text) {
            continue;
        }
        size_t n_said;
        (void)fputs(separator(last, reason, &n_said), stream);
        (void)fprintf(stream, "%.*s", (int)(reason->n_bytes - n_said), reason->text + n_said);
        if (n < n_choices) {
            (void)fprintf(stream, " at M %u", choices[i].m);
        }
        if (n < n_choices && n > 1) {
            (void)fprintf(stream, " to %u", choices[i + n - 1].m);
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
    print_reasons(stream, first, choices, n_choices);
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
