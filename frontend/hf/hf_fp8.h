/* Weights in fp8 with a scale for each block, as DeepSeek V3 is published, and Qwen 3's -FP8 files
 * (transformers: FineGrainedFP8Config).
 *
 * In place of a matrix NAME [rows, columns] in bf16 a file has it as F8_E4M3, and NAME_scale_inv
 * [rows / R, columns / C], rounded up, in F32 or BF16: a number is the product of the two. R and C
 * are the configuration's weight_block_size. What is no product's weight is as in other files.
 */
#ifndef FRONTEND_HF_HF_FP8_H
#define FRONTEND_HF_HF_FP8_H

#include "frontend/hf/hf_files.h"

#include <jansson.h>

typedef struct HfFp8Block {
    int64_t rows, columns; /* that one scale is of; 0: the configuration has no fp8 */
} HfFp8Block;

/* Takes the key quantization_config out of a configuration that says such a thing; whatever else it
 * says stays. NULL, or what is wrong with it, in `arena`. */
const char *hf_fp8_take(Arena *arena, json_t *config, HfFp8Block *out);

/* The matrix's scales, which are used then; NULL: reported. */
const HfFound *hf_fp8_find_scales(Arena *arena, const HfFiles *files, const HfFound *matrix,
                                  HfFp8Block block, Diag *diag);

/* All of the matrix: out [rows, columns]. */
void hf_fp8_widen(const HfFound *matrix, const HfFound *scales, HfFp8Block block, float *out);

#endif
