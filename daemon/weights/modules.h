/* modules.h - which linear layers a checkpoint has, told from the tensors that are there.
 *
 * P is a linear layer when there is
 *   P.qweight   GPTQ: with P.scales, and P.qzeros, P.g_idx, P.bias where they are; or
 *   P.weight    with two dimensions (n, k), f32, f16 or bf16; with P.bias where it is.
 * A look-up table is no linear layer: P.weight is skipped when the last part of P contains "embed"
 * ("embed_tokens", "word_embeddings") but is not "embed_out", or is "wte" or "wpe". A weight of one
 * dimension (a norm) is skipped; one of three or more (a convolution) is skipped with a warning.
 * Refused by name: a module with both kinds of weight, shapes or types that do not go together, a
 * needed tensor without elements, a scale beside a weight that is not quantised (the product would
 * be wrong by it), packed weights that no settings explain. Scales and zero points with no weight
 * at all are warned about. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "daemon/weights/checkpoint.h"
#include "daemon/weights/quant_config.h"
#include "daemon/weights/warnings.h"
#include "gk/gk.h"

struct module {
    char *name; /* owned: "model.layers.0.mlp.down_proj" */
    struct gk_desc desc;
    bool is_v1;                             /* GPTQ: zero points are stored minus one */
    const struct checkpoint_tensor *weight; /* qweight, or the plain weight */
    const struct checkpoint_tensor *qzeros; /* this and below: NULL when absent */
    const struct checkpoint_tensor *scales;
    const struct checkpoint_tensor *g_idx;
    const struct checkpoint_tensor *bias;
};

struct module_list {
    struct module *items; /* owned, sorted by name */
    uint32_t n;
    enum dtype act_dtype; /* of the model: config.json's, else that of the first 16-bit scales or
                             weights by name, else F16 */
};

#define MODULE_LIST_NULL ((struct module_list){0})

/* modules_find() - points into the checkpoint, which must outlive the list. Reads no data.
 * Return: 0, STATUS_BAD_CHECKPOINT, STATUS_UNSUPPORTED, or -ENOMEM. */
int modules_find(const struct checkpoint *checkpoint, const struct quant_config *config,
                 struct warnings *warnings, struct module_list *ret_list,
                 struct reason *why) GD_MUST_CHECK;
void modules_finish(struct module_list *list);

/* module_bytes() - what reading it reads. */
uint64_t module_bytes(const struct module *module);
