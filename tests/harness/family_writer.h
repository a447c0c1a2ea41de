/* family_writer.h - a weight in canonical form into the tensors of a checkpoint family: the
 * readers' inverse, written for the tests and sharing nothing with them. */
#pragma once

#include "gk/gk.h"
#include "tests/harness/safetensors_writer.h"

enum written_family {
    WRITTEN_PLAIN, /* elements of the code's own type */
    WRITTEN_GPTQ_V1,
    WRITTEN_GPTQ_V2,
    WRITTEN_AWQ,
    WRITTEN_CT_PACKED,
    WRITTEN_CT_INT8,
    WRITTEN_FP8,     /* weight_scale */
    WRITTEN_FP8_INV, /* weight_scale_inv */
    WRITTEN_CT_NVFP4,
    WRITTEN_OPT_NVFP4,
    WRITTEN_CT_MXFP4,
    WRITTEN_MXFP8,
};

/* random_weight() - random codes over all their values but NaN, positive scales, zero points,
 * order of k and one column scale throughout, as far as the description has them; bias in [-1, 1).
 * Ends the program without memory. The caller gk_canonical_finish()es it. */
void random_weight(struct gk_canonical *canonical, const struct gk_desc *desc, uint64_t *random);

/* tensor_file_add_weight() - MODULE.* of that family. The description must fit it; symmetric zero
 * points are written where the family always has them. Static activation scales are written as
 * input_scale and input_zero_point. */
void tensor_file_add_weight(struct tensor_file *file, const char *module,
                            enum written_family family, const struct gk_canonical *canonical);
