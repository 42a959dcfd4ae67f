/* ggml's types of tensors: names and numbers in a GGUF file, blocks, and numbers to and from them.
 *
 * A block is so many numbers of a row one after the other, with one or more scales (ggml-common.h,
 * ggml-quants.c of llama.cpp). Widened numbers are f32, bit for bit what llama.cpp's
 * dequantize_row_... makes: products of a scale and a code are exact there, so it does not matter
 * whether they are fused with what is added. Data need not be aligned.
 */
#ifndef FRONTEND_GGUF_GGUF_TYPES_H
#define FRONTEND_GGUF_GGUF_TYPES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Numbers of types in files, of those that are written by name. */
enum {
    GGUF_TYPE_F32 = 0,
    GGUF_TYPE_F16 = 1,
    GGUF_TYPE_Q4_0 = 2,
    GGUF_TYPE_Q8_0 = 8,
    GGUF_TYPE_Q6_K = 14,
    GGUF_TYPE_BF16 = 30
};

enum { GGUF_BLOCK = 32 }; /* of all types in blocks but k-quants and their like */

typedef struct GgufType {
    uint32_t number;
    const char *name; /* as llama.cpp has it: "q4_K" */
    int64_t block;    /* numbers of a block */
    size_t bytes;     /* of a block */
    /* NULL: it is known, but not read. */
    void (*widen)(const unsigned char *blocks, int64_t n_blocks, float *out);
    /* NULL: it is not written. False: a scale, or a number, is too large for 16 bits. */
    bool (*narrow)(const float *numbers, int64_t n_blocks, unsigned char *out);
    int file_type; /* general.file_type of a file that is mostly of it; -1: none is written */
} GgufType;

extern const GgufType GGUF_TYPES[]; /* ends with a NULL name */

const GgufType *gguf_type_find(uint32_t number); /* NULL: none */
/* By name, of those that are written; in any case. NULL: none */
const GgufType *gguf_type_named(const char *name);

/* Of 256 numbers (k-quants), in rooms of their own. */
void gguf_widen_q2_k(const unsigned char *at, int64_t n_blocks, float *out);
void gguf_widen_q3_k(const unsigned char *at, int64_t n_blocks, float *out);
void gguf_widen_q4_k(const unsigned char *at, int64_t n_blocks, float *out);
void gguf_widen_q5_k(const unsigned char *at, int64_t n_blocks, float *out);
void gguf_widen_q6_k(const unsigned char *at, int64_t n_blocks, float *out);
void gguf_widen_iq4_xs(const unsigned char *at, int64_t n_blocks, float *out);

bool gguf_narrow_q4_k(const float *numbers, int64_t n_blocks, unsigned char *out);
bool gguf_narrow_q5_k(const float *numbers, int64_t n_blocks, unsigned char *out);
bool gguf_narrow_q6_k(const float *numbers, int64_t n_blocks, unsigned char *out);

extern const int8_t GGUF_IQ4_NUMBERS[16]; /* of a code of iq4_nl and iq4_xs */

#endif
