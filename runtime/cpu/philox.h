/* Random numbers that belong to an element, not to a moment: Philox4x32-10 (Salmon et al. 2011).
 *
 * Element `i` of the stream (seed, key, step) takes lane i % 4 of the block with
 *     counter {lo32(i / 4), hi32(i / 4), key, lo32(step)}, key {lo32(seed), hi32(seed)}.
 * i is the element's number in the whole tensor. A shard passes where its elements lie in the
 * whole, so it draws what the whole would have drawn there: masks and initial weights do not depend
 * on the partition or on the number of threads.
 *
 * uniform: 24 bits in [0, 1). normal: Box-Muller on the lane pairs (0, 1) and (2, 3), own logarithm
 * and sine, |x| <= 5.77.
 */
#ifndef RUNTIME_CPU_PHILOX_H
#define RUNTIME_CPU_PHILOX_H

#include <stdint.h>

#define PHILOX_MAX_DIMS 8

/* A tensor of dims[0] x .. x dims[n_dims - 1] local elements, contiguous, last dimension fastest.
 * Element (i0, i1, ..) is number  sum over d of (offset[d] + i_d) stride[d]  of the whole. */
typedef struct PhiloxSpace {
    int n_dims;
    int64_t dims[PHILOX_MAX_DIMS];
    int64_t offset[PHILOX_MAX_DIMS];
    uint64_t stride[PHILOX_MAX_DIMS];
} PhiloxSpace;

typedef struct PhiloxStream {
    uint64_t seed, step;
    uint32_t key;
} PhiloxStream;

/* The key of what has this name, a parameter for one: FNV-1a. */
static inline uint32_t philox_key_of(const char *name) {
    uint32_t hash = 2166136261u;
    for (; *name; name++) hash = (hash ^ (unsigned char)*name) * 16777619u;
    return hash;
}

/* The bijection itself: ten rounds. */
void philox_block(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);

/* Many blocks, which may lie anywhere: of the stream's block number blocks[j] out[l][j] is lane l.
 */
enum { PHILOX_BLOCKS = 32 };
void philox_blocks(const PhiloxStream *stream, const uint64_t blocks[PHILOX_BLOCKS],
                   uint32_t out[4][PHILOX_BLOCKS]);

/* Uniforms of the elements first, first + stride, ..., n of them. Fast for stride 1. */
void philox_uniform_run(const PhiloxStream *stream, uint64_t first, uint64_t stride, int64_t n,
                        float *out);
/* Standard normals, likewise. */
void philox_normal_run(const PhiloxStream *stream, uint64_t first, uint64_t stride, int64_t n,
                       float *out);

/* out = low + (high - low) uniform, over the space; in parallel. */
void philox_fill_uniform(const PhiloxStream *stream, const PhiloxSpace *space, float low,
                         float high, float *out);
/* out = mean + std normal. */
void philox_fill_normal(const PhiloxStream *stream, const PhiloxSpace *space, float mean, float std,
                        float *out);

/* The same space with as few dimensions as describe it; its offsets are summed into the
 * first. Every element keeps its number. */
PhiloxSpace philox_space_collapse(const PhiloxSpace *space);
/* The number in the whole of local element `linear`; *out_run: elements from there on, this one
 * included, whose numbers advance by *out_stride. */
uint64_t philox_space_locate(const PhiloxSpace *space, int64_t linear, int64_t *out_run,
                             uint64_t *out_stride);

#endif
