/* Attention in bf16 with its products on a processor's tiles (tiles.h): of one tile of query rows,
 * as attention.c has them. Scores, sums and the softmax are f32; weights and the gradients of
 * scores are rounded to bf16 for the products that take them.
 */
#ifndef RUNTIME_CPU_ATTENTION_TILES_H
#define RUNTIME_CPU_ATTENTION_TILES_H

#include "runtime/cpu/attention_rows.h"

/* Are there tiles, and enough rows to fill some? The same for all of a shape's. */
bool attention_tiles_do(const AttentionShape *shape);

/* Of o, lse and, unless NULL, `largest`, the rows of the tile. */
void attention_tiles_forward(const AttentionShape *shape, const RowTile *tile, int64_t b, int64_t h,
                             const void *q, const void *k, const void *v, void *o, float *lse,
                             float *largest);

/* Of dq the rows of the tile; the sums of dk and dv get what they add: what of it is in the part.
 */
void attention_tiles_backward(const BackwardHead *x, const RowTile *tile, const BackwardPart *part);

#endif
