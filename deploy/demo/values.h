/* values.h - the 16-bit and 32-bit floating-point types of x, y, scales and biases, as doubles. The
 * demo has its own few lines for this: what checks the daemon shares no code with it. */
#ifndef DEPLOY_DEMO_VALUES_H
#define DEPLOY_DEMO_VALUES_H

#include <gemmd.h>
#include <stddef.h>
#include <stdint.h>

/* value_of_f16() - what an IEEE binary16 stands for. */
double value_of_f16(uint16_t bits);

/* value_bytes() - bytes of one element. value_name() - "bf16". */
size_t value_bytes(enum gemmd_dtype dtype);
const char *value_name(enum gemmd_dtype dtype);

/* value_roundoff() - the largest relative error of rounding to dtype: half a unit in the last
 * place. */
double value_roundoff(enum gemmd_dtype dtype);

/* value_load() - element i of an array. */
double value_load(const void *array, enum gemmd_dtype dtype, size_t i);

/* value_store() - set element i of an array. value: exact in dtype, and normal or zero. */
void value_store(void *array, enum gemmd_dtype dtype, size_t i, float value);

#endif
