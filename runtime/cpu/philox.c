#include "runtime/cpu/vec.h" /* first: it widens the vectors of this file */

#include "runtime/cpu/philox.h"
#include "runtime/cpu/vmath.h"

#include <math.h>
#include <string.h>

#define MULTIPLIER_0 0xD2511F53u
#define MULTIPLIER_1 0xCD9E8D57u
#define WEYL_0       0x9E3779B9u
#define WEYL_1       0xBB67AE85u

/* Blocks made together: vectors of each lane, enough to overlap the rounds; elements in them. */
#define BLOCKS PHILOX_BLOCKS
#define CHUNK  (4 * BLOCKS)

typedef struct Blocks {
    uint32_t lane[4][BLOCKS];
} Blocks;

/* Ten rounds on BLOCKS counters at once; b->lane holds the counters on entry. */
VEC_INLINE void run_rounds(Blocks *b, uint32_t key0, uint32_t key1) {
    for (int round = 0; round < 10; round++) {
        for (int j = 0; j < BLOCKS; j++) {
            const uint64_t p0 = (uint64_t)b->lane[0][j] * MULTIPLIER_0;
            const uint64_t p1 = (uint64_t)b->lane[2][j] * MULTIPLIER_1;
            b->lane[0][j] = (uint32_t)(p1 >> 32) ^ b->lane[1][j] ^ key0;
            b->lane[1][j] = (uint32_t)p1;
            b->lane[2][j] = (uint32_t)(p0 >> 32) ^ b->lane[3][j] ^ key1;
            b->lane[3][j] = (uint32_t)p0;
        }
        key0 += WEYL_0;
        key1 += WEYL_1;
    }
}

void philox_block(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]) {
    Blocks b = {{{0}}};
    for (int l = 0; l < 4; l++) b.lane[l][0] = counter[l];
    run_rounds(&b, key[0], key[1]);
    for (int l = 0; l < 4; l++) out[l] = b.lane[l][0];
}

VEC_INLINE void set_block(const PhiloxStream *stream, uint64_t block, int j, Blocks *out) {
    out->lane[0][j] = (uint32_t)block;
    out->lane[1][j] = (uint32_t)(block >> 32);
    out->lane[2][j] = stream->key;
    out->lane[3][j] = (uint32_t)stream->step;
}

static void make_blocks(const PhiloxStream *stream, uint64_t first_block, Blocks *out) {
    for (int j = 0; j < BLOCKS; j++) set_block(stream, first_block + (uint64_t)j, j, out);
    run_rounds(out, (uint32_t)stream->seed, (uint32_t)(stream->seed >> 32));
}

void philox_blocks(const PhiloxStream *stream, const uint64_t blocks[BLOCKS],
                   uint32_t out[4][BLOCKS]) {
    Blocks b;
    for (int j = 0; j < BLOCKS; j++) set_block(stream, blocks[j], j, &b);
    run_rounds(&b, (uint32_t)stream->seed, (uint32_t)(stream->seed >> 32));
    memcpy(out, b.lane, sizeof b.lane);
}

VEC_INLINE float to_uniform(uint32_t bits) {
    return (float)(int32_t)(bits >> 8) * 0x1p-24f;
}

VEC_INLINE void to_normals(uint32_t bits0, uint32_t bits1, float *out0, float *out1) {
    const float u = (float)(int32_t)((bits0 >> 8) + 1) * 0x1p-24f; /* (0, 1]: its log is finite */
    const float radius = sqrtf(-2.0f * vmath_log(u));
    float sine, cosine;
    vmath_sincos_turns(to_uniform(bits1), &sine, &cosine);
    *out0 = radius * cosine;
    *out1 = radius * sine;
}

typedef void ChunkMaker(const PhiloxStream *stream, uint64_t first_block, float out[CHUNK]);

static void uniform_chunk(const PhiloxStream *stream, uint64_t first_block, float out[CHUNK]) {
    Blocks b;
    make_blocks(stream, first_block, &b);
    for (int j = 0; j < BLOCKS; j++) {
        out[4 * j + 0] = to_uniform(b.lane[0][j]);
        out[4 * j + 1] = to_uniform(b.lane[1][j]);
        out[4 * j + 2] = to_uniform(b.lane[2][j]);
        out[4 * j + 3] = to_uniform(b.lane[3][j]);
    }
}

static void normal_chunk(const PhiloxStream *stream, uint64_t first_block, float out[CHUNK]) {
    Blocks b;
    float lane[4][BLOCKS];
    make_blocks(stream, first_block, &b);
    for (int j = 0; j < BLOCKS; j++)
        to_normals(b.lane[0][j], b.lane[1][j], &lane[0][j], &lane[1][j]);
    for (int j = 0; j < BLOCKS; j++)
        to_normals(b.lane[2][j], b.lane[3][j], &lane[2][j], &lane[3][j]);
    for (int j = 0; j < BLOCKS; j++)
        for (int l = 0; l < 4; l++) out[4 * j + l] = lane[l][j];
}

/* Chunks start at a block, a run may not: its first and last chunks go through a buffer. Elements
 * apart from each other cost a chunk each, which also keeps their values the vector code's. */
VEC_INLINE void make_run(ChunkMaker *make, const PhiloxStream *stream, uint64_t first,
                         uint64_t stride, int64_t n, float *out) {
    float buffer[CHUNK];
    for (int64_t done = 0; done < n;) {
        const uint64_t index = first + (uint64_t)done * stride;
        const int64_t skip = (int64_t)(index % 4);
        int64_t take = stride == 1 ? CHUNK - skip : 1;
        if (take > n - done) take = n - done;
        if (take == CHUNK) {
            make(stream, index / 4, out + done);
        } else {
            make(stream, index / 4, buffer);
            memcpy(out + done, buffer + skip, (size_t)take * sizeof *out);
        }
        done += take;
    }
}

void philox_uniform_run(const PhiloxStream *stream, uint64_t first, uint64_t stride, int64_t n,
                        float *out) {
    make_run(uniform_chunk, stream, first, stride, n, out);
}

void philox_normal_run(const PhiloxStream *stream, uint64_t first, uint64_t stride, int64_t n,
                       float *out) {
    make_run(normal_chunk, stream, first, stride, n, out);
}

PhiloxSpace philox_space_collapse(const PhiloxSpace *space) {
    PhiloxSpace out = {0};
    uint64_t base = 0;
    for (int d = 0; d < space->n_dims; d++) {
        base += (uint64_t)space->offset[d] * space->stride[d];
        if (space->dims[d] == 1) continue;
        const int last = out.n_dims - 1;
        if (last >= 0 && out.stride[last] == space->stride[d] * (uint64_t)space->dims[d]) {
            out.dims[last] *= space->dims[d];
            out.stride[last] = space->stride[d];
        } else {
            out.dims[out.n_dims] = space->dims[d];
            out.stride[out.n_dims++] = space->stride[d];
        }
    }
    /* All offsets together become that of a first dimension of size 1. */
    if (out.n_dims == PHILOX_MAX_DIMS) return *space;
    memmove(out.dims + 1, out.dims, (size_t)out.n_dims * sizeof out.dims[0]);
    memmove(out.stride + 1, out.stride, (size_t)out.n_dims * sizeof out.stride[0]);
    out.n_dims++;
    out.dims[0] = 1;
    out.stride[0] = 1;
    out.offset[0] = (int64_t)base;
    return out;
}

uint64_t philox_space_locate(const PhiloxSpace *space, int64_t linear, int64_t *out_run,
                             uint64_t *out_stride) {
    uint64_t index = 0;
    *out_run = 1;
    *out_stride = 1;
    for (int d = space->n_dims - 1; d >= 0; d--) {
        const int64_t i = linear % space->dims[d];
        linear /= space->dims[d];
        index += (uint64_t)(space->offset[d] + i) * space->stride[d];
        if (d < space->n_dims - 1) continue;
        *out_run = space->dims[d] - i;
        *out_stride = space->stride[d];
    }
    return index;
}

#define FILL_TILE 4096 /* elements a thread fills at a time */

VEC_INLINE void fill(ChunkMaker *make, const PhiloxStream *stream, const PhiloxSpace *space,
                     float shift, float factor, float *out) {
    const PhiloxSpace flat = philox_space_collapse(space);
    int64_t total = 1;
    for (int d = 0; d < flat.n_dims; d++) total *= flat.dims[d];
#pragma omp parallel for schedule(static) if (total > FILL_TILE)
    for (int64_t first = 0; first < total; first += FILL_TILE) {
        const int64_t end = total - first < FILL_TILE ? total : first + FILL_TILE;
        for (int64_t at = first; at < end;) {
            int64_t run;
            uint64_t stride;
            const uint64_t index = philox_space_locate(&flat, at, &run, &stride);
            if (run > end - at) run = end - at;
            make_run(make, stream, index, stride, run, out + at);
            at += run;
        }
        for (int64_t i = first; i < end; i++) out[i] = shift + factor * out[i];
    }
}

void philox_fill_uniform(const PhiloxStream *stream, const PhiloxSpace *space, float low,
                         float high, float *out) {
    fill(uniform_chunk, stream, space, low, high - low, out);
}

void philox_fill_normal(const PhiloxStream *stream, const PhiloxSpace *space, float mean, float std,
                        float *out) {
    fill(normal_chunk, stream, space, mean, std, out);
}
