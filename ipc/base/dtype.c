#include "ipc/base/dtype.h"

#include <stddef.h>
#include <string.h>

#include "ipc/base/num.h"

struct dtype_row {
    uint32_t bits;
    const char *safetensors_name;
    const char *name;
};

static const struct dtype_row rows[] = {
    [DTYPE_NONE] = {0, "none", "none"},
    [DTYPE_F32] = {32, "F32", "f32"},
    [DTYPE_F16] = {16, "F16", "f16"},
    [DTYPE_BF16] = {16, "BF16", "bf16"},
    [DTYPE_F64] = {64, "F64", "f64"},
    [DTYPE_I8] = {8, "I8", "i8"},
    [DTYPE_U8] = {8, "U8", "u8"},
    [DTYPE_I16] = {16, "I16", "i16"},
    [DTYPE_U16] = {16, "U16", "u16"},
    [DTYPE_I32] = {32, "I32", "i32"},
    [DTYPE_U32] = {32, "U32", "u32"},
    [DTYPE_I64] = {64, "I64", "i64"},
    [DTYPE_U64] = {64, "U64", "u64"},
    [DTYPE_BOOL] = {8, "BOOL", "bool"},
    [DTYPE_F8_E4M3] = {8, "F8_E4M3", "f8_e4m3"},
    [DTYPE_F8_E5M2] = {8, "F8_E5M2", "f8_e5m2"},
    [DTYPE_F8_E8M0] = {8, "F8_E8M0", "f8_e8m0"},
    [DTYPE_F4] = {4, "F4", "f4"},
};

static const struct dtype_row *find_row(enum dtype dtype)
{
    return (size_t)dtype < ARRAY_LENGTH(rows) ? &rows[dtype] : NULL;
}

uint32_t dtype_bits(enum dtype dtype)
{
    const struct dtype_row *row = find_row(dtype);
    return row ? row->bits : 0;
}

uint32_t dtype_bytes(enum dtype dtype)
{
    return dtype_bits(dtype) / 8;
}

const char *dtype_name(enum dtype dtype)
{
    const struct dtype_row *row = find_row(dtype);
    return row ? row->name : "?";
}

const char *dtype_safetensors_name(enum dtype dtype)
{
    const struct dtype_row *row = find_row(dtype);
    return row ? row->safetensors_name : "?";
}

enum dtype dtype_parse(const char *name)
{
    for (size_t i = 1; i < ARRAY_LENGTH(rows); i++) {
        if (strcmp(name, rows[i].name) == 0 || strcmp(name, rows[i].safetensors_name) == 0) {
            return (enum dtype)i;
        }
    }
    return DTYPE_NONE;
}
