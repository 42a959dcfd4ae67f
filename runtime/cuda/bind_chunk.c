/* CUDA binder of linear attention by chunks, on tensor cores (linear_chunk*.cu): what
 * linear_attention_by_chunks says yes to. How work is cut follows from sizes alone, so that results
 * and workspace are the same on every device. */
#include "runtime/cuda/bind_chunk.h"
#include "runtime/cuda/kernels/args.h"

typedef struct ChunkKernels {
    int keys;
    KernelId states[2], out[2], transform[2], errors[2], reverse[2]; /* by dtype: bf16, f16 */
    int states_shared, out_shared, transform_shared, errors_shared;
} ChunkKernels;

#define BOTH(name, keys)                                                                           \
    { KERNEL_linear_chunk_##name##_##keys##_bf16, KERNEL_linear_chunk_##name##_##keys##_f16 }
static const ChunkKernels KERNELS_BY_KEYS[] = {
    {64, BOTH(states, 64), BOTH(out, 64), BOTH(transform, 64), BOTH(errors, 64), BOTH(reverse, 64),
     LINEAR_CHUNK_STATES_SHARED(64), LINEAR_CHUNK_OUT_SHARED(64), LINEAR_CHUNK_TRANSFORM_SHARED(64),
     LINEAR_CHUNK_ERRORS_SHARED(64)},
    {128, BOTH(states, 128), BOTH(out, 128), BOTH(transform, 128), BOTH(errors, 128),
     BOTH(reverse, 128), LINEAR_CHUNK_STATES_SHARED(128), LINEAR_CHUNK_OUT_SHARED(128),
     LINEAR_CHUNK_TRANSFORM_SHARED(128), LINEAR_CHUNK_ERRORS_SHARED(128)},
    {256,
     BOTH(states, 256),
     BOTH(out, 256),
     {0},
     {0},
     {0},
     LINEAR_CHUNK_STATES_SHARED(256),
     LINEAR_CHUNK_OUT_SHARED(256),
     0,
     0}};

_Static_assert((int)LINEAR_CHUNK_DELTA_KEYS == (int)LINEAR_ATTENTION_CHUNK_DELTA_KEYS &&
                   ATTENTION_LONGEST_HEAD <= 256,
               "what the kernels have room for");
/* Of sm_86, sm_89 and sm_120, less what every block has. */
enum { LEAST_SHARED = 99 * 1024 };
_Static_assert(LINEAR_CHUNK_STATES_SHARED(256) <= LEAST_SHARED &&
                   LINEAR_CHUNK_STATES_SHARED(128) <= LEAST_SHARED &&
                   LINEAR_CHUNK_OUT_SHARED(256) <= LEAST_SHARED &&
                   LINEAR_CHUNK_TRANSFORM_SHARED(128) <= LEAST_SHARED &&
                   LINEAR_CHUNK_ERRORS_SHARED(128) <= LEAST_SHARED &&
                   LINEAR_CHUNK_GRAD_SHARED <= LEAST_SHARED,
               "every device has a block's shared memory");

_Static_assert((int)LINEAR_CHUNK == LINEAR_ATTENTION_CHUNK, "prices know it, too");

int64_t cuda_chunk_part_bytes = LINEAR_ATTENTION_PART_BYTES;

static const ChunkKernels *kernels_for(int64_t keys) {
    const ChunkKernels *kernels = KERNELS_BY_KEYS;
    while (kernels->keys < keys) kernels++;
    return kernels;
}

/* One node's work. Sequences come in parts (linear_attention_divide); a part's workspace, in bytes:
 * where each begins, and the end. */
typedef struct ChunkWork {
    LinearChunkSizes s;
    DType dtype;
    bool delta, gradient;
    int64_t batch, part;        /* sequences, and of a part at most */
    int64_t streams, key_tiles; /* heads of all of a part's groups */
    int64_t group_blocks;       /* of kernels that share a group's chunk between heads */
    int n_sums[2], n_read;      /* parts of dq and dk; of what positions read */
    int64_t states, factors, behind, behind_factors, transform, scores;
    int64_t sums[2], read, wrote, passed, end;
} ChunkWork;

static int64_t take(ChunkWork *w, int64_t bytes) {
    int64_t at = w->end;
    w->end += divide_up(bytes, 256) * 256;
    return at;
}

static void lay_out(ChunkWork *w) {
    const LinearChunkSizes *s = &w->s;
    const int64_t chunks = w->streams * s->chunks, positions = w->part * s->seq * s->groups;
    const int64_t states = 2 * chunks * s->keys * s->values;
    const int64_t factors = w->dtype == DTYPE_F16 ? 4 * chunks * s->tiles : 0;
    const int64_t square = w->delta ? 2 * chunks * LINEAR_CHUNK * LINEAR_CHUNK : 0;
    w->states = take(w, states);
    w->factors = take(w, factors);
    w->transform = take(w, square);
    if (!w->gradient) return;
    w->scores = take(w, square);
    w->behind = take(w, states);
    w->behind_factors = take(w, factors);
    w->n_sums[0] = s->runs;
    w->n_sums[1] = w->delta ? 3 * s->runs : s->runs;
    w->n_read = w->delta ? 2 : 1;
    for (int i = 0; i < 2; i++) w->sums[i] = take(w, 4 * w->n_sums[i] * positions * s->keys);
    w->read = take(w, 4 * w->n_read * w->key_tiles * w->streams * s->seq);
    w->wrote = take(w, 4 * w->key_tiles * w->streams * s->seq);
    w->passed = take(w, 4 * w->key_tiles * chunks);
}

static ChunkWork plan_chunks(const Node *node, const Type *inputs) {
    const Type *q = &inputs[0], *v = &inputs[2];
    ChunkWork w = {.dtype = q->dtype,
                   .delta = linear_attention_write(node) >= 0,
                   .gradient = node->op == OP_LINEAR_ATTENTION_GRAD,
                   .batch = q->dims[0]};
    LinearChunkSizes *s = &w.s;
    s->seq = (int32_t)q->dims[1];
    s->groups = q->rank == 4 ? (int32_t)q->dims[2] : 1;
    s->heads = v->rank > q->rank ? (int32_t)v->dims[v->rank - 2] : 1;
    s->keys = (int32_t)q->dims[q->rank - 1];
    s->values = (int32_t)v->dims[v->rank - 1];
    s->chunks = (int32_t)divide_up(s->seq, LINEAR_CHUNK);
    s->tiles = (int32_t)divide_up(s->values, LINEAR_CHUNK);
    s->scale = (float)node_float(node, ATTR_scale, 1);
    ChunkDivision division = linear_attention_divide(node, inputs, cuda_chunk_part_bytes);
    w.part = division.sequences;
    w.streams = w.part * s->groups * s->heads;
    w.key_tiles = divide_up(s->keys, LINEAR_CHUNK);
    s->run_heads = (int32_t)divide_up(s->heads, division.runs > 0 ? division.runs : 1);
    s->runs = (int32_t)divide_up(s->heads, s->run_heads ? s->run_heads : 1);
    lay_out(&w);
    return w;
}

int64_t cuda_chunk_workspace_bytes(const Node *node, const Type *inputs) {
    return plan_chunks(node, inputs).end;
}

/* A part's launches */

typedef struct ChunkBinding {
    Binding *b;
    const ChunkKernels *kernels;
    ChunkWork w;
    int f16;
    int64_t first, n, streams; /* sequences, and their heads */
} ChunkBinding;

static void *workspace_at(const ChunkBinding *c, int64_t offset) {
    return (char *)c->b->workspace + offset;
}
/* An operand's or result's first number of the part. */
static void *part_of(const ChunkBinding *c, const void *x, const Type *type) {
    int64_t each = type_elements(type) / (c->w.batch ? c->w.batch : 1);
    return x ? (char *)x + c->first * each * dtype_bytes(type->dtype) : NULL;
}
static void *in_part(const ChunkBinding *c, int input) {
    return part_of(c, c->b->in[input], &c->b->in_local[input]);
}
static void *out_part(const ChunkBinding *c, int output) {
    return part_of(c, c->b->out[output], &c->b->out_local[output]);
}

static LinearChunkSizes sizes_of(const ChunkBinding *c) {
    LinearChunkSizes s = c->w.s;
    int decay = linear_attention_decay(c->b->node->op), write = linear_attention_write(c->b->node);
    s.decay = in_part(c, decay);
    s.write = write >= 0 ? in_part(c, write) : NULL;
    return s;
}

static bool push(ChunkBinding *c, KernelId kernel, int64_t blocks, int threads, int shared,
                 const void *args, size_t args_bytes) {
    Grid grid = {cuda_grid_size(blocks), 1, 1};
    return cuda_push_launch(c->b, kernel, grid, threads, shared, args, args_bytes);
}

/* States before chunks, of k and what is written; or gradients of those behind, of q and do. */
static bool push_states(ChunkBinding *c, bool backwards, const void *x, const void *u) {
    LinearChunkStatesArgs args = {
        .sizes = sizes_of(c),
        .backwards = backwards,
        .x = x,
        .u = u,
        .states = workspace_at(c, backwards ? c->w.behind : c->w.states),
        .factors = workspace_at(c, backwards ? c->w.behind_factors : c->w.factors)};
    return push(c, c->kernels->states[c->f16], c->streams * args.sizes.tiles,
                LINEAR_CHUNK_STATES_THREADS(c->kernels->keys), c->kernels->states_shared, &args,
                sizeof(args));
}

static bool push_transform(ChunkBinding *c) {
    LinearChunkTransformArgs args = {.sizes = sizes_of(c),
                                     .q = in_part(c, 0),
                                     .k = in_part(c, 1),
                                     .transform = workspace_at(c, c->w.transform),
                                     .scores = c->w.gradient ? workspace_at(c, c->w.scores) : NULL};
    return push(c, c->kernels->transform[c->f16], c->streams * args.sizes.chunks,
                LINEAR_CHUNK_THREADS, c->kernels->transform_shared, &args, sizeof(args));
}

static bool push_errors(ChunkBinding *c, bool backwards, void *errors) {
    LinearChunkErrorsArgs args = {
        .sizes = sizes_of(c),
        .q = in_part(c, 0),
        .k = in_part(c, 1),
        .v = in_part(c, backwards ? 3 : 2),
        .transform = workspace_at(c, c->w.transform),
        .scores = workspace_at(c, c->w.scores),
        .states = workspace_at(c, backwards ? c->w.behind : c->w.states),
        .errors = errors,
        .factors = workspace_at(c, backwards ? c->w.behind_factors : c->w.factors)};
    return push(c, backwards ? c->kernels->reverse[c->f16] : c->kernels->errors[c->f16],
                c->streams * args.sizes.tiles, LINEAR_CHUNK_STATES_THREADS(c->kernels->keys),
                c->kernels->errors_shared, &args, sizeof(args));
}

static int64_t count_group_blocks(const ChunkBinding *c) {
    const LinearChunkSizes *s = &c->w.s;
    return c->n * s->groups * s->chunks * s->runs;
}

/* o; backwards, without the delta rule, dv. */
static bool push_out(ChunkBinding *c, bool backwards, const void *u) {
    LinearChunkOutArgs args = {.sizes = sizes_of(c),
                               .backwards = backwards,
                               .x = in_part(c, backwards ? 1 : 0),
                               .y = in_part(c, backwards ? 0 : 1),
                               .u = u,
                               .states = workspace_at(c, backwards ? c->w.behind : c->w.states),
                               .factors =
                                   workspace_at(c, backwards ? c->w.behind_factors : c->w.factors),
                               .out = out_part(c, backwards ? 2 : 0)};
    return push(c, c->kernels->out[c->f16], count_group_blocks(c), LINEAR_CHUNK_THREADS,
                c->kernels->out_shared, &args, sizeof(args));
}

/* taken: what keys read of what was there, of which -b du is d. columns: keys' share of what was
 * written, of both kinds, and of states' gradients with the first; into sums[columns || taken]. */
static bool push_grad(ChunkBinding *c, bool taken, bool columns) {
    const ChunkWork *w = &c->w;
    const int into = columns || taken;
    LinearChunkGradArgs args = {
        .sizes = sizes_of(c),
        .taken = taken,
        .parts = w->n_sums[into],
        .part = !into || !w->delta ? 0 : (columns ? 1 + taken : 0) * w->s.runs,
        .x = in_part(c, taken ? 1 : 0),
        .y = in_part(c, 1),
        .d = taken ? out_part(c, 2) : in_part(c, 3),
        .u = in_part(c, 2),
        .states = workspace_at(c, columns ? w->behind : w->states),
        .factors = workspace_at(c, columns ? w->behind_factors : w->factors),
        .before = workspace_at(c, w->states),
        .before_factors = workspace_at(c, w->factors),
        .sums = workspace_at(c, w->sums[into]),
        .read = workspace_at(c, w->read),
        .wrote = workspace_at(c, w->wrote),
        .passed = workspace_at(c, w->passed)};
    if (taken) args.sizes.scale = 1;
    if (taken && columns) args.states = NULL;
    if (taken) args.read += w->key_tiles * c->streams * w->s.seq;
    KernelId rows = c->f16 ? KERNEL_linear_chunk_rows_f16 : KERNEL_linear_chunk_rows_bf16;
    KernelId keys = c->f16 ? KERNEL_linear_chunk_columns_f16 : KERNEL_linear_chunk_columns_bf16;
    return push(c, columns ? keys : rows, count_group_blocks(c) * w->key_tiles,
                LINEAR_CHUNK_THREADS, LINEAR_CHUNK_GRAD_SHARED, &args, sizeof(args));
}

/* dq or dk. */
static bool push_join(ChunkBinding *c, int which) {
    enum { THREADS = 256 };
    const LinearChunkSizes *s = &c->w.s;
    LinearAttentionJoinArgs args = {.batch = c->n,
                                    .seq = s->seq,
                                    .groups = s->groups,
                                    .keys = s->keys,
                                    .parts = c->w.n_sums[which],
                                    .end = s->seq,
                                    .dtype = (int32_t)c->w.dtype,
                                    .sums = workspace_at(c, c->w.sums[which]),
                                    .out = out_part(c, which)};
    return push(c, KERNEL_linear_attention_join,
                divide_up(c->n * s->seq * s->groups * s->keys, THREADS), THREADS, 0, &args,
                sizeof(args));
}

static bool push_decays(ChunkBinding *c) {
    LinearChunkDecaysArgs args = {.sizes = sizes_of(c),
                                  .streams = c->streams,
                                  .n_read = (int32_t)(c->w.n_read * c->w.key_tiles),
                                  .n_wrote = (int32_t)c->w.key_tiles,
                                  .read = workspace_at(c, c->w.read),
                                  .wrote = workspace_at(c, c->w.wrote),
                                  .passed = workspace_at(c, c->w.passed),
                                  .ddecay = out_part(c, 3)};
    return push(c, KERNEL_linear_chunk_decays, c->streams * args.sizes.chunks, LINEAR_CHUNK, 0,
                &args, sizeof(args));
}

static bool push_forward(ChunkBinding *c) {
    if (!c->w.delta) {
        return push_states(c, false, in_part(c, 1), in_part(c, 2)) &&
               push_out(c, false, in_part(c, 2));
    }
    return push_transform(c) && push_errors(c, false, out_part(c, 1)) &&
           push_out(c, false, out_part(c, 1));
}

static bool push_backward(ChunkBinding *c) {
    return push_states(c, false, in_part(c, 1), in_part(c, 2)) &&
           (c->w.delta ? push_transform(c) && push_errors(c, true, out_part(c, 2))
                       : push_states(c, true, in_part(c, 0), in_part(c, 3)) &&
                             push_out(c, true, in_part(c, 3))) &&
           push_grad(c, false, false) && push_grad(c, false, true) &&
           (!c->w.delta || (push_grad(c, true, false) && push_grad(c, true, true))) &&
           push_join(c, 0) && push_join(c, 1) && push_decays(c);
}

/* Offsets of a tile's rows are 32 bits. */
static bool sizes_fit(Binding *b) {
    const Type *q = &b->in_local[0], *v = &b->in_local[2];
    const int64_t most = INT32_MAX / LINEAR_CHUNK;
    if (q->dims[1] <= INT32_MAX - LINEAR_CHUNK &&
        type_elements(q) <= most * q->dims[0] * q->dims[1] &&
        type_elements(v) <= most * v->dims[0] * v->dims[1])
        return true;
    return bind_fail(b, "has more positions or heads than its CUDA kernels count");
}

bool cuda_bind_by_chunks(Binding *b) {
    ChunkBinding c = {.b = b, .w = plan_chunks(b->node, b->in_local)};
    c.kernels = kernels_for(c.w.s.keys);
    c.f16 = c.w.dtype == DTYPE_F16;
    if (!sizes_fit(b)) return false;
    for (c.first = 0; c.first < c.w.batch; c.first += c.w.part) {
        c.n = c.w.batch - c.first < c.w.part ? c.w.batch - c.first : c.w.part;
        c.streams = c.n * c.w.s.groups * c.w.s.heads;
        if (!(c.w.gradient ? push_backward(&c) : push_forward(&c))) return false;
    }
    return true;
}
