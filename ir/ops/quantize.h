/* Blocks that share a scale: 128 elements along a run of axes, or tiles of 128 x 128 along two.
 *
 * A run takes its 128 from its innermost axis outwards: of an axis of 64 all and then two of the
 * next one, of an axis of 4,096 only 128. The scales have the values' axes, each shorter by what a
 * block takes of it, so a mesh axis divides both alike; it must not cut a block. Which products can
 * be in fp8 follows from logical sizes alone, and so do the blocks: neither depends on a layout.
 *
 * A scale is a power of two, the least of which the block's largest element is at most 448 times,
 * as in DeepSeek-V3 (arXiv 2412.19437, section 3.3) with the UE8M0 scales of MX: fp8 times it is
 * exact in bf16, so that a product of two quantised operands is the same number whether the tensor
 * cores take fp8 and scales, or bf16. A block of zeros has scale 0, so that padding stays zero.
 * What is not finite becomes not-a-number and leaves its block's scale to the others.
 */
#ifndef IR_OPS_QUANTIZE_H
#define IR_OPS_QUANTIZE_H

#include "ir/op.h"

enum {
    SCALE_BLOCK = 128,
    /* Of scales. Below it e4m3's smallest number, 2^-9, would leave the normal range of bf16. */
    LEAST_SCALE_EXPONENT = -117,
};

/* What a block takes of each of the type's axes, those of `run`; false: it holds no whole blocks.
 */
bool block_run(const Type *type, const int *run, int n_run, int64_t factors[MAX_RANK]);

/* Values as rows by columns, row-major; a block is block_rows x block_columns of them, each 1 or
 * 128, and scales are a matrix of blocks. */
typedef struct BlockLayout {
    int64_t rows, columns, block_rows, block_columns;
} BlockLayout;
/* Of a rank's part, whose shape is `local`. False: these are no scales of such values. */
bool block_layout(const Type *values, const Type *scales, const Type *local, BlockLayout *out);

#endif
