/* Operands of products as tiles (tiles.h): bf16 as it is, f16 as the sum of two numbers of bf16,
 * f32 as that of three, which hold all of its bits. The product of such sums is that of their
 * parts; of f32's nine the six that an f32 can tell from zero beside the largest are taken (as in
 * cuBLAS' products of f32 on tensor cores of bf16). A part below 2^-126 is zero; an infinity's and
 * a NaN's first part is itself, the rest is zero.
 */
#ifndef RUNTIME_CPU_TILE_PACK_H
#define RUNTIME_CPU_TILE_PACK_H

#include "ir/type.h"
#include "runtime/cpu/tiles.h"

enum { TILE_MAX_PARTS = 3, TILE_MAX_TERMS = 6 };

/* Of f32, bf16 or f16. */
int tile_parts(DType dtype);

/* Part of a matrix, with what lies on one axis of the block's 32 rows or columns. */
typedef struct TileSource {
    const void *x; /* its first number */
    DType dtype;
    bool rounded;   /* f32 alone: one part, rounded to nearest (denormal numbers to zero) */
    int64_t stride; /* numbers from one stored row to the next */
    bool along_k;   /* a stored row runs along k; else along the block */
    int extent;     /* rows or columns of the block that there are, up to 32; others are zero */
    int64_t k;      /* how long; filled up with zeros to whole steps */
} TileSource;

/* Tiles of A (`as_pairs` false) or of B: [tile_parts][steps][TILE_STEP], aligned to 64 bytes. */
void tile_pack(const TileSource *source, bool as_pairs, uint16_t *out);

/* For tests: from now on without vectors of 512 bits (true); or with, where there are any. */
void tile_pack_plainly(bool plain);

/* The terms of a product of operands of `dtype`, packed: the smallest first. Gives how many. */
int tile_terms(DType dtype, int steps, const uint16_t *a, const uint16_t *b,
               TileTerm out[TILE_MAX_TERMS]);

#endif
