/* block_codes.h - the block of products of each kind of code. For a file that defines INSTANCE and
 *
 *   INSTANCE void block_of(block, code, has_zeros, totals)
 *
 * before it includes this: called with constants, it becomes one function for each. */
#pragma once

#include "kernels/host/rows.h"

/* int_block() - of integer codes, with zero points or without. */
INSTANCE void int_block(const struct host_block *block, enum gk_code code, float *totals)
{
    if (block->zeros != NULL) {
        block_of(block, code, true, totals);
    } else {
        block_of(block, code, false, totals);
    }
}

/* block_of_any() - host_ops.block: of the code that the block has. */
static void block_of_any(const struct host_block *block, float *totals)
{
    switch (block->code) {
    case GK_CODE_F32:
        block_of(block, GK_CODE_F32, false, totals);
        return;
    case GK_CODE_F16:
        block_of(block, GK_CODE_F16, false, totals);
        return;
    case GK_CODE_BF16:
        block_of(block, GK_CODE_BF16, false, totals);
        return;
    case GK_CODE_U4:
        int_block(block, GK_CODE_U4, totals);
        return;
    case GK_CODE_U8:
        int_block(block, GK_CODE_U8, totals);
        return;
    case GK_CODE_E4M3:
        block_of(block, GK_CODE_E4M3, false, totals);
        return;
    case GK_CODE_E2M1:
        block_of(block, GK_CODE_E2M1, false, totals);
        return;
    }
}
