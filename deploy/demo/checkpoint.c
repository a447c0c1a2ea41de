#include "deploy/demo/checkpoint.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ipc/base/half.h"

struct file {
    uint8_t *bytes;
    size_t n_bytes;
    const uint8_t *data; /* behind the header */
    json_t *header;
};

static int complain(const char *where, const char *what)
{
    (void)fprintf(stderr, "gemmd-demo: %s: %s\n", where, what);
    return -1;
}

static int read_bytes(const char *path, struct file *file)
{
    FILE *stream = fopen(path, "rbe");
    if (!stream) {
        return complain(path, "cannot be opened");
    }
    long size = fseek(stream, 0, SEEK_END) == 0 ? ftell(stream) : -1;
    file->bytes = size > 8 ? malloc((size_t)size) : NULL;
    rewind(stream);
    if (file->bytes && fread(file->bytes, 1, (size_t)size, stream) == (size_t)size) {
        file->n_bytes = (size_t)size;
    }
    (void)fclose(stream);
    return file->n_bytes ? 0 : complain(path, "cannot be read");
}

static int read_file(const char *dir, struct file *file)
{
    char path[4096];
    (void)snprintf(path, sizeof(path), "%s/model.safetensors", dir);
    if (read_bytes(path, file) < 0) {
        return -1;
    }
    uint64_t n_header = 0;
    memcpy(&n_header, file->bytes, 8);
    if (n_header > file->n_bytes - 8) {
        return complain(path, "the header is longer than the file");
    }
    file->header =
        json_loadb((const char *)file->bytes + 8, n_header, JSON_REJECT_DUPLICATES, NULL);
    file->data = file->bytes + 8 + n_header;
    return json_is_object(file->header) ? 0 : complain(path, "the header is not JSON");
}

/* A tensor of the module, one or two dimensions; NULL when it is not there. */
static const uint8_t *find_tensor(const struct file *file, const char *module, const char *suffix,
                                  uint32_t *ret_rows, uint32_t *ret_columns)
{
    char name[256];
    (void)snprintf(name, sizeof(name), "%s.%s", module, suffix);
    const json_t *tensor = json_object_get(file->header, name);
    const json_t *shape = json_object_get(tensor, "shape");
    const json_t *offsets = json_object_get(tensor, "data_offsets");
    size_t n = json_array_size(shape);
    size_t begin = (size_t)json_integer_value(json_array_get(offsets, 0));
    size_t end = (size_t)json_integer_value(json_array_get(offsets, 1));
    if (n == 0 || begin > end || end > (size_t)(file->bytes + file->n_bytes - file->data)) {
        return NULL;
    }
    *ret_rows = n > 1 ? (uint32_t)json_integer_value(json_array_get(shape, 0)) : 1;
    *ret_columns = (uint32_t)json_integer_value(json_array_get(shape, n - 1));
    return file->data + begin;
}

static int nibble(const uint8_t *words, uint64_t i_word, uint32_t i_nibble)
{
    uint32_t word;
    memcpy(&word, words + 4 * i_word, 4);
    return (int)(word >> (4 * i_nibble) & 0xf);
}

static double half_at(const uint8_t *halves, uint64_t i)
{
    uint16_t half;
    memcpy(&half, halves + 2 * i, 2);
    return (double)half_to_f32(half);
}

static int read_bias(const struct file *file, struct layer *layer)
{
    uint32_t rows, columns;
    layer->bias = calloc(layer->n, sizeof(double));
    if (!layer->bias) {
        return complain(layer->name, "out of memory");
    }
    const uint8_t *bias = find_tensor(file, layer->name, "bias", &rows, &columns);
    for (uint32_t n = 0; bias && n < layer->n; n++) {
        layer->bias[n] = half_at(bias, n);
    }
    return 0;
}

/* w = scale * (code - (zero + 1)): codes packed along k, zeros along n, both low nibble first. */
static int dequantise(const struct file *file, struct layer *layer)
{
    uint32_t rows, n_groups, unused;
    const uint8_t *codes = find_tensor(file, layer->name, "qweight", &rows, &layer->n);
    const uint8_t *scales = find_tensor(file, layer->name, "scales", &n_groups, &unused);
    const uint8_t *zeros = find_tensor(file, layer->name, "qzeros", &unused, &unused);
    if (!codes || !scales || !zeros || n_groups == 0) {
        return complain(layer->name, "qweight, scales or qzeros is missing");
    }
    layer->k = rows * 8;
    layer->weight = malloc(sizeof(double) * layer->n * layer->k);
    if (!layer->weight) {
        return complain(layer->name, "out of memory");
    }
    uint32_t group = (layer->k + n_groups - 1) / n_groups;
    for (uint32_t k = 0; k < layer->k; k++) {
        for (uint32_t n = 0; n < layer->n; n++) {
            int code = nibble(codes, (uint64_t)(k / 8) * layer->n + n, k % 8);
            int zero = nibble(zeros, (uint64_t)(k / group) * (layer->n / 8) + n / 8, n % 8) + 1;
            double scale = half_at(scales, (uint64_t)(k / group) * layer->n + n);
            layer->weight[(uint64_t)n * layer->k + k] = scale * (code - zero);
        }
    }
    return read_bias(file, layer);
}

static int read_layers(const struct file *file, struct checkpoint *checkpoint)
{
    const char *name;
    json_t *tensor;
    checkpoint->layers = calloc(json_object_size(file->header), sizeof(struct layer));
    if (!checkpoint->layers) {
        return complain("checkpoint", "out of memory");
    }
    json_object_foreach(file->header, name, tensor)
    {
        const char *suffix = strstr(name, ".qweight");
        if (!suffix) {
            continue;
        }
        struct layer *layer = &checkpoint->layers[checkpoint->n_layers++];
        (void)snprintf(layer->name, sizeof(layer->name), "%.*s", (int)(suffix - name), name);
        if (dequantise(file, layer) < 0) {
            return -1;
        }
    }
    return checkpoint->n_layers ? 0 : complain("checkpoint", "no module has a qweight");
}

int checkpoint_read(const char *dir, struct checkpoint *ret_checkpoint)
{
    struct file file = {0};
    struct checkpoint checkpoint = {0};
    int r = read_file(dir, &file);
    r = r < 0 ? r : read_layers(&file, &checkpoint);
    json_decref(file.header);
    free(file.bytes);
    if (r < 0) {
        checkpoint_finish(&checkpoint);
        return r;
    }
    *ret_checkpoint = checkpoint;
    return 0;
}

void checkpoint_finish(struct checkpoint *checkpoint)
{
    for (size_t i = 0; i < checkpoint->n_layers; i++) {
        free(checkpoint->layers[i].weight);
        free(checkpoint->layers[i].bias);
    }
    free(checkpoint->layers);
    *checkpoint = (struct checkpoint){0};
}

void layer_product(const struct layer *layer, const float *x, double *y)
{
    for (uint32_t n = 0; n < layer->n; n++) {
        const double *row = layer->weight + (uint64_t)n * layer->k;
        double sum = 0;
        for (uint32_t k = 0; k < layer->k; k++) {
            sum += row[k] * (double)x[k];
        }
        y[n] = sum + layer->bias[n];
    }
}
