/* fp8 and the scales of its blocks (ir/ops/quantize.h), from and to f32, bf16 or f16.
 *
 * x, values [rows, columns] row-major; scales one for each block of block_rows x block_columns, in
 * their order. Rounded to nearest, ties to even; exact on the way back. No sums: any number of
 * threads gives the same bits.
 */
#ifndef RUNTIME_CPU_QUANTIZE_H
#define RUNTIME_CPU_QUANTIZE_H

#include "ir/ops/quantize.h"

#include <stdint.h>

float fp8_widen(uint8_t value);

void quantize(const BlockLayout *layout, DType dtype, const void *x, uint8_t *values,
              float *scales);
/* out: bf16. */
void dequantize(const BlockLayout *layout, const uint8_t *values, const float *scales,
                uint16_t *out);

#endif
