/* Patterns over module paths. Wildcards are rewritten as regular expressions, so that the one
 * engine's limits hold for them too: fnmatch() has none, and takes exponential time on "*a*a*a*a".
 */
#define PCRE2_CODE_UNIT_WIDTH 8

#include "daemon/weights/quant_pattern.h"

#include <errno.h>
#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

#include "ipc/base/cleanup.h"
#include "ipc/base/error.h"

#define STEPS_MAX    100000u /* of one match: about a millisecond */
#define HEAP_KIB_MAX 1024u

#define BAD(why, ...) reason_set((why), STATUS_BAD_CHECKPOINT, __VA_ARGS__)

/* ---- wildcards ---- */

/* The ']' that ends the set which begins behind `at`; NULL: there is none, and '[' is plain. A ']'
 * that comes first belongs to the set. */
static const char *set_end(const char *at)
{
    at += *at == '!';
    return strchr(at + (*at == ']'), ']');
}

/* "[!a-c]" as "[^a-c]", everything special inside escaped; returns where it ends in both. */
static const char *put_set(const char *at, const char *end, char **out)
{
    *(*out)++ = '[';
    if (*at == '!') {
        *(*out)++ = '^';
        at++;
    }
    for (; at < end; at++) {
        if (strchr("\\[]^", *at)) {
            *(*out)++ = '\\';
        }
        *(*out)++ = *at;
    }
    *(*out)++ = ']';
    return end + 1;
}

static const char *put_one(const char *at, char **out)
{
    const char *end = *at == '[' ? set_end(at + 1) : NULL;
    if (end) {
        return put_set(at + 1, end, out);
    }
    if (*at == '*') {
        *(*out)++ = '.';
        *(*out)++ = '*';
        return at + 1;
    }
    if (strchr("\\^$.[|()?+{}-#&~", *at) && *at != '?') {
        *(*out)++ = '\\';
    }
    *(*out)++ = *at == '?' ? '.' : *at;
    return at + 1;
}

/* A malloc'd expression for a wildcard; no character takes more than two. */
static char *regex_of_wildcard(const char *wildcard)
{
    char *regex = malloc(2 * strlen(wildcard) + sizeof("(?s)\\z"));
    if (!regex) {
        return NULL;
    }
    char *out = stpcpy(regex, "(?s)");
    while (*wildcard != '\0') {
        wildcard = put_one(wildcard, &out);
    }
    (void)stpcpy(out, "\\z");
    return regex;
}

/* ---- regular expressions ---- */

static int compile(struct quant_pattern *pattern, const char *regex, struct reason *why)
{
    int error;
    PCRE2_SIZE offset;
    pattern->re =
        pcre2_compile((PCRE2_SPTR)regex, PCRE2_ZERO_TERMINATED,
                      PCRE2_ANCHORED | PCRE2_UTF | PCRE2_NEVER_BACKSLASH_C, &error, &offset, NULL);
    if (pattern->re) {
        return 0;
    }
    if (error == PCRE2_ERROR_NOMEMORY) {
        return err_raise(-ENOMEM);
    }
    char sentence[120] = "";
    (void)pcre2_get_error_message(error, (PCRE2_UCHAR *)sentence, sizeof(sentence));
    return BAD(why, "'%.120s' is no regular expression: %s, at byte %zu", pattern->text, sentence,
               (size_t)offset);
}

/* Match data and limits for one match. */
struct matcher {
    pcre2_match_context *context;
    pcre2_match_data *data;
};

static int matcher_init(struct matcher *matcher, const pcre2_code *re)
{
    matcher->context = pcre2_match_context_create(NULL);
    matcher->data = pcre2_match_data_create_from_pattern(re, NULL);
    if (!matcher->context || !matcher->data) {
        pcre2_match_context_free(matcher->context);
        pcre2_match_data_free(matcher->data);
        return err_raise(-ENOMEM);
    }
    (void)pcre2_set_match_limit(matcher->context, STEPS_MAX);
    (void)pcre2_set_depth_limit(matcher->context, STEPS_MAX);
    (void)pcre2_set_heap_limit(matcher->context, HEAP_KIB_MAX);
    return 0;
}

static int match_regex(const struct quant_pattern *pattern, const char *module, bool *ret_is_match,
                       struct reason *why)
{
    struct matcher matcher;
    int r = matcher_init(&matcher, pattern->re);
    if (r != 0) {
        return r;
    }
    int n = pcre2_match(pattern->re, (PCRE2_SPTR)module, strlen(module), 0, 0, matcher.data,
                        matcher.context);
    pcre2_match_context_free(matcher.context);
    pcre2_match_data_free(matcher.data);
    if (n == PCRE2_ERROR_NOMEMORY) {
        return err_raise(-ENOMEM);
    }
    if (n < 0 && n != PCRE2_ERROR_NOMATCH) {
        char sentence[80] = "";
        (void)pcre2_get_error_message(n, (PCRE2_UCHAR *)sentence, sizeof(sentence));
        return BAD(why, "the pattern '%.100s' cannot be tried on module '%.100s': %s",
                   pattern->text, module, sentence);
    }
    *ret_is_match = n >= 0;
    return 0;
}

/* ---- all kinds ---- */

int quant_pattern_init(struct quant_pattern *pattern, enum quant_pattern_kind kind,
                       const char *text, struct reason *why)
{
    struct quant_pattern made = {.kind = kind};
    if (strlen(text) > QUANT_PATTERN_BYTES_MAX) {
        return BAD(why, "the pattern '%.60s...' has %zu bytes; at most %d", text, strlen(text),
                   QUANT_PATTERN_BYTES_MAX);
    }
    made.text = strdup(text);
    CLEAN_FREE char *rewritten = kind == QUANT_PATTERN_WILDCARD ? regex_of_wildcard(text) : NULL;
    if (!made.text || (kind == QUANT_PATTERN_WILDCARD && !rewritten)) {
        quant_pattern_finish(&made);
        return err_raise(-ENOMEM);
    }
    int r = 0;
    if (kind == QUANT_PATTERN_REGEX || kind == QUANT_PATTERN_WILDCARD) {
        r = compile(&made, rewritten ? rewritten : text, why);
    }
    if (r != 0) {
        quant_pattern_finish(&made);
        return r;
    }
    *pattern = made;
    return 0;
}

void quant_pattern_finish(struct quant_pattern *pattern)
{
    pcre2_code_free(pattern->re);
    free(pattern->text);
    *pattern = QUANT_PATTERN_NULL;
}

static bool is_path_match(const char *text, const char *module)
{
    size_t text_bytes = strlen(text);
    size_t module_bytes = strlen(module);
    if (text_bytes == 0 || text_bytes > module_bytes) {
        return false;
    }
    if (text_bytes == module_bytes) {
        return strcmp(text, module) == 0;
    }
    const char *tail = module + module_bytes - text_bytes;
    bool is_tail = tail[-1] == '.' && strcmp(tail, text) == 0;
    return is_tail || (module[text_bytes] == '.' && strncmp(module, text, text_bytes) == 0);
}

int quant_pattern_match(const struct quant_pattern *pattern, const char *module, bool *ret_is_match,
                        struct reason *why)
{
    switch (pattern->kind) {
    case QUANT_PATTERN_REGEX:
    case QUANT_PATTERN_WILDCARD:
        return match_regex(pattern, module, ret_is_match, why);
    case QUANT_PATTERN_EXACT:
        *ret_is_match = strcmp(pattern->text, module) == 0;
        return 0;
    case QUANT_PATTERN_PATH:
        *ret_is_match = is_path_match(pattern->text, module);
        return 0;
    case QUANT_PATTERN_PART:
        *ret_is_match = pattern->text[0] != '\0' && strstr(module, pattern->text) != NULL;
        return 0;
    case QUANT_PATTERN_CLASS:
        *ret_is_match = strcmp(pattern->text, "Linear") == 0;
        return 0;
    case QUANT_PATTERN_ANY:
        break;
    }
    *ret_is_match = true;
    return 0;
}
