/* Decoding: from a model's forward graph to a plan that writes a sequence position by position, or
 * says how likely one is.
 *
 * The plan has one program of three to six chunks, run one at a time as often as one likes:
 *   DECODE_READ           1 sequence,          `chunk` new positions, logits of one of them
 *   DECODE_READ_FEW       1 sequence,          DECODE_FEW of them at most, likewise
 *   DECODE_WRITE          `sequences` of them, 1 new position each, logits of it
 *   DECODE_READ_TOGETHER  as many new positions as DECODE_READ has, in rows of DECODE_PIECE, each
 *                         of any sequence, logits of one of each; a sequence may have several rows
 *   DECODE_SCORE          `sequences` of them, DECODE_SCORED new positions each, logits of them all
 *   DECODE_LOOK           1 sequence: what becomes of its images goes to a cache [sequences, slots,
 *                         ...] of its own, from which positions with placeholders have it
 * All append keys and values to the same caches [sequences, context, kv_heads, head] (of latent
 * attention latents, [sequences, context, rank]), which persist beside the weights, and attend to
 * what is there. There is no backward and no optimizer's state; in 16 bits weights are kept in them
 * alone. Where a value depends on its position, the position is an operand (plan.h: DecodeInput).
 *
 * t ranks divide weights, caches and work as they do in training, by the same rules and messages;
 * each then has all logits, so that all choose the same tokens. `copies` of such groups know
 * nothing of each other: the plan's d, over which it divides nothing, as each has sequences of its
 * own.
 *
 * That is right where every position's logits depend on earlier positions through attention alone.
 * decode_proof.c proves so node by node: an op may work along seq only if it is one of those that
 * are known, and is pointwise along it otherwise. What is found to be otherwise is an obstacle.
 */
#ifndef PLANNER_DECODE_DECODE_H
#define PLANNER_DECODE_DECODE_H

#include "planner/plan/plan.h"

typedef struct DecodeRequest {
    const char *model, *settings;
    const Graph *forward; /* with an output "logits"; a plan's program of one stage will do */
    int n_blocks;
    int64_t context, vocab;
    int frozen_bits; /* as PlanOptions.frozen_bits; where `forward` is f32 */
    DType precision; /* of `forward` as it is, or, where that is f32, to be made */
    uint64_t seed;
    int sequences, chunk;
    bool scores;   /* there is DECODE_SCORE */
    int t, copies; /* 0: 1 */
    bool cuda;     /* with room for what CUDA's kernels need; runs on CPUs, too */
} DecodeRequest;

/* Why a model cannot be decoded so: "shift: looks at other positions", at its Lua line. */
typedef struct DecodeObstacle {
    SourceLoc loc;
    const char *what; /* NULL: none */
} DecodeObstacle;

/* Tokens that mean something to those who give positions; -1: there is none. */
typedef struct DecodeTokens {
    int64_t separator, image; /* ends documents; has an image's vector in its place */
} DecodeTokens;

/* The model's nodes and what else there is, for all chunks. NULL: an obstacle. */
Graph *decode_graph(Arena *arena, const DecodeRequest *request, DecodeTokens *out_tokens,
                    DecodeObstacle *out);

int decode_count_chunks(const DecodeRequest *request, bool looks); /* at images */

/* NULL: an obstacle, or, reported, a plan that is none. */
Plan *decode_plan(Arena *arena, const DecodeRequest *request, DecodeObstacle *out, Diag *diag);

/* Does an axis of the graph's parameters or places within documents have as many elements as a
 * sequence has positions, so that no longer one can be written? */
bool decode_has_table(const Graph *forward);

#endif
