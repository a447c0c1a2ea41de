/* plain_text.c - see plain_text.h. Words of 64 bits in hexadecimal: a head, the algorithms, and a
 * digest of all that, without which a flipped digit would be an algorithm like any other. */
#include "kernels/cuda/plain_text.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gk/digest.h"
#include "ipc/base/num.h"

#define ALGORITHM_WORDS (sizeof(cublasLtMatmulAlgo_t) / sizeof(uint64_t))
#define WORDS_MAX       (HEAD_WORDS + 2 * PLAIN_RANGES_MAX * ALGORITHM_WORDS + DIGEST_WORDS)

enum { HEAD_VERSION = 0, HEAD_SUMS_ROWS, HEAD_ROUNDED_ROWS, HEAD_WORDS };
enum { DIGEST_WORDS = 2 };

static_assert(WORDS_MAX * 17 < GK_PLAN_TEXT_BYTES, "any plan's text fits");

struct words {
    uint64_t word[WORDS_MAX];
    uint32_t n;
};

static void put_choice(struct words *words, const struct plain_choice *choice)
{
    uint32_t n_words = plain_ranges(choice->rows_max) * (uint32_t)ALGORITHM_WORDS;
    memcpy(&words->word[words->n], choice->algorithms, n_words * sizeof(uint64_t));
    words->n += n_words;
}

static void take_choice(const uint64_t **from, uint32_t rows_max, struct plain_choice *ret_choice)
{
    uint32_t n_words = plain_ranges(rows_max) * (uint32_t)ALGORITHM_WORDS;
    memcpy(ret_choice->algorithms, *from, n_words * sizeof(uint64_t));
    ret_choice->rows_max = rows_max;
    *from += n_words;
}

static struct gk_digest digest_of(const struct words *words, uint32_t n)
{
    struct gk_digest digest = {0};
    gk_digest_add(&digest, words->word, 0, n);
    return digest;
}

void plain_text_format(const struct plain_plan *plan, uint64_t library_version, char *text)
{
    struct words words = {.word = {[HEAD_VERSION] = library_version,
                                   [HEAD_SUMS_ROWS] = plan->sums.rows_max,
                                   [HEAD_ROUNDED_ROWS] = plan->rounded.rows_max},
                          .n = HEAD_WORDS};
    put_choice(&words, &plan->sums);
    put_choice(&words, &plan->rounded);
    struct gk_digest digest = digest_of(&words, words.n);
    words.word[words.n++] = digest.sum;
    words.word[words.n++] = digest.parity;
    for (uint32_t i = 0, n_bytes = 0; i < words.n; i++) {
        n_bytes += (uint32_t)snprintf(text + n_bytes, GK_PLAN_TEXT_BYTES - n_bytes, "%s%llx",
                                      i == 0 ? "" : " ", (unsigned long long)words.word[i]);
    }
}

/* How many words there are; 0: that is no text of ours. */
static uint32_t read_words(const char *text, struct words *words)
{
    words->n = 0;
    for (char *end; *text != '\0'; text = end) {
        if (words->n == WORDS_MAX) {
            return 0;
        }
        words->word[words->n++] = strtoull(text, &end, 16);
        if (end == text || (*end != ' ' && *end != '\0')) {
            return 0;
        }
    }
    return words->n;
}

static bool is_whole(const struct words *words)
{
    if (words->n < HEAD_WORDS + DIGEST_WORDS) {
        return false;
    }
    uint32_t n = words->n - DIGEST_WORDS;
    struct gk_digest digest = digest_of(words, n);
    return words->word[n] == digest.sum && words->word[n + 1] == digest.parity;
}

int plain_text_parse(const char *text, uint64_t library_version, uint32_t sums_rows,
                     uint32_t rounded_rows, struct plain_plan *ret_plan, struct reason *why)
{
    struct words words;
    if (read_words(text, &words) == 0 || !is_whole(&words)) {
        return reason_set(why, STATUS_UNSUPPORTED, "it is damaged");
    }
    const uint64_t *head = words.word;
    if (head[HEAD_VERSION] != library_version) {
        return reason_set(why, STATUS_UNSUPPORTED, "it is of cuBLASLt %llu, and this is %llu",
                          (unsigned long long)head[HEAD_VERSION],
                          (unsigned long long)library_version);
    }
    bool is_rounded = head[HEAD_ROUNDED_ROWS] != 0;
    if (head[HEAD_SUMS_ROWS] != sums_rows ||
        (is_rounded && head[HEAD_ROUNDED_ROWS] != rounded_rows)) {
        return reason_set(why, STATUS_UNSUPPORTED, "it is for calls of other numbers of rows");
    }
    uint32_t n_ranges = plain_ranges(sums_rows) + (is_rounded ? plain_ranges(rounded_rows) : 0);
    if (words.n != HEAD_WORDS + n_ranges * ALGORITHM_WORDS + DIGEST_WORDS) {
        return reason_set(why, STATUS_UNSUPPORTED, "it has algorithms for other ranges of rows");
    }
    const uint64_t *from = &words.word[HEAD_WORDS];
    take_choice(&from, sums_rows, &ret_plan->sums);
    take_choice(&from, is_rounded ? rounded_rows : 0, &ret_plan->rounded);
    return 0;
}
