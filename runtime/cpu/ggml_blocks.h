/* Blocks of 32 numbers as llama.cpp has them in files (ggml-common.h, ggml-quants.c): what an
 * export writes, an import reads, and training with --qat rounds weights to.
 *
 * q8_0: a scale in f16, then 32 codes from -127 to 127. q4_0: a scale in f16, then codes from 0 to
 * 15 that mean -8 to 7, of which byte i has number i in the lower half and number i + 16 in the
 * upper one. A number is its code times the scale, exact in f32. Data need not be aligned.
 */
#ifndef RUNTIME_CPU_GGML_BLOCKS_H
#define RUNTIME_CPU_GGML_BLOCKS_H

#include <stdbool.h>
#include <stdint.h>

enum { GGML_BLOCK = 32, GGML_Q4_0_BYTES = 2 + GGML_BLOCK / 2, GGML_Q8_0_BYTES = 2 + GGML_BLOCK };

float ggml_half(const unsigned char *at); /* an f16 */
/* False: the number is too large for one, or not finite. */
bool ggml_put_half(float number, unsigned char *out);

void ggml_widen_q4_0(const unsigned char *at, int64_t n_blocks, float *out);
void ggml_widen_q8_0(const unsigned char *at, int64_t n_blocks, float *out);

/* The bytes of quantize_row_q4_0_ref and quantize_row_q8_0_ref. False: a number is not finite, or a
 * scale is too large for f16 or too small for f32's reciprocals; its block is not written. */
bool ggml_narrow_q4_0(const float *numbers, int64_t n_blocks, unsigned char *out);
bool ggml_narrow_q8_0(const float *numbers, int64_t n_blocks, unsigned char *out);

/* A block's numbers in place as its codes have them: narrowed, and widened again. What cannot be
 * narrowed is not-a-number, but for what is so small that its scale is 0 in f16: that is 0. */
void ggml_round_q4_0(float *block);
void ggml_round_q8_0(float *block);

#endif
