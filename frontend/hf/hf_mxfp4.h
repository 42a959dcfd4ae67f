/* Weights in MXFP4, as gpt-oss is published: blocks of 32 numbers of 4 bits (e2m1: 0, 0.5, 1, 1.5,
 * 2, 3, 4, 6 and a sign) with a power of two each (OCP Microscaling Formats 1.0, section 5.3).
 *
 * In place of a tensor NAME [experts, columns, rows] a file has the bytes NAME_blocks [experts,
 * rows, columns / 32, 16], two numbers each, the first in the low bits, and NAME_scales [experts,
 * rows, columns / 32], exponents plus 127.
 */
#ifndef FRONTEND_HF_HF_MXFP4_H
#define FRONTEND_HF_HF_MXFP4_H

#include "frontend/hf/hf_files.h"
#include "frontend/hf/hf_layout.h"
#include "runtime/checkpoint/tensor_copy.h"

typedef struct HfMxfp4 {
    const uint8_t *blocks, *scales;
    int64_t experts, rows, columns;
} HfMxfp4;

/* The item's tensor in blocks, which are used then; nothing where there are none: out->blocks NULL.
 * False: reported. */
bool hf_mxfp4_find(Arena *arena, const HfFiles *files, const HfItem *item, HfMxfp4 *out,
                   Diag *diag);

/* An expert's numbers as out [rows, columns]. */
void hf_mxfp4_widen(const HfMxfp4 *packed, int64_t expert, float *out);

/* A copy of what lies as [columns, rows], one expert's, made one of what lies as [rows, columns].
 */
void hf_mxfp4_turn(const HfMxfp4 *packed, int64_t first, TensorCopy *copy, const float *wide);

#endif
