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
 *
 * With `last`, the axes that a product sums away, values and scales lie as tensor cores are given
 * them by cuBLASLt (documentation of 13.1, "128-element 1D and 128x128 2D block scaling"; so does
 * Transformer Engine's recipe Float8BlockScaling): on sm_90 what is summed, K, is contiguous in
 * both operands, so values lie [own axes, last]; scales of runs [last in blocks, own], "M-major";
 * those of tiles [own in blocks, last in blocks], whose rows have to be a multiple of four scales
 * long. Where they are not, `each` gives every index of the own axes its tile's scale, so that they
 * are as those of runs.
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
 * 128. The scale of block (i, j) is number i scale_down + j scale_right. */
typedef struct BlockLayout {
    int64_t rows, columns, block_rows, block_columns;
    int64_t scale_down, scale_right;
    bool turned; /* of quantize: the values that it makes are stored [columns, rows] */
    bool each;   /* of tiles: the scale is stored 128 times, one number after the other */
} BlockLayout;
/* Of a rank's part, whose shape is `local`. False: these are no scales of such values. */
bool block_layout(const Type *values, const Type *scales, const Type *local, BlockLayout *out);
/* Of what `quantize` does with a rank's part of its operand. False: that cuts blocks. */
bool quantize_layout(const Node *quantize, const Type *local, BlockLayout *out);
/* What a block takes of each of its operand's axes; the node has been verified. */
void quantize_factors(const Node *quantize, int64_t out_factors[MAX_RANK]);

/* How a product on tensor cores reads the scales of an operand that is `own` by `summed` numbers:
 * one for each 128 of a row, or one for each tile. */
typedef enum ScaleForm { SCALES_OF_ROWS, SCALES_OF_TILES, N_SCALE_FORMS } ScaleForm;
/* False: these are not the operand's, or do not lie as they must for such a product. */
bool scale_form(const Type *values, const Type *scales, const Type *local, int64_t own,
                int64_t summed, ScaleForm *out);
/* Can cuBLASLt multiply it so? All pointers and rows must be multiples of 16 bytes, a row of
 * tiles' scales a multiple of 4. */
bool scaled_operand_fits(int64_t own, int64_t summed, ScaleForm form);

#endif
