/* safetensors_writer.h - small checkpoints for tests: temporary folders, files, .safetensors files
 * right and wrong, and GPTQ layers. Failures to write end the test program: a test without its
 * input has nothing to say. */
#pragma once

#include <stdint.h>

/* ---- folders and files ---- */

struct temp_folder {
    char path[256];
};

/* temp_folder_init() - a new one, under TMPDIR or /tmp. _finish() removes it with all that is in
 * it. */
void temp_folder_init(struct temp_folder *folder);
void temp_folder_finish(struct temp_folder *folder);

/* temp_path() - "FOLDER/NAME"; one of a few static buffers, good for the next seven calls. */
const char *temp_path(const struct temp_folder *folder, const char *name);

/* write_bytes() / write_text() - a whole file, replacing what was there. */
void write_bytes(const char *path, const void *bytes, uint64_t size_bytes);
void write_text(const char *path, const char *text);

/* ---- .safetensors files ---- */

struct tensor_file {
    char *json; /* header entries so far */
    uint64_t json_bytes;
    uint8_t *data;
    uint64_t data_bytes;
};

/* tensor_file_init() - no tensors. _finish() frees; the file on disk stays. */
void tensor_file_init(struct tensor_file *file);
void tensor_file_finish(struct tensor_file *file);

/* tensor_file_add() - append one tensor; dims is (n_dims). The name is put into JSON as it stands.
 */
void tensor_file_add(struct tensor_file *file, const char *name, const char *dtype, uint32_t n_dims,
                     const uint64_t *dims, const void *data, uint64_t size_bytes);

/* tensor_file_write() - header, padded to 8 bytes with spaces, and data. The file can be used
 * again. */
void tensor_file_write(const struct tensor_file *file, const char *path);

/* write_safetensors() - any header text over any number of data bytes, all zero (a hole on disk).
 */
void write_safetensors(const char *path, const char *json, uint64_t data_bytes);

/* ---- layers ---- */

/* A GPTQ layer of 4 bits. codes (k, n) one a byte; scales (n_scale_rows, n) binary16; all zero
 * points are `zero` as stored; g_idx (k) or NULL for none. */
struct gptq_layer {
    const char *name;
    uint32_t n;
    uint32_t k;
    uint32_t n_scale_rows;
    const uint8_t *codes;
    const uint16_t *scales;
    uint8_t zero;
    const int32_t *g_idx;
};

/* tensor_file_add_gptq() - NAME.qweight, qzeros, scales and, if given, g_idx. */
void tensor_file_add_gptq(struct tensor_file *file, const struct gptq_layer *layer);

/* The same with one code and one scale (binary16) throughout. */
void tensor_file_add_flat_gptq(struct tensor_file *file, const char *name, uint32_t n, uint32_t k,
                               uint32_t n_scale_rows, uint8_t code, uint16_t scale, uint8_t zero);

/* A plain layer (n, k) of "F32" with one value throughout. */
void tensor_file_add_flat_plain(struct tensor_file *file, const char *name, uint32_t n, uint32_t k,
                                float value);
