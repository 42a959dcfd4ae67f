/* fp8 and the scales of its blocks (ir/ops/quantize.h), from and to f32, bf16 or f16.
 *
 * x [rows, columns] row-major, values too unless they are turned; scales one for each block of
 * block_rows x block_columns, where the layout says. Rounded to nearest, ties to even; exact on the
 * way back. No sums: any number of threads gives the same bits.
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
/* Of layouts with block_columns 128: out [rows, columns], those from (row, column) on, `column` and
 * `columns` being multiples of 128. */
void dequantize_part(const BlockLayout *layout, const uint8_t *values, const float *scales,
                     int64_t row, int64_t rows, int64_t column, int64_t columns, float *out);

#endif
