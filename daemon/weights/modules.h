/* modules.h - which linear layers a checkpoint has, told from the tensors that are there.
 *
 * P is a linear layer when there is
 *   P.qweight        GPTQ or AWQ, as the settings say;
 *   P.weight_packed  compressed-tensors: packed integers (I32) or e2m1 (U8); or
 *   P.weight         with two dimensions (n, k): f32, f16 or bf16 as they are, F8_E4M3 and I8 with
 *                    their scales, U8 for e2m1; with P.bias where it is.
 * A look-up table is no linear layer: P.weight is skipped when the last part of P contains "embed"
 * ("embed_tokens", "word_embeddings") but is not "embed_out", or is "wte" or "wpe". A weight of one
 * dimension (a norm) is skipped; one of three or more (a convolution) is skipped with a warning.
 *
 * The tensors count; the settings say what they cannot: group size, symmetry, activations. A
 * quantised weight needs a rule that fits its tensors. A weight that is there as floats is served
 * so: silently where the rule is about every module, with a warning where it is about a class, and
 * refused where a rule means it by name. Also refused by name: a module with two kinds of weight,
 * shapes or types that do not go together, a needed tensor without elements, a scale or zero point
 * beside a weight that it does not belong to (the product would be wrong by it). Those with no
 * weight at all are warned about. README.md of this folder has the tensors of each family. */
#pragma once

#include "daemon/weights/checkpoint.h"
#include "daemon/weights/module.h"
#include "daemon/weights/quant_config.h"
#include "daemon/weights/warnings.h"

/* modules_find() - points into the checkpoint, which must outlive the list. Of data it reads what a
 * description needs: single numbers (scales of activations) and maps from k to groups. Marks the
 * rules of `config` that are used. Return: 0, STATUS_BAD_CHECKPOINT, STATUS_UNSUPPORTED, INTERNAL
 * (read error), or -ENOMEM. */
int modules_find(const struct checkpoint *checkpoint, struct quant_config *config,
                 struct warnings *warnings, struct module_list *ret_list,
                 struct reason *why) GD_MUST_CHECK;
