/* Attention by cuDNN, by own kernels on mma.sync and by those on wgmma, where there is a choice:
 * which is fastest is measured, and that those on wgmma, the newest, compute what the others do. */
#ifndef RUNTIME_CUDA_DRIVER_TUNE_ATTENTION_H
#define RUNTIME_CUDA_DRIVER_TUNE_ATTENTION_H

#include "runtime/cuda/driver/tuner.h"

/* Of a stage's commands; `node` lives in the plan. */
void tuner_add_attention(Tuner *tuner, const AttentionCommand *command, const Node *node);
/* After each stage: how many a step has is that of the stage that has the most. */
void tuner_count_attentions(Tuner *tuner);
/* Bytes of the largest set of operands up to `limit`; 0: none. */
int64_t tuner_attention_bytes(const Tuner *tuner, int64_t limit);
/* How many are to be timed. */
int tuner_attention_candidates(const Tuner *tuner);
bool tuner_tune_attentions(Tuner *tuner, TuneResult *out);

#endif
