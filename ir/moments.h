/* Optimizers' states in 8 bits: blocks of 64 numbers, each with a scale of its own (Dettmers et al.
 * 2022, arXiv 2110.02861: block-wise dynamic quantization).
 *
 * Blocks lie as those of frozen weights do (ir/blocks.h): 64 numbers one after the other in the
 * whole logical tensor, in memory its codes, then its scale in bf16, 66 bytes. So they are the same
 * in every layout, or the layout is refused.
 *
 * A number is its block's scale, the largest size, times what its code says. Codes lie along a
 * curve: from a code one less than a power of two to the next it is straight, and ends eight times
 * as high as it begins, so that small numbers keep digits down to a millionth of the largest. (The
 * paper has ten times; eight are exponents' bits, without a table.)
 *
 *     dyn8     code     0     1     3     7    15    31    63   127       and a bit for the sign
 *     dyn8u    code     0     1     3     7    15    31    63   127   255
 *              says     0  8^-7  8^-6  8^-5  8^-4  8^-3  8^-2   1/8     1   (dyn8: 8^-6 to 1)
 *
 * With n stretches a code c is 2^e m - 1, m from 1 to 2, and says 8^(e - n) (7 m - 6).
 *
 * Numbers are divided by the largest of the block as it is in f32, so that this has the last code,
 * and keeps it when its block is widened and kept again: to f32 and back gives the same bits.
 *
 * First moments (dyn8) are rounded to nearest, codes and scale. Second moments (dyn8u) would stand
 * still so: a code and scale are rounded up where what lies above the lower exceeds a threshold
 * that is drawn for each step, as of those in bf16. And what is not 0 is never rounded to 0: a step
 * that is divided by the root of nothing is too long (Li, Chen & Zhu 2023, arXiv 2309.01507).
 *
 * A block whose largest is below 2^-100 is zero; sizes beyond the largest bf16 are that.
 */
#ifndef IR_MOMENTS_H
#define IR_MOMENTS_H

#include "ir/blocks.h"

enum {
    MOMENT_BLOCK_BYTES = WEIGHT_BLOCK + 2,
    MOMENT_STRETCHES = 7, /* of dyn8's curve */
    SQUARE_STRETCHES = 8, /* and of dyn8u's */
    MOMENT_STEEPNESS = 3, /* a stretch ends 2^3 times as high as it begins */
    MOMENT_LEAST = 4096,  /* elements of a parameter from which on its states are in 8 bits */
    NEAREST_THRESHOLD = 0x8000,
};

#define MOMENT_LEAST_SIZE 0x1p-100f
#define MOMENT_MOST_BITS  0x7f7f0000u /* is no infinite bf16 by any threshold */

#endif
