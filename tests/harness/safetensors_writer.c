/* Writes what the readers under test read. Deliberately naive: one nibble at a time, nothing shared
 * with the code it is to test. */
#include "tests/harness/safetensors_writer.h"

#include <fcntl.h>
#include <ftw.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void need(bool is_right, const char *what)
{
    if (!is_right) {
        perror(what);
        abort();
    }
}

static void *grow(void *bytes, uint64_t size_bytes)
{
    void *grown = realloc(bytes, size_bytes);
    need(grown != NULL, "realloc");
    return grown;
}

/* ---- folders and files ---- */

void temp_folder_init(struct temp_folder *folder)
{
    const char *base = getenv("TMPDIR");
    (void)snprintf(folder->path, sizeof(folder->path), "%s/gemmd-test-XXXXXX",
                   base ? base : "/tmp");
    need(mkdtemp(folder->path) != NULL, "mkdtemp");
}

static int remove_entry(const char *path, const struct stat *info, int type, struct FTW *position)
{
    (void)info;
    (void)type;
    (void)position;
    return remove(path);
}

void temp_folder_finish(struct temp_folder *folder)
{
    need(nftw(folder->path, remove_entry, 16, FTW_DEPTH | FTW_PHYS) == 0, "remove folder");
}

const char *temp_path(const struct temp_folder *folder, const char *name)
{
    static char buffers[8][512];
    static uint32_t i_next;
    char *buffer = buffers[i_next++ % 8];
    (void)snprintf(buffer, sizeof(buffers[0]), "%s/%s", folder->path, name);
    return buffer;
}

void write_bytes(const char *path, const void *bytes, uint64_t size_bytes)
{
    FILE *file = fopen(path, "wb");
    need(file != NULL, path);
    need(fwrite(bytes, 1, size_bytes, file) == size_bytes, path);
    need(fclose(file) == 0, path);
}

void write_text(const char *path, const char *text)
{
    write_bytes(path, text, strlen(text));
}

/* ---- .safetensors files ---- */

void tensor_file_init(struct tensor_file *file)
{
    *file = (struct tensor_file){.json = NULL};
}

void tensor_file_finish(struct tensor_file *file)
{
    free(file->json);
    free(file->data);
    tensor_file_init(file);
}

void tensor_file_add(struct tensor_file *file, const char *name, const char *dtype, uint32_t n_dims,
                     const uint64_t *dims, const void *data, uint64_t size_bytes)
{
    char shape[256] = "";
    for (uint32_t i = 0; i < n_dims; i++) {
        size_t used = strlen(shape);
        (void)snprintf(shape + used, sizeof(shape) - used, "%s%" PRIu64, i ? "," : "", dims[i]);
    }
    char *entry;
    int length = asprintf(
        &entry,
        "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[%s],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}",
        file->json ? "," : "", name, dtype, shape, file->data_bytes, file->data_bytes + size_bytes);
    need(length > 0, "asprintf");
    file->json = grow(file->json, file->json_bytes + (uint64_t)length + 1);
    memcpy(file->json + file->json_bytes, entry, (uint64_t)length + 1);
    file->json_bytes += (uint64_t)length;
    free(entry);
    file->data = grow(file->data, file->data_bytes + size_bytes + 1);
    if (size_bytes > 0) {
        memcpy(file->data + file->data_bytes, data, size_bytes);
    }
    file->data_bytes += size_bytes;
}

static void put_header(FILE *out, const char *json, uint64_t length)
{
    for (uint32_t i = 0; i < 8; i++) {
        need(fputc((int)(length >> (8 * i) & 0xff), out) != EOF, "fputc");
    }
    need(fputs(json, out) != EOF, "fputs");
}

void tensor_file_write(const struct tensor_file *file, const char *path)
{
    FILE *out = fopen(path, "wb");
    need(out != NULL, path);
    uint64_t n_spaces = (8 - (file->json_bytes + 2) % 8) % 8;
    char *json;
    need(asprintf(&json, "{%s}%*s", file->json ? file->json : "", (int)n_spaces, "") > 0,
         "asprintf");
    put_header(out, json, file->json_bytes + 2 + n_spaces);
    free(json);
    need(fwrite(file->data, 1, file->data_bytes, out) == file->data_bytes, path);
    need(fclose(out) == 0, path);
}

void write_safetensors(const char *path, const char *json, uint64_t data_bytes)
{
    FILE *out = fopen(path, "wb");
    need(out != NULL, path);
    put_header(out, json, strlen(json));
    need(fflush(out) == 0, path);
    need(ftruncate(fileno(out), (off_t)(8 + strlen(json) + data_bytes)) == 0, path);
    need(fclose(out) == 0, path);
}

/* ---- layers ---- */

static void add_part(struct tensor_file *file, const char *module, const char *leaf,
                     const char *dtype, uint32_t n_dims, uint64_t n_rows, uint64_t n_cols,
                     const void *data, uint64_t element_bytes)
{
    char name[256];
    const uint64_t dims[] = {n_rows, n_cols};
    (void)snprintf(name, sizeof(name), "%s.%s", module, leaf);
    tensor_file_add(file, name, dtype, n_dims, dims, data,
                    n_rows * (n_dims == 2 ? n_cols : 1) * element_bytes);
}

void tensor_file_add_gptq(struct tensor_file *file, const struct gptq_layer *layer)
{
    uint32_t n = layer->n;
    uint32_t k = layer->k;
    uint32_t *qweight = calloc((uint64_t)k / 8 * n, sizeof(*qweight));
    uint32_t *qzeros = malloc((uint64_t)layer->n_scale_rows * (n / 8) * sizeof(*qzeros));
    need(qweight && qzeros, "calloc");
    for (uint32_t i_k = 0; i_k < k; i_k++) {
        for (uint32_t i_n = 0; i_n < n; i_n++) {
            qweight[(uint64_t)(i_k / 8) * n + i_n] |=
                (uint32_t)layer->codes[(uint64_t)i_k * n + i_n] << (i_k % 8 * 4);
        }
    }
    for (uint64_t i = 0; i < (uint64_t)layer->n_scale_rows * (n / 8); i++) {
        qzeros[i] = 0x11111111u * layer->zero;
    }
    add_part(file, layer->name, "qweight", "I32", 2, k / 8, n, qweight, 4);
    add_part(file, layer->name, "qzeros", "I32", 2, layer->n_scale_rows, n / 8, qzeros, 4);
    add_part(file, layer->name, "scales", "F16", 2, layer->n_scale_rows, n, layer->scales, 2);
    if (layer->g_idx) {
        add_part(file, layer->name, "g_idx", "I32", 1, k, 0, layer->g_idx, 4);
    }
    free(qweight);
    free(qzeros);
}

void tensor_file_add_flat_gptq(struct tensor_file *file, const char *name, uint32_t n, uint32_t k,
                               uint32_t n_scale_rows, uint8_t code, uint16_t scale, uint8_t zero)
{
    uint8_t *codes = malloc((uint64_t)n * k);
    uint16_t *scales = malloc((uint64_t)n_scale_rows * n * sizeof(*scales));
    need(codes && scales, "malloc");
    memset(codes, code, (uint64_t)n * k);
    for (uint64_t i = 0; i < (uint64_t)n_scale_rows * n; i++) {
        scales[i] = scale;
    }
    const struct gptq_layer layer = {name, n, k, n_scale_rows, codes, scales, zero, NULL};
    tensor_file_add_gptq(file, &layer);
    free(codes);
    free(scales);
}

void tensor_file_add_flat_plain(struct tensor_file *file, const char *name, uint32_t n, uint32_t k,
                                float value)
{
    uint64_t n_elements = (uint64_t)n * k;
    float *values = malloc(n_elements * sizeof(*values) + 1);
    need(values != NULL, "malloc");
    for (uint64_t i = 0; i < n_elements; i++) {
        values[i] = value;
    }
    add_part(file, name, "weight", "F32", 2, n, k, values, sizeof(*values));
    free(values);
}
