/* Latent attention (DeepSeek-V2, arXiv 2405.04434, section 2.1) as a graph has it:
 *
 *   k = concat(latent key_weights, key_turned of all heads),  v = latent value_weights,
 *   q = concat(query, query_turned),  attention(q, k, v)
 *
 * Scores are then  (query key_weights^T) latent + query_turned key_turned  and outputs (weights
 * latent) value_weights: neither keys nor values are needed, only what all heads share (section
 * 2.1.2, "absorbed").
 */
#ifndef PLANNER_DECODE_LATENT_H
#define PLANNER_DECODE_LATENT_H

#include "ir/graph.h"

typedef struct LatentAttention {
    Value query, query_turned;        /* [batch, seq, heads, nope], [batch, seq, heads, rope] */
    Value latent, key_turned;         /* [batch, seq, rank], [batch, seq, rope] */
    Value key_weights, value_weights; /* [rank, heads, nope], [rank, heads, value] */
    int rank, rope;                   /* axes */
} LatentAttention;

/* Contexts shorter than this many times a latent have caches of keys and values: to multiply
 * queries and outputs by weights costs as much a token as to read so many positions' keys and
 * values. */
enum { LATENT_LEAST_CONTEXT = 4 };

/* Is the node such an attention, the context so long that latents are worth it, and are caches of
 * them smaller than those of keys and values? */
bool find_latent_attention(const Node *node, int64_t context, LatentAttention *out);

#endif
