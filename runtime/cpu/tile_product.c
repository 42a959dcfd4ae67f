#include "runtime/cpu/vec_low.h" /* first: it widens the vectors of this file */

#include "runtime/cpu/tile_product.h"

#include "runtime/cpu/tile_pack.h"

#include <omp.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* Packed, and with its sums, a block stays in a core's 2 MiB of cache of the second level, and the
 * columns of B in hand in that of the first. */
enum {
    MOST_BLOCK = 512,
    DEPTH = 256,   /* of k, packed of B at a time, in bf16 */
    WHOLE = 768,   /* up to so long a k, A is packed once for all columns */
    COLUMNS = 128, /* that are then stored together */
    FEW = 64,      /* rows */
    SHALLOW = 32,  /* of k at a time, with so few */
};

/* Reading B once takes the time: a few of its rows at a time, all along, as processors fetch by
 * themselves what is read so. Sums of one part are the same; of several, whose terms take turns,
 * they are not. */
static bool has_few_rows(const TileProduct *p) {
    return p->m <= FEW && !p->tb && tile_parts(p->dtype) == 1;
}

/* As many bytes for all dtypes, or with three parts half as many again. */
static int64_t chunk_depth(const TileProduct *p) {
    return has_few_rows(p) ? SHALLOW : tile_parts(p->dtype) == 1 ? DEPTH : DEPTH / 2;
}

static bool packs_once(const TileProduct *p) {
    return !has_few_rows(p) && p->k * tile_parts(p->dtype) <= WHOLE;
}

/* What a thread needs for a block: of A all rows, of B 32 columns; sums [columns / 32][rows][32].
 */
typedef struct TileWork {
    uint16_t a[MOST_BLOCK * WHOLE] __attribute__((aligned(64)));
    uint16_t b[TILE_BLOCK * DEPTH / 2 * TILE_MAX_PARTS] __attribute__((aligned(64)));
    float sums[MOST_BLOCK * MOST_BLOCK] __attribute__((aligned(64)));
} TileWork;

static pthread_key_t work_key;

static void make_key(void) {
    if (pthread_key_create(&work_key, free)) abort();
}

/* The calling thread's, until it ends. NULL: no memory. */
static TileWork *get_work(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, make_key);
    TileWork *work = pthread_getspecific(work_key);
    if (work) return work;
    work = aligned_alloc(64, sizeof *work);
    if (work && pthread_setspecific(work_key, work)) free(work), work = NULL;
    return work;
}

static int64_t smaller(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static int64_t whole_blocks(int64_t n) {
    return (n + TILE_BLOCK - 1) / TILE_BLOCK;
}

/* How C is cut. */
typedef struct Cut {
    int64_t rows, columns; /* of a block; the last ones have fewer */
    int64_t down, across;  /* how many there are */
} Cut;

/* n in parts of about equal size, at most `most`, which is then rounded up to whole 32. */
static int64_t even_part(int64_t n, int64_t most) {
    const int64_t parts = (n + most - 1) / most;
    return whole_blocks((n + parts - 1) / parts) * TILE_BLOCK;
}

static Cut make_cut(const TileProduct *p, int64_t rows, int64_t columns) {
    return (Cut){rows, columns, (p->m + rows - 1) / rows, (p->n + columns - 1) / columns};
}

/* Large blocks, as what is packed serves all of one; smaller ones where threads would wait. */
static Cut cut_product(const TileProduct *p, int64_t n_threads) {
    enum { LEAST_BLOCK = 128 };
    const int64_t widest = packs_once(p)     ? p->n
                           : has_few_rows(p) ? (int64_t)MOST_BLOCK * MOST_BLOCK / FEW
                                             : MOST_BLOCK;
    Cut cut = make_cut(p, even_part(p->m, MOST_BLOCK), even_part(p->n, widest));
    for (;;) {
        const int64_t tasks = p->batch * cut.down * cut.across;
        const int64_t rounds = (tasks + n_threads - 1) / n_threads;
        if (5 * tasks >= 4 * rounds * n_threads) return cut;
        if (cut.rows <= LEAST_BLOCK && cut.columns <= LEAST_BLOCK) return cut;
        const bool by_rows = cut.rows >= cut.columns;
        const int64_t half = (by_rows ? cut.rows : cut.columns) / 2;
        cut = by_rows ? make_cut(p, even_part(p->m, half), cut.columns)
                      : make_cut(p, cut.rows, even_part(p->n, half));
    }
}

/* One operand, from row (column of B) `first` on. */
typedef struct Operand {
    const void *x;
    int64_t stride;
    bool along_k;
    int64_t first, extent;
} Operand;

static TileSource source_of(const TileProduct *p, const Operand *o, int64_t i, int64_t k,
                            int64_t depth) {
    const int64_t at = o->first + i;
    const int64_t offset = o->along_k ? at * o->stride + k : k * o->stride + at;
    return (TileSource){.x = vec_at(o->x, p->dtype, offset),
                        .dtype = p->dtype,
                        .stride = o->stride,
                        .along_k = o->along_k,
                        .extent = (int)smaller(o->extent - i, TILE_BLOCK),
                        .k = depth};
}

/* k from `first` on, `depth` of it. */
typedef struct Chunk {
    int64_t first, depth;
    int steps;
    int64_t packed; /* numbers of one strip of 32 rows or columns, all parts */
} Chunk;

static Chunk chunk_at(const TileProduct *p, int64_t first) {
    Chunk c = {.first = first, .depth = smaller(p->k - first, chunk_depth(p))};
    c.steps = (int)whole_blocks(c.depth);
    c.packed = (int64_t)c.steps * TILE_STEP * tile_parts(p->dtype);
    return c;
}

/* A's rows of a chunk. Gives where the next chunk's go. */
static uint16_t *pack_rows(const TileProduct *p, const Operand *a, const Chunk *chunk,
                           uint16_t *out) {
    for (int64_t i = 0; i < a->extent; i += TILE_BLOCK, out += chunk->packed) {
        const TileSource rows = source_of(p, a, i, chunk->first, chunk->depth);
        tile_pack(&rows, false, out);
    }
    return out;
}

/* Adds up what a chunk gives of the 32 columns of B from j on: sums [rows][32]. */
static void add_columns(const TileProduct *p, const Operand *b, int64_t j, const Chunk *chunk,
                        const uint16_t *rows, int64_t n_strips, uint16_t *packed, float *sums) {
    const TileSource columns = source_of(p, b, j, chunk->first, chunk->depth);
    tile_pack(&columns, true, packed);
    for (int64_t i = 0; i < n_strips; i++) {
        TileTerm terms[TILE_MAX_TERMS];
        const int n = tile_terms(p->dtype, chunk->steps, rows + i * chunk->packed, packed, terms);
        tiles_multiply(n, terms, chunk->steps, chunk->first > 0, sums + i * TILE_BLOCK * TILE_BLOCK,
                       TILE_BLOCK);
    }
}

/* c [n] = alpha sums + beta c, n <= 32. */
VEC_INLINE void finish_row(const TileProduct *p, const float *sums, const int64_t n, void *c,
                           int64_t at) {
    float wide[TILE_BLOCK];
    const float *was = p->beta == 0 ? NULL : vec_tile(c, p->out_dtype, at, n, wide);
    float *out = vec_out_tile(c, p->out_dtype, at, wide);
    if (!was)
        for (int64_t i = 0; i < n; i++) out[i] = p->alpha * sums[i];
    else
        for (int64_t i = 0; i < n; i++) out[i] = p->alpha * sums[i] + p->beta * was[i];
    vec_close_tile(c, p->out_dtype, at, n, out);
}

/* Columns [from, end) of a block, whose sums these are. Some rows at a time, so that sums are read,
 * and pages of C written, one after the other. */
static void store_columns(const TileProduct *p, const Operand *a, const Operand *b, int64_t from,
                          int64_t end, const float *sums, void *c) {
    enum { ROWS = 16 };
    const int64_t height = whole_blocks(a->extent) * TILE_BLOCK;
    for (int64_t first = 0; first < a->extent; first += ROWS)
        for (int64_t j = from; j < end; j += TILE_BLOCK) {
            const float *row = sums + (j - from) * height + first * TILE_BLOCK;
            const int64_t n = end - j, rows = smaller(a->extent - first, ROWS);
            int64_t at = (a->first + first) * p->ldc + b->first + j;
            for (int64_t i = 0; i < rows; i++, at += p->ldc, row += TILE_BLOCK)
                if (n >= TILE_BLOCK)
                    finish_row(p, row, TILE_BLOCK, c, at);
                else
                    finish_row(p, row, n, c, at);
        }
}

/* All of k for some columns, then the next ones. */
static void multiply_once(const TileProduct *p, const Operand *a, const Operand *b, TileWork *work,
                          void *c) {
    const int64_t n_strips = whole_blocks(a->extent), height = n_strips * TILE_BLOCK;
    uint16_t *to = work->a;
    for (int64_t k = 0; k < p->k; k += chunk_depth(p)) {
        const Chunk chunk = chunk_at(p, k);
        to = pack_rows(p, a, &chunk, to);
    }
    for (int64_t from = 0; from < b->extent; from += COLUMNS) {
        const int64_t end = smaller(from + COLUMNS, b->extent);
        for (int64_t j = from; j < end; j += TILE_BLOCK) {
            const uint16_t *rows = work->a;
            for (int64_t k = 0; k < p->k; k += chunk_depth(p)) {
                const Chunk chunk = chunk_at(p, k);
                add_columns(p, b, j, &chunk, rows, n_strips, work->b,
                            work->sums + (j - from) * height);
                rows += n_strips * chunk.packed;
            }
        }
        store_columns(p, a, b, from, end, work->sums, c);
    }
}

/* All columns for some of k, then the next of k. */
static void multiply_by_passes(const TileProduct *p, const Operand *a, const Operand *b,
                               TileWork *work, void *c) {
    const int64_t n_strips = whole_blocks(a->extent), height = n_strips * TILE_BLOCK;
    for (int64_t k = 0; k < p->k; k += chunk_depth(p)) {
        const Chunk chunk = chunk_at(p, k);
        pack_rows(p, a, &chunk, work->a);
        for (int64_t j = 0; j < b->extent; j += TILE_BLOCK)
            add_columns(p, b, j, &chunk, work->a, n_strips, work->b, work->sums + j * height);
    }
    store_columns(p, a, b, 0, b->extent, work->sums, c);
}

static bool run_block(const TileProduct *p, const Cut *cut, int64_t task, const void *a,
                      const void *b, void *c) {
    const int64_t j = task % cut->across, i = task / cut->across % cut->down;
    const int64_t one = task / cut->across / cut->down;
    Operand left = {.x = vec_at(a, p->dtype, one * p->stride_a),
                    .stride = p->lda,
                    .along_k = !p->ta,
                    .first = i * cut->rows};
    Operand right = {.x = vec_at(b, p->dtype, one * p->stride_b),
                     .stride = p->ldb,
                     .along_k = p->tb,
                     .first = j * cut->columns};
    left.extent = smaller(p->m - left.first, cut->rows);
    right.extent = smaller(p->n - right.first, cut->columns);
    TileWork *work = get_work();
    if (!work) return false;
    void *to = (char *)c + one * p->stride_c * (int64_t)vec_bytes(p->out_dtype);
    (packs_once(p) ? multiply_once : multiply_by_passes)(p, &left, &right, work, to);
    return true;
}

/* Measured beside oneDNN's (one core of a Xeon), which f16's are widened for: with three parts
 * packing takes long for few rows or columns, each of whose numbers is in few products. */
bool tile_product_does(const TileProduct *p) {
    const bool wide = tile_parts(p->dtype) == TILE_MAX_PARTS;
    /* Of few rows, where what is packed is most: oneDNN takes half as long again for 9. */
    const bool few = !wide && p->n >= 256 && p->k >= 256;
    const int64_t least = wide ? 96 : few ? 9 : 16, least_k = wide ? 64 : 16;
    const double smallest = wide ? 128 * 128 * 64 : 32 * 32 * 32;
    return tiles_ready() && p->m >= least && p->n >= least && p->k >= least_k &&
           (double)p->m * (double)p->n * (double)p->k >= smallest;
}

bool tile_product(const TileProduct *p, const void *a, const void *b, void *c) {
    const int n_threads = omp_in_parallel() ? 1 : omp_get_max_threads();
    const Cut cut = cut_product(p, n_threads);
    const int64_t n_tasks = p->batch * cut.down * cut.across;
    bool ok = true;
#pragma omp parallel num_threads(n_threads) if (n_threads > 1 && n_tasks > 1)
    {
        tiles_open();
#pragma omp for schedule(dynamic, 1)
        for (int64_t task = 0; task < n_tasks; task++)
            if (!run_block(p, &cut, task, a, b, c)) {
#pragma omp atomic write
                ok = false;
            }
        tiles_close();
    }
    return ok;
}
