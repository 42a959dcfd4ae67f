/* What a value's elements are stored as; of the IR and, in their arguments, of kernels.
 *
 * f32: IEEE binary32. i32: two's complement. bf16: the upper half of a binary32. f16: IEEE
 * binary16, with subnormals. Both in a uint16_t; what is stored as one is rounded to nearest, ties
 * to even, a NaN stays one, and in f16 what rounds to 65,520 or more is infinite.
 *
 * fp8: e4m3 of the OCP's FP8 (a sign, 4 bits of exponent with bias 7, 3 of fraction; subnormals, no
 * infinity, 0x7f is not-a-number, 448 the largest) in a uint8_t. Its values mean nothing without
 * the scales of their blocks (ir/ops/quantize.h): it is kept and sent, not computed with.
 *
 * nf4, int8: frozen weights, in blocks of 64 numbers with a scale each (ir/blocks.h). Kept,
 * gathered and widened, not computed with.
 *
 * dyn8, dyn8u: moments of optimizers in 8 bits, signed and not, in blocks of 64 numbers with a
 * scale each (ir/moments.h). Only optimizers read and write them.
 */
#ifndef IR_DTYPE_H
#define IR_DTYPE_H

typedef enum DType {
    DTYPE_F32,
    DTYPE_I32,
    DTYPE_BF16,
    DTYPE_F16,
    DTYPE_FP8,
    DTYPE_NF4,
    DTYPE_INT8,
    DTYPE_DYN8,
    DTYPE_DYN8U,
    N_DTYPES
} DType;

#endif
