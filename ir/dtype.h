/* What a value's elements are stored as; of the IR and, in their arguments, of kernels.
 *
 * f32: IEEE binary32. i32: two's complement. bf16: the upper half of a binary32. f16: IEEE
 * binary16, with subnormals. Both in a uint16_t; what is stored as one is rounded to nearest, ties
 * to even, a NaN stays one, and in f16 what rounds to 65,520 or more is infinite.
 */
#ifndef IR_DTYPE_H
#define IR_DTYPE_H

typedef enum DType { DTYPE_F32, DTYPE_I32, DTYPE_BF16, DTYPE_F16, N_DTYPES } DType;

#endif
