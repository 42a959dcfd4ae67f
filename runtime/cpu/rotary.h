/* Rotary position embedding, half-split pairs (i, i + head/2)   (Su et al. 2021, as in GPT-NeoX)
 *
 * x and y [batch, seq, inner, head], f32, bf16 or f16; position of row s is where `place`
 * has it; pair i turns by position base^(-2i / head) radians, stretched as ir/ops/rotary.h says
 * (scaling NULL: not), times direction; what turns is scaled as that says. Of longer rows (`stride`
 * > head) the numbers behind `head` are copied. direction +1 rotates, -1 rotates back, which is
 * also the gradient. y may be x. head is even. Angles are reduced in f64, so far positions lose
 * nothing; sine and cosine are good to 1e-7. Results do not depend on the number of threads.
 */
#ifndef RUNTIME_CPU_ROTARY_H
#define RUNTIME_CPU_ROTARY_H

#include "ir/ops/rotary.h"
#include "ir/type.h"

#include <stdbool.h>
#include <stdint.h>

/* The same with places [batch, seq]: the position of each row. */
void rotary_apply_at(DType dtype, int64_t batch, int64_t seq, int64_t inner, int64_t head,
                     int64_t stride, const int32_t *places, double base,
                     const RotaryScaling *scaling, int direction, const void *x, void *y);

void rotary_apply(DType dtype, int64_t batch, int64_t seq, int64_t inner, int64_t head,
                  int64_t stride, const DimSpan *place, double base, const RotaryScaling *scaling,
                  int direction, const void *x, void *y);

#endif
