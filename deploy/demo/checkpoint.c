/* checkpoint.c - see checkpoint.h. The file: 8 bytes of header length, a JSON object from tensor
 * name to dtype, shape and offsets, then the data. */
#include "deploy/demo/checkpoint.h"

#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "deploy/demo/values.h"

enum { CODES_PER_WORD = 8, CODE_BITS = 4, CODE_MASK = 0xf, LENGTH_BYTES = 8 };

static const char weight_suffix[] = ".qweight";

struct tensor {
    const void *data;
    uint64_t shape[2];
};

static bool map_file(const char *path, struct checkpoint *checkpoint)
{
    struct stat info;
    int fd = open(path, O_RDONLY | O_CLOEXEC);

    if (fd < 0 || fstat(fd, &info) < 0) {
        perror(path);
        if (fd >= 0) {
            close(fd);
        }
        return false;
    }
    checkpoint->map_bytes = (size_t)info.st_size;
    checkpoint->map = mmap(NULL, checkpoint->map_bytes, PROT_READ, MAP_PRIVATE, fd, 0);
    close(fd);
    if (checkpoint->map == MAP_FAILED) {
        perror(path);
        checkpoint->map = NULL;
        return false;
    }
    return true;
}

/* The header as JSON, and where the data starts; NULL when this is no safetensors file. */
static json_t *read_header(const struct checkpoint *checkpoint, size_t *ret_data_offset)
{
    uint64_t header_bytes;

    if (checkpoint->map_bytes < LENGTH_BYTES) {
        return NULL;
    }
    memcpy(&header_bytes, checkpoint->map, sizeof(header_bytes));
    if (header_bytes > checkpoint->map_bytes - LENGTH_BYTES) {
        return NULL;
    }
    *ret_data_offset = LENGTH_BYTES + header_bytes;
    return json_loadb((const char *)checkpoint->map + LENGTH_BYTES, header_bytes, 0, NULL);
}

/* The tensor NAME + SUFFIX, when it is there, of that dtype, and inside the file. */
static bool find_tensor(const struct checkpoint *checkpoint, json_t *header, size_t data_offset,
                        const char *name, const char *suffix, const char *dtype, struct tensor *ret)
{
    char full_name[300];
    json_int_t begin, end;
    const char *its_dtype;
    json_t *shape;

    snprintf(full_name, sizeof(full_name), "%s%s", name, suffix);
    json_t *entry = json_object_get(header, full_name);
    if (!entry || json_unpack(entry, "{s:s, s:o, s:[I, I]}", "dtype", &its_dtype, "shape", &shape,
                              "data_offsets", &begin, &end) != 0) {
        return false;
    }
    if (strcmp(its_dtype, dtype) != 0 || begin < 0 || end < begin ||
        (uint64_t)end > checkpoint->map_bytes - data_offset) {
        return false;
    }
    ret->data = (const char *)checkpoint->map + data_offset + begin;
    for (size_t i = 0; i < 2; i++) {
        json_t *length = json_array_get(shape, i);
        ret->shape[i] = length ? (uint64_t)json_integer_value(length) : 1;
    }
    uint64_t element_bytes = strcmp(dtype, "F16") == 0 ? sizeof(uint16_t) : sizeof(uint32_t);
    return ret->shape[0] * ret->shape[1] * element_bytes == (uint64_t)(end - begin);
}

static bool read_layer(const struct checkpoint *checkpoint, json_t *header, size_t data_offset,
                       const char *name, struct layer *ret_layer)
{
    struct tensor qweight, qzeros, scales, bias = {NULL, {0, 0}};

    if (!find_tensor(checkpoint, header, data_offset, name, ".qweight", "I32", &qweight) ||
        !find_tensor(checkpoint, header, data_offset, name, ".qzeros", "I32", &qzeros) ||
        !find_tensor(checkpoint, header, data_offset, name, ".scales", "F16", &scales)) {
        return false;
    }
    (void)find_tensor(checkpoint, header, data_offset, name, ".bias", "F16", &bias);
    struct layer layer = {
        .n = (uint32_t)qweight.shape[1],
        .k = (uint32_t)qweight.shape[0] * CODES_PER_WORD,
        .n_groups = (uint32_t)scales.shape[0],
        .qweight = qweight.data,
        .qzeros = qzeros.data,
        .scales = scales.data,
        .bias = bias.data,
    };
    if (scales.shape[1] != layer.n || layer.n_groups == 0 || layer.k % layer.n_groups != 0 ||
        qzeros.shape[0] != layer.n_groups || qzeros.shape[1] * CODES_PER_WORD != layer.n ||
        (bias.data && bias.shape[0] != layer.n)) {
        return false;
    }
    snprintf(layer.name, sizeof(layer.name), "%s", name);
    *ret_layer = layer;
    return true;
}

static bool read_layers(struct checkpoint *checkpoint, json_t *header, size_t data_offset)
{
    const char *key;
    json_t *value;

    checkpoint->layers = calloc(json_object_size(header), sizeof(*checkpoint->layers));
    if (!checkpoint->layers) {
        return false;
    }
    json_object_foreach(header, key, value)
    {
        size_t length = strlen(key), suffix_length = strlen(weight_suffix);
        char name[256];

        if (length <= suffix_length || length - suffix_length >= sizeof(name) ||
            strcmp(key + length - suffix_length, weight_suffix) != 0) {
            continue;
        }
        memcpy(name, key, length - suffix_length);
        name[length - suffix_length] = '\0';
        if (!read_layer(checkpoint, header, data_offset, name,
                        &checkpoint->layers[checkpoint->n_layers])) {
            fprintf(stderr, "gemmd-demo: layer '%s' is not 4-bit GPTQ as the demo knows it\n",
                    name);
            return false;
        }
        checkpoint->n_layers++;
    }
    return checkpoint->n_layers > 0;
}

bool checkpoint_open(const char *folder, struct checkpoint *ret_checkpoint)
{
    struct checkpoint checkpoint = {0};
    size_t data_offset = 0;
    char path[4096];

    snprintf(path, sizeof(path), "%s/model.safetensors", folder);
    if (!map_file(path, &checkpoint)) {
        return false;
    }
    json_t *header = read_header(&checkpoint, &data_offset);
    bool is_read = header && read_layers(&checkpoint, header, data_offset);
    json_decref(header);
    if (!is_read) {
        fprintf(stderr, "gemmd-demo: no layers could be read from %s\n", path);
        checkpoint_close(&checkpoint);
        return false;
    }
    *ret_checkpoint = checkpoint;
    return true;
}

void checkpoint_close(struct checkpoint *checkpoint)
{
    if (checkpoint->map) {
        munmap(checkpoint->map, checkpoint->map_bytes);
    }
    free(checkpoint->layers);
    *checkpoint = (struct checkpoint){0};
}

static uint32_t code_at(uint32_t word, uint32_t i)
{
    return (word >> (CODE_BITS * (i % CODES_PER_WORD))) & CODE_MASK;
}

double layer_weight(const struct layer *layer, uint32_t i_n, uint32_t i_k)
{
    uint32_t i_group = i_k / (layer->k / layer->n_groups);
    uint32_t code = code_at(layer->qweight[(size_t)(i_k / CODES_PER_WORD) * layer->n + i_n], i_k);
    size_t zeros_per_group = layer->n / CODES_PER_WORD;
    uint32_t stored = code_at(layer->qzeros[i_group * zeros_per_group + i_n / CODES_PER_WORD], i_n);
    int zero = (int)((stored + 1) & CODE_MASK); /* v1: the file has zero points less one */

    return ((int)code - zero) * value_of_f16(layer->scales[(size_t)i_group * layer->n + i_n]);
}
