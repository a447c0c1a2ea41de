/* module_parts.h - what the families of modules share: finding tensors beside a weight, and holding
 * their shapes, types and single values against what they should be. Every refusal names the
 * tensor. Of this folder's module*.c only. */
#pragma once

#include "daemon/weights/module.h"
#include "daemon/weights/warnings.h"

struct module_search {
    const struct checkpoint *checkpoint;
    struct quant_rules *rules;
    struct warnings *warnings;
};

/* A module in the making. */
struct module_draft {
    const struct module_search *search;
    const struct quant_scheme *scheme;
    struct module module;
};

/* module_find_int() - GPTQ, AWQ and packed compressed-tensors: fill in the draft, whose weight
 * is set. module_find_scaled() - INT8, FP8 and the 4-bit floats. Return as modules_find(). */
int module_find_int(struct module_draft *draft, struct reason *why) GD_MUST_CHECK;
int module_find_scaled(struct module_draft *draft, struct reason *why) GD_MUST_CHECK;

/* module_split_name() - "P.leaf" into a malloc'd P and leaf; *ret_prefix is left alone for a tensor
 * without a module. 0 or -ENOMEM. */
int module_split_name(const struct checkpoint_tensor *at, char **ret_prefix,
                      const char **ret_leaf) GD_MUST_CHECK;

/* module_take() - P.leaf into that role, if it is there and the role is still free; a second tensor
 * for one role is STATUS_BAD_CHECKPOINT. module_need() - the same, and it has to be there. */
int module_take(struct module_draft *draft, enum module_role role, const char *leaf,
                struct reason *why) GD_MUST_CHECK;
int module_need(struct module_draft *draft, enum module_role role, const char *leaf,
                struct reason *why) GD_MUST_CHECK;

/* Types: module_check_float() - f32, f16 or bf16; module_check_words() - I32 or U32;
 * module_check_dtype() - exactly one. */
int module_check_float(const struct checkpoint_tensor *at, struct reason *why) GD_MUST_CHECK;
int module_check_words(const struct checkpoint_tensor *at, struct reason *why) GD_MUST_CHECK;
int module_check_dtype(const struct checkpoint_tensor *at, enum dtype dtype,
                       struct reason *why) GD_MUST_CHECK;

/* module_check_matrix() - two dimensions, both in 1..limit. */
int module_check_matrix(const struct checkpoint_tensor *at, uint64_t limit,
                        struct reason *why) GD_MUST_CHECK;

/* module_check_shape() - (n_rows, n_cols), or one dimension with n_cols 0. module_check_sides() -
 * the same but for sides of 1, which may be there or not: tools write [n], [n, 1] and
 * [n, 1, 1, 1] for the same thing, and [] and [1]. */
int module_check_shape(const struct module_draft *draft, const struct checkpoint_tensor *at,
                       uint64_t n_rows, uint64_t n_cols, struct reason *why) GD_MUST_CHECK;
int module_check_sides(const struct module_draft *draft, const struct checkpoint_tensor *at,
                       uint64_t n_rows, uint64_t n_cols, struct reason *why) GD_MUST_CHECK;

/* module_set_extent() - desc.group_n and group_k (n and k are set) from the scheme; what it leaves
 * open, from the sides of the scales: one for the tensor or one for each row. */
int module_set_extent(struct module_draft *draft, struct reason *why) GD_MUST_CHECK;

/* module_take_bias() - P.bias, if it is there, into the description. */
int module_take_bias(struct module_draft *draft, struct reason *why) GD_MUST_CHECK;

/* module_read_number() - the only element of a tensor. */
int module_read_number(const struct checkpoint_tensor *at, double *ret_value,
                       struct reason *why) GD_MUST_CHECK;

/* module_take_act() - the activation scheme into the description, with input_scale and
 * input_zero_point where it is static. */
int module_take_act(struct module_draft *draft, struct reason *why) GD_MUST_CHECK;
