/* Linear attention by chunks of positions, whose pairs are small matrix products: Dao & Gu 2024
 * (arXiv 2405.21060, section 6), with the delta rule Yang et al. 2024 (arXiv 2406.06484; Gated
 * DeltaNet, 2412.06464). Operands and results as in linear_attention.h; decays are of heads.
 *
 * g_t is the logarithm of t's decay and G_t their sum from the chunk's beginning to t. Position i
 * reads exp(G_i - G_j) of what j <= i wrote and exp(G_i) of the state before the chunk, and the
 * state behind has exp(G_end - G_j) of it: nothing is divided by a decay. Decays to nothing are
 * left out of the sums and known by their places, so what lies behind one is exactly zero.
 *
 * The heads of a group share products of queries and keys, so some go along the sequence together;
 * which ones changes no bit of the forward, and of the gradient it follows from the shape alone.
 */
#ifndef RUNTIME_CPU_LINEAR_CHUNK_H
#define RUNTIME_CPU_LINEAR_CHUNK_H

#include "runtime/cpu/linear_attention.h"

/* Is it faster than position by position? Asks for a head's sizes alone, so that layouts and
 * micro-batches are all answered alike. */
bool linear_chunk_pays(const LinearAttentionShape *shape);

/* About 1 MiB of each thread's stack at most. */
void linear_chunk_forward(const LinearAttentionShape *shape, const LinearAttentionInputs *in,
                          void *o, void *errors);

/* Heads [head, end) of a row's group. dq, dk [seq, keys]: their sums over these heads; du and
 * ddecay as in linear_attention_backward. About 1.3 MiB of the stack at most. */
typedef struct LinearChunkRun {
    int64_t batch, group, head, end;
    const void *d_o;
    void *du;
    float *dq, *dk, *ddecay;
} LinearChunkRun;
void linear_chunk_backward(const LinearAttentionShape *shape, const LinearAttentionInputs *in,
                           const LinearChunkRun *run);

#endif
