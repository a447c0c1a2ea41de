/* decode_model.c - see decode_model.h. Codes and scales are holes of the file; zero points are
 * written, since 0 would not be the symmetric one. */
#include "tests/bench/decode_model.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define GROUP       128u
#define ZERO_WORD   0x77777777u /* eight times 8, stored minus one */
#define ENTRY_BYTES 1024u

static const char *const linears[DECODE_LINEARS] = {"qkv", "o", "gate_up", "down"};

void decode_linear_shape(const struct decode_shape *shape, uint32_t i_linear, uint32_t *ret_n,
                         uint32_t *ret_k)
{
    const uint32_t n[DECODE_LINEARS] = {shape->qkv, shape->hidden, 2 * shape->intermediate,
                                        shape->hidden};
    *ret_n = n[i_linear];
    *ret_k = i_linear == DECODE_LINEARS - 1 ? shape->intermediate : shape->hidden;
}

void decode_weight_name(uint32_t i, char *text, uint32_t size_bytes)
{
    (void)snprintf(text, size_bytes, "b%u.%s", i / DECODE_LINEARS, linears[i % DECODE_LINEARS]);
}

/* The tensors of one layer in JSON; *offset moves on. */
static void put_layer(char *text, const char *name, uint32_t n, uint32_t k, uint64_t *offset)
{
    uint64_t codes = *offset + (uint64_t)k / 8 * n * 4;
    uint64_t zeros = codes + (uint64_t)(k / GROUP) * (n / 8) * 4;
    uint64_t scales = zeros + (uint64_t)(k / GROUP) * n * 2;
    (void)snprintf(text, ENTRY_BYTES,
                   ",\"%s.qweight\":{\"dtype\":\"I32\",\"shape\":[%u,%u],\"data_offsets\":[%" PRIu64
                   ",%" PRIu64 "]},\"%s.qzeros\":{\"dtype\":\"I32\",\"shape\":[%u,%u],"
                   "\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]},\"%s.scales\":{\"dtype\":\"F16\","
                   "\"shape\":[%u,%u],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}",
                   name, k / 8, n, *offset, codes, name, k / GROUP, n / 8, codes, zeros, name,
                   k / GROUP, n, zeros, scales);
    *offset = scales;
}

static void fail(const char *what)
{
    perror(what);
    abort();
}

static void fill_zeros(int fd, uint32_t n, uint32_t k, uint64_t at)
{
    uint64_t n_words = (uint64_t)(k / GROUP) * (n / 8);
    uint32_t *words = malloc(n_words * sizeof(*words));
    for (uint64_t i = 0; words != NULL && i < n_words; i++) {
        words[i] = ZERO_WORD;
    }
    if (words == NULL || pwrite(fd, words, n_words * 4, (off_t)at) != (ssize_t)(n_words * 4)) {
        fail("zero points");
    }
    free(words);
}

void decode_model_write(const struct temp_folder *folder, const char *name,
                        const struct decode_shape *shape)
{
    char path[400];
    char weight[32];
    uint32_t n_weights = shape->n_blocks * DECODE_LINEARS;
    char *json = malloc((uint64_t)n_weights * ENTRY_BYTES + ENTRY_BYTES);
    uint64_t offset = 0;
    uint32_t n, k;
    (void)snprintf(path, sizeof(path), "%s", temp_path(folder, name));
    if (json == NULL || mkdir(path, 0700) != 0) {
        fail(path);
    }
    (void)strcpy(json, "{\"__metadata__\":{}");
    for (uint32_t i = 0; i < n_weights; i++) {
        decode_weight_name(i, weight, sizeof(weight));
        decode_linear_shape(shape, i % DECODE_LINEARS, &n, &k);
        put_layer(json + strlen(json), weight, n, k, &offset);
    }
    (void)strcat(json, "}");
    while (strlen(json) % 8 != 0) {
        (void)strcat(json, " ");
    }
    uint64_t data_at = 8 + strlen(json);
    (void)strcat(path, "/config.json");
    write_text(path, "{\"quantization_config\": {\"quant_method\": \"gptq\", \"bits\": 4, "
                     "\"group_size\": 128, \"sym\": true, \"desc_act\": false}}");
    (void)snprintf(path, sizeof(path), "%s/model.safetensors", temp_path(folder, name));
    write_safetensors(path, json, offset);
    free(json);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    offset = 0;
    for (uint32_t i = 0; i < n_weights; i++) {
        decode_linear_shape(shape, i % DECODE_LINEARS, &n, &k);
        uint64_t codes_bytes = (uint64_t)k / 8 * n * 4;
        fill_zeros(fd, n, k, data_at + offset + codes_bytes);
        offset += codes_bytes + (uint64_t)(k / GROUP) * (n / 8) * 4 + (uint64_t)(k / GROUP) * n * 2;
    }
    (void)close(fd);
}
