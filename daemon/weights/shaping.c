/* Reading what a client asks for. See shaping.h. */
#include "daemon/weights/shaping.h"

#include <string.h>

#include "ipc/base/num.h"

#define INVALID(why, ...) reason_set((why), STATUS_INVALID_ARGUMENT, __VA_ARGS__)

/* A stretch of text that is not NUL-terminated. */
struct word {
    const char *at;
    size_t n_bytes;
};

/* The next stretch up to one of the delimiters, which are skipped before it; false at the end. */
static bool next_word(const char **at, const char *delimiters, struct word *ret_word)
{
    *at += strspn(*at, delimiters);
    *ret_word = (struct word){*at, strcspn(*at, delimiters)};
    *at += ret_word->n_bytes;
    return ret_word->n_bytes > 0;
}

static bool copy_word(const struct word *word, char *text, size_t size_bytes)
{
    if (word->n_bytes == 0 || word->n_bytes >= size_bytes) {
        return false;
    }
    memcpy(text, word->at, word->n_bytes);
    text[word->n_bytes] = '\0';
    return true;
}

/* ---- fuse ---- */

static const struct shaping_fuse usual_fuses[] = {
    {"qkv_proj", {"q_proj", "k_proj", "v_proj"}, 3, true},
    {"gate_up_proj", {"gate_proj", "up_proj"}, 2, true},
};

static bool is_usual(const struct word *word)
{
    return word->n_bytes == strlen("usual") && strncmp(word->at, "usual", word->n_bytes) == 0;
}

/* "NAME=PART,PART": a last part of a path has no '.'. */
static bool read_fuse(const struct word *word, struct shaping_fuse *fuse)
{
    char rule[MSG_SHAPING_BYTES];
    struct word part;
    if (!copy_word(word, rule, sizeof(rule)) || strchr(rule, '.')) {
        return false;
    }
    const char *equals = strchr(rule, '=');
    if (!equals ||
        !copy_word(&(struct word){rule, (size_t)(equals - rule)}, fuse->name, sizeof(fuse->name))) {
        return false;
    }
    for (const char *at = equals + 1; next_word(&at, ",", &part);) {
        if (fuse->n_parts == SHAPING_PARTS_MAX ||
            !copy_word(&part, fuse->parts[fuse->n_parts++], sizeof(fuse->parts[0]))) {
            return false;
        }
    }
    return fuse->n_parts >= 2 && !strchr(equals + 1, '=');
}

static int add_fuse(struct shaping *shaping, const struct shaping_fuse *fuse, struct reason *why)
{
    if (shaping->n_fuses == SHAPING_RULES_MAX) {
        return INVALID(why, "fuse: more than %d rules", SHAPING_RULES_MAX);
    }
    shaping->fuses[shaping->n_fuses++] = *fuse;
    return 0;
}

static int parse_fuse(const struct word *word, struct shaping *shaping, struct reason *why)
{
    struct shaping_fuse fuse = {.n_parts = 0};
    int r = 0;
    if (!is_usual(word)) {
        return read_fuse(word, &fuse)
                   ? add_fuse(shaping, &fuse, why)
                   : INVALID(why, "fuse: '%.*s' is not NAME=PART,PART,... of at most %d parts",
                             (int)num_min(word->n_bytes, 100), word->at, SHAPING_PARTS_MAX);
    }
    for (uint32_t i = 0; r == 0 && i < ARRAY_LENGTH(usual_fuses); i++) {
        r = add_fuse(shaping, &usual_fuses[i], why);
    }
    return r;
}

/* ---- split ---- */

static enum shaping_axis read_axis(const char *text)
{
    if (strcmp(text, "n") == 0) {
        return SHAPING_N;
    }
    if (strcmp(text, "k") == 0) {
        return SHAPING_K;
    }
    return strcmp(text, "whole") == 0 ? SHAPING_WHOLE : SHAPING_UNSAID;
}

static int parse_split(const struct word *word, struct shaping *shaping, struct reason *why)
{
    char rule[MSG_SHAPING_BYTES];
    struct shaping_split split = {.axis = SHAPING_UNSAID};
    char *equals = copy_word(word, rule, sizeof(rule)) ? strrchr(rule, '=') : NULL;
    if (equals && copy_word(&(struct word){rule, (size_t)(equals - rule)}, split.module,
                            sizeof(split.module))) {
        split.axis = read_axis(equals + 1);
    }
    if (split.axis == SHAPING_UNSAID) {
        return INVALID(why, "split: '%.*s' is not MODULE=n, MODULE=k or MODULE=whole",
                       (int)num_min(word->n_bytes, 100), word->at);
    }
    if (shaping->n_splits == SHAPING_RULES_MAX) {
        return INVALID(why, "split: more than %d rules", SHAPING_RULES_MAX);
    }
    shaping->splits[shaping->n_splits++] = split;
    return 0;
}

/* ---- act ---- */

static bool read_act(const char *text, enum gk_act *ret_act)
{
    *ret_act = strcmp(text, "fp8") == 0 ? GK_ACT_FP8_TOKEN : GK_ACT_FLOAT;
    return *ret_act != GK_ACT_FLOAT || strcmp(text, "float") == 0;
}

static int parse_act(const struct word *word, struct shaping *shaping, struct reason *why)
{
    char rule[MSG_SHAPING_BYTES];
    struct shaping_act act = {.act = GK_ACT_FLOAT};
    bool is_rule = copy_word(word, rule, sizeof(rule));
    char *equals = is_rule ? strrchr(rule, '=') : NULL;
    if (equals) {
        is_rule = copy_word(&(struct word){rule, (size_t)(equals - rule)}, act.module,
                            sizeof(act.module));
    }
    if (!is_rule || !read_act(equals ? equals + 1 : rule, &act.act)) {
        return INVALID(why, "activations: '%.*s' is not fp8, float, MODULE=fp8 or MODULE=float",
                       (int)num_min(word->n_bytes, 100), word->at);
    }
    if (shaping->n_acts == SHAPING_RULES_MAX) {
        return INVALID(why, "activations: more than %d rules", SHAPING_RULES_MAX);
    }
    shaping->acts[shaping->n_acts++] = act;
    return 0;
}

/* ---- the whole ---- */

int shaping_parse(const struct msg_shaping *message, struct shaping *ret_shaping,
                  struct reason *why)
{
    struct shaping shaping = {.tp_rank = message->tp_rank,
                              .tp_size = message->tp_size ? message->tp_size : 1};
    struct word word;
    int r = 0;
    if (shaping.tp_rank >= shaping.tp_size) {
        return INVALID(why, "rank %u is out of range for a size of %u", shaping.tp_rank,
                       shaping.tp_size);
    }
    for (const char *at = message->fuse; r == 0 && next_word(&at, " ", &word);) {
        r = parse_fuse(&word, &shaping, why);
    }
    for (const char *at = message->split; r == 0 && next_word(&at, " ", &word);) {
        r = parse_split(&word, &shaping, why);
    }
    for (const char *at = message->act; r == 0 && next_word(&at, " ", &word);) {
        r = parse_act(&word, &shaping, why);
    }
    if (r == 0) {
        *ret_shaping = shaping;
    }
    return r;
}

bool shaping_is_same(const struct msg_shaping *a, const struct msg_shaping *b)
{
    uint64_t size_a = num_max(a->tp_size, 1);
    uint64_t size_b = num_max(b->tp_size, 1);
    return a->tp_rank == b->tp_rank && size_a == size_b && strcmp(a->fuse, b->fuse) == 0 &&
           strcmp(a->split, b->split) == 0 && strcmp(a->act, b->act) == 0;
}

/* Columns of y that belong together come out of these; lm_head's are those of the vocabulary. */
static const char *const cut_along_n[] = {
    "q_proj", "k_proj", "v_proj",        "gate_proj", "up_proj", "w1",    "w3",      "fc1",
    "fc_in",  "c_fc",   "dense_h_to_4h", "query",     "key",     "value", "lm_head",
};

/* These take what the ones above put out. */
static const char *const cut_along_k[] = {
    "o_proj", "down_proj", "out_proj", "w2", "fc2", "fc_out", "dense_4h_to_h",
};

static bool is_end_of(const char *module, const char *end)
{
    size_t module_bytes = strlen(module);
    size_t end_bytes = strlen(end);
    if (end_bytes > module_bytes || strcmp(module + module_bytes - end_bytes, end) != 0) {
        return false;
    }
    return end_bytes == module_bytes || module[module_bytes - end_bytes - 1] == '.';
}

static bool is_one_of(const char *module, const char *const *ends, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (is_end_of(module, ends[i])) {
            return true;
        }
    }
    return false;
}

enum shaping_axis shaping_axis_of(const struct shaping *shaping, const char *module)
{
    for (uint32_t i = 0; i < shaping->n_splits; i++) {
        if (is_end_of(module, shaping->splits[i].module)) {
            return shaping->splits[i].axis;
        }
    }
    if (is_one_of(module, cut_along_n, ARRAY_LENGTH(cut_along_n))) {
        return SHAPING_N;
    }
    return is_one_of(module, cut_along_k, ARRAY_LENGTH(cut_along_k)) ? SHAPING_K : SHAPING_UNSAID;
}

bool shaping_is_about(const struct shaping_act *act, const char *module)
{
    return act->module[0] != '\0' && is_end_of(module, act->module);
}

const struct shaping_act *shaping_act_of(const struct shaping *shaping, const char *module)
{
    const struct shaping_act *of_all = NULL;
    for (uint32_t i = 0; i < shaping->n_acts; i++) {
        const struct shaping_act *act = &shaping->acts[i];
        if (shaping_is_about(act, module)) {
            return act;
        }
        if (act->module[0] == '\0' && !of_all) {
            of_all = act;
        }
    }
    return of_all;
}
