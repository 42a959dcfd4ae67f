/* Emission: from a plan to the commands of one rank, or of all its ranks on one device.
 *
 * Three lists are made of a plan for training: a step, a forward run of all micro-batches, and one
 * of the first micro-batch only; and three of a plan for decoding, one for each of its chunks. The
 * first command of each takes over the staged state. Nothing here touches a device.
 */
#ifndef RUNTIME_CUDA_EMIT_H
#define RUNTIME_CUDA_EMIT_H

#include "runtime/cuda/bind.h"
#include "runtime/cuda/epilogue.h"
#include "runtime/executor.h"

typedef enum EmitJob {
    EMIT_TRAIN,
    EMIT_FORWARD,
    EMIT_FIRST,
    EMIT_DECODE, /* the first chunk of a plan for decoding; the others follow */
    N_EMIT_JOBS = EMIT_DECODE + N_DECODE_CHUNKS
} EmitJob;
/* A plan's jobs are those from the first to before the end. */
static inline int emit_first_job(const Plan *plan) {
    return plan->context ? EMIT_DECODE : EMIT_TRAIN;
}
static inline int emit_end_job(const Plan *plan) {
    return EMIT_DECODE + (plan->context ? plan->n_chunks : 0);
}

/* What commands refer to beside the arenas. A staging slot is a DeviceState, padded to
 * STAGING_HEADER bytes, and then, of training, tokens and labels, i32[global_batch, seq] each, and
 * reference, f32[global_batch]; of decoding, each DecodeInput, i32[emit_decode_positions]. */
typedef struct EmitMemory {
    DeviceState *state;           /* device */
    const unsigned char *staging; /* pinned host memory, STAGING_SLOTS slots */
    /* Of decoding: pinned host memory to which each chunk copies its logits; NULL: it does not. */
    unsigned char *logits;
    /* [N_STREAM_KINDS] in pinned host memory: how many of a stream's messages have been done in
     * this step, kept by a small kernel after each; NULL: not kept. Only where a rank has its own
     * device: when it waits for ever, this says for what. */
    uint32_t *progress;
    const EpilogueCheck *epilogues;  /* NULL: products are left without */
    const AttentionCheck *attention; /* NULL: own kernels, none on wgmma */
    bool own_products;               /* by own kernels: there is none to put epilogues in */
} EmitMemory;
enum { STAGING_HEADER = 64 };
int64_t emit_staging_bytes(const Plan *plan); /* of one slot */
/* Which of its numbers, after the header, these begin with, where the plan reads them. */
int64_t emit_staged_numbers(const Plan *plan, TokenNumbers which);
/* Of a plan for decoding: the most numbers of an input, and the logits of a chunk. */
int64_t emit_decode_positions(const Plan *plan);
Value emit_decode_logits(const Plan *plan, int chunk);
int64_t emit_logits_bytes(const Plan *plan, int chunk); /* all of them, which each rank has */

/* The commands of one rank that runs alone on its device: messages are NCCL's. */
bool emit_rank(const RankContext *rank, const EmitMemory *memory, EmitJob job,
               struct KernelCache *generated, CommandList *out, Diag *diag);
/* All ranks of the plan on one device: messages become kernels and copies among their arenas, in an
 * order in which every message's sender has come before its receiver. False also when there is no
 * such order (a deadlock). */
bool emit_virtual(const RankContext *ranks, int n_ranks, const EmitMemory *memory, EmitJob job,
                  struct KernelCache *generated, Arena *arena, CommandList *out, Diag *diag);

/* The rank that leads a collective's group: its member 0. */
int emit_group_leader(const Plan *plan, int group, int rank);
/* The global rank of member k of the group of `rank`. */
int emit_group_member(const Plan *plan, int group, int rank, int k);
/* "t", "d", "p" or "tied wte". */
const char *emit_group_name(const Plan *plan, int group);

#endif
