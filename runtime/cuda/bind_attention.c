/* CUDA binders of attention: whose kernels is asked (AttentionCheck); of own ones, which, how many
 * blocks, how much shared memory. The latter follows from shapes, dtype and scale, so that results
 * of one set of kernels are the same on every device. */
#include "runtime/cuda/bind.h"
#include "runtime/cuda/group_division.h"
#include "runtime/cuda/kernels/args.h"
#include "runtime/cuda/workspace.h"

#include <math.h>

/* What one attention is launched with, and what one block of each kernel does. */
typedef struct AttentionLaunches {
    KernelId forward, delta, keys, queries;
    int tile, keys_tile; /* rows, and keys, of a block */
    int threads, keys_threads, queries_threads;
    int forward_shared, keys_shared, queries_shared; /* bytes */
    uint32_t most_blocks;                            /* of forward; 0: one for each tile of rows */
} AttentionLaunches;

/* Kernels on tensor cores, for heads up to `head` of `dtype` and values up to `values`; up to
 * EVEN_HEAD both are of one size. */
typedef struct TensorKernels {
    DType dtype;
    int head, values;
    KernelId forward, keys, queries;
    int threads, keys_threads, queries_threads;
    int keys_tile;          /* keys of a block of attention_keys_* */
    int step, queries_step; /* keys or rows at a time, in attention_queries_*, */
    int exchanged;          /* and bytes that warps of attention_keys_* exchange */
} TensorKernels;
enum { EVEN_HEAD = 128 };
#define TENSOR_KERNELS(TYPE, suffix, head_, values_, ...)                                          \
    {                                                                                              \
        .dtype = TYPE, .head = head_, .values = values_,                                           \
        .forward = KERNEL_attention_forward_##head_##_##suffix,                                    \
        .keys = KERNEL_attention_keys_##head_##_##suffix,                                          \
        .queries = KERNEL_attention_queries_##head_##_##suffix, __VA_ARGS__                        \
    }
#define NARROW                                                                                     \
    .threads = 128, .queries_threads = 128, .keys_tile = ATTENTION_TILE, .step = ATTENTION_STEP,   \
    .queries_step = ATTENTION_QUERIES_STEP
#define WIDE .keys_threads = 256, .queries_threads = 256, .step = ATTENTION_WIDE_STEP
#define TENSOR_SET(TYPE, suffix)                                                                   \
    TENSOR_KERNELS(TYPE, suffix, 32, 32, NARROW, .keys_threads = 128),                             \
        TENSOR_KERNELS(TYPE, suffix, 64, 64, NARROW, .keys_threads = 128),                         \
        TENSOR_KERNELS(TYPE, suffix, 128, 128, NARROW, .keys_threads = 256,                        \
                       .exchanged = 8 * 4096),                                                     \
        TENSOR_KERNELS(TYPE, suffix, 192, 128, WIDE, .threads = 128, .keys_tile = ATTENTION_TILE,  \
                       .queries_step = ATTENTION_QUERIES_STEP_192, .exchanged = 8 * 2048),         \
        TENSOR_KERNELS(TYPE, suffix, 256, 256, WIDE, .threads = 256,                               \
                       .keys_tile = ATTENTION_KEYS_TILE_256,                                       \
                       .queries_step = ATTENTION_QUERIES_STEP_256, .exchanged = 8 * 1024)
static const TensorKernels TENSOR[] = {TENSOR_SET(DTYPE_BF16, bf16), TENSOR_SET(DTYPE_F16, f16)};
enum { N_TENSOR = sizeof(TENSOR) / sizeof(TENSOR[0]) };

/* Where probabilities are dropped. Heads that these are too short for have attention_any_*. */
#define DROP_SET(TYPE, suffix)                                                                     \
    TENSOR_KERNELS(TYPE, suffix, 64, 64, NARROW, .keys_threads = 128),                             \
        TENSOR_KERNELS(TYPE, suffix, 128, 128, NARROW, .keys_threads = 256, .exchanged = 8 * 4096)
static const TensorKernels DROP[] = {DROP_SET(DTYPE_BF16, drop_bf16),
                                     DROP_SET(DTYPE_F16, drop_f16)};
enum { N_DROP = sizeof(DROP) / sizeof(DROP[0]) };

/* Kernels on wgmma, for heads up to `head` and values up to `values`, likewise, but for short ones,
 * which gain nothing; none with a soft cap, whose gradient needs scores longer than they keep them,
 * none within documents that are not causal, as they do not look at where documents end, and none
 * that drop probabilities. */
typedef struct WgmmaKernels {
    DType dtype;
    int head, values;
    KernelId forward, keys, queries;
    KernelId joint;         /* N_KERNELS: none */
    bool in_turns;          /* forward is attention_paired_* */
    int step, queries_step; /* keys at a time, forward and in attention_queries_* */
} WgmmaKernels;
#define WGMMA_KERNELS(TYPE, suffix, head_, values_, forward_, joint_, ...)                         \
    {                                                                                              \
        .dtype = TYPE, .head = head_, .values = values_, .forward = forward_,                      \
        .keys = KERNEL_attention_keys_##head_##_wgmma_##suffix,                                    \
        .queries = KERNEL_attention_queries_##head_##_wgmma_##suffix, .joint = joint_,             \
        .step = ATTENTION_WGMMA_STEP_##head_,                                                      \
        .queries_step = ATTENTION_WGMMA_QUERIES_STEP_##head_, __VA_ARGS__                          \
    }
#define WGMMA_SET(TYPE, suffix)                                                                    \
    WGMMA_KERNELS(TYPE, suffix, 64, 64, KERNEL_attention_forward_64_wgmma_##suffix,                \
                  KERNEL_attention_joint_64_wgmma_##suffix, .in_turns = false),                    \
        WGMMA_KERNELS(TYPE, suffix, 128, 128, KERNEL_attention_paired_128_wgmma_##suffix,          \
                      KERNEL_attention_joint_128_wgmma_##suffix, .in_turns = true),                \
        WGMMA_KERNELS(TYPE, suffix, 192, 128, KERNEL_attention_forward_192_wgmma_##suffix,         \
                      N_KERNELS, .in_turns = false)
static const WgmmaKernels WGMMA[] = {WGMMA_SET(DTYPE_BF16, bf16), WGMMA_SET(DTYPE_F16, f16)};
enum { N_WGMMA = sizeof(WGMMA) / sizeof(WGMMA[0]), WGMMA_SHORT_HEAD = 32 };

static const KernelsByDtype DELTA = KERNELS_BY_DTYPE(attention_delta);

/* lse and delta of the rows that attention_keys_* has at a time, in two buffers. */
static int statistics_bytes(int rows) {
    return 2 * (2 * rows * (int)sizeof(float));
}

/* Tensor cores take rows of whole 16 bytes; their running maximum is of unscaled scores, which a
 * negative scale would turn into a minimum. */
static bool suits_tensor_cores(const AttentionShape *shape) {
    return shape->head % 8 == 0 && attention_values(shape) % 8 == 0 && shape->scale > 0;
}

/* Tiles of 16-bit elements in shared memory: those of the block, and two buffers of two for what
 * passes. */
static AttentionLaunches tensor_launches(const TensorKernels *t) {
    int row = t->head * 2, both = row + t->values * 2;
    return (AttentionLaunches){
        .forward = t->forward,
        .delta = kernel_for_dtype(&DELTA, t->dtype),
        .keys = t->keys,
        .queries = t->queries,
        .tile = ATTENTION_TILE,
        .keys_tile = t->keys_tile,
        .threads = t->threads,
        .keys_threads = t->keys_threads,
        .queries_threads = t->queries_threads,
        .forward_shared = ATTENTION_TILE * row + 2 * t->step * both,
        .keys_shared =
            (t->keys_tile + 2 * t->step) * both + statistics_bytes(t->step) + t->exchanged,
        .queries_shared = (ATTENTION_TILE + 2 * t->queries_step) * both,
    };
}

/* The same tiles; in turns, two of queries, and a block for each processor that takes one tile of
 * rows after the other. */
static AttentionLaunches wgmma_launches(const WgmmaKernels *w) {
    int row = w->head * 2, both = row + w->values * 2;
    return (AttentionLaunches){
        .forward = w->forward,
        .delta = kernel_for_dtype(&DELTA, w->dtype),
        .keys = w->keys,
        .queries = w->queries,
        .tile = ATTENTION_TILE,
        .keys_tile = ATTENTION_TILE,
        .threads = w->in_turns ? ATTENTION_PAIRED_THREADS : ATTENTION_WGMMA_THREADS,
        .most_blocks = w->in_turns ? ATTENTION_JOINT_BLOCKS : 0,
        .keys_threads = ATTENTION_WGMMA_THREADS,
        .queries_threads = ATTENTION_WGMMA_THREADS,
        .forward_shared = (w->in_turns ? 2 : 1) * ATTENTION_TILE * row + 2 * w->step * both,
        .keys_shared = (ATTENTION_TILE + 2 * ATTENTION_WGMMA_KEYS_STEP) * both +
                       statistics_bytes(ATTENTION_WGMMA_KEYS_STEP),
        .queries_shared = (ATTENTION_TILE + 2 * w->queries_step) * both,
    };
}

/* Tiles of f32 in shared memory, with padded rows; and weights. */
static AttentionLaunches any_launches(DType dtype, int64_t width) {
    static const KernelsByDtype FORWARD = KERNELS_BY_DTYPE(attention_any);
    static const KernelsByDtype KEYS = KERNELS_BY_DTYPE(attention_any_keys);
    static const KernelsByDtype QUERIES = KERNELS_BY_DTYPE(attention_any_queries);
    enum { SIDE = ATTENTION_ANY_TILE, WEIGHTS = SIDE * (SIDE + 1) };
    int row = (int)(width + 3) / 4 * 4 + 4;
    AttentionLaunches launches = {
        .forward = kernel_for_dtype(&FORWARD, dtype),
        .delta = kernel_for_dtype(&DELTA, dtype),
        .keys = kernel_for_dtype(&KEYS, dtype),
        .queries = kernel_for_dtype(&QUERIES, dtype),
        .tile = SIDE,
        .keys_tile = SIDE,
        .threads = 256,
        .keys_threads = 256,
        .queries_threads = 256,
        .forward_shared = (2 * SIDE * row + WEIGHTS) * 4,
        .keys_shared = (4 * SIDE * row + 2 * WEIGHTS) * 4,
    };
    launches.queries_shared = launches.keys_shared;
    return launches;
}

/* Kernels for heads up to EVEN_HEAD have values of the same size. */
static bool is_within(const AttentionShape *shape, int head, int values) {
    return shape->head <= head && attention_values(shape) <= values &&
           (!attention_is_uneven(shape) || head > EVEN_HEAD);
}

/* NULL: there are none for it. */
static const WgmmaKernels *find_wgmma(const AttentionShape *shape) {
    bool has_ends = shape->documents && !shape->causal;
    bool suits = suits_tensor_cores(shape) && shape->head > WGMMA_SHORT_HEAD &&
                 shape->softcap == 0 && !has_ends && !shape->drops;
    for (int i = 0; suits && i < N_WGMMA; i++) {
        const WgmmaKernels *w = &WGMMA[i];
        if (shape->dtype == w->dtype && is_within(shape, w->head, w->values)) return w;
    }
    return NULL;
}

bool cuda_attention_has_wgmma(const AttentionShape *shape) {
    return find_wgmma(shape) != NULL;
}

/* NULL: there are none for it. */
static const TensorKernels *find_tensor(const AttentionShape *shape) {
    const TensorKernels *kernels = shape->drops ? DROP : TENSOR;
    const int n = shape->drops ? N_DROP : N_TENSOR;
    for (int i = 0; suits_tensor_cores(shape) && i < n; i++) {
        const TensorKernels *t = &kernels[i];
        if (shape->dtype == t->dtype && is_within(shape, t->head, t->values)) return t;
    }
    return NULL;
}

static AttentionLaunches choose_launches(const AttentionShape *shape, AttentionKernels kernels) {
    int64_t values = attention_values(shape);
    if (kernels == ATTENTION_WGMMA) {
        const WgmmaKernels *wgmma = find_wgmma(shape);
        if (!wgmma) BUG("attention on wgmma with heads of %d", (int)shape->head);
        return wgmma_launches(wgmma);
    }
    const TensorKernels *tensor = find_tensor(shape);
    if (tensor) return tensor_launches(tensor);
    return any_launches(shape->dtype, values > shape->head ? values : shape->head);
}

static int64_t padded_rows(int64_t rows) {
    return (rows + ATTENTION_ROW_PAD - 1) / ATTENTION_ROW_PAD * ATTENTION_ROW_PAD;
}

/* False: reported. */
static bool make_documents(const Binding *b, AttentionSizes *out) {
    const int32_t *ends;
    if (!bind_starts(b, &out->starts, &ends)) return false;
    out->to_ends = ends ? (int64_t)((intptr_t)ends - (intptr_t)out->starts) : 0;
    return !ends || out->to_ends != 0 || bind_fail(b, "has documents that end where they begin");
}

/* False: reported. */
static bool make_sizes(const Binding *b, AttentionSizes *out) {
    const Type *q = &b->in_local[0];
    int64_t seq = q->dims[1], kv_heads = q->dims[2], group = q->rank == 5 ? q->dims[3] : 1;
    int64_t head = q->dims[q->rank - 1], keys = b->in_local[1].dims[1];
    int64_t values = b->in_local[2].dims[3], width = head > values ? head : values;
    DimSpan span = bind_span(b, bind_input_type(b, 0), bind_input_sharding(b, 0), 1);
    float scale = (float)node_float(b->node, ATTR_scale, 1);
    float softcap = (float)node_float(b->node, ATTR_softcap, 0);
    float factor = softcap > 0 ? softcap : scale;
    int32_t reach = (int32_t)node_int(b->node, ATTR_window, keys + 1) - 1;
    bool causal = node_int(b->node, ATTR_causal, 1) != 0;
    if (width > ATTENTION_ANY_HEAD) return bind_fail(b, "has a head longer than 256 on CUDA");
    /* Kernels count the elements of one batch row, and the rows past its end, in 32 bits. */
    if ((seq + 2 * ATTENTION_TILE) * group * kv_heads * width > INT32_MAX) {
        return bind_fail(b, "has 2^31 elements or more in a batch row, too many on CUDA");
    }
    int64_t counted = keys == seq ? 1 : 2 * group; /* of rows, to where a part of them begins */
    if ((keys + 2 * ATTENTION_TILE) * (kv_heads * width > counted ? kv_heads * width : counted) >
        INT32_MAX) {
        return bind_fail(b,
                         "has 2^31 elements or more in the keys of a batch row, too many on CUDA");
    }
    if (q->dims[0] * kv_heads > INT32_MAX) {
        return bind_fail(b, "has 2^31 heads or more in a batch, too many on CUDA");
    }
    *out = (AttentionSizes){
        .batch = (int32_t)q->dims[0],
        .seq = (int32_t)seq,
        .kv_heads = (int32_t)kv_heads,
        .group = (int32_t)group,
        .head = (int32_t)head,
        .values = (int32_t)values,
        .keys = (int32_t)keys,
        .causal = causal,
        .before = reach,
        .after = causal ? 0 : reach,
        .rows = (int32_t)(seq * group),
        .rows_padded = (int32_t)padded_rows(seq * group),
        .scale = scale,
        .cap_factor = softcap > 0 ? (float)((double)scale / (double)softcap) : 0,
        .lse_scale = factor,
        .scale_log2 = (float)((double)factor * M_LOG2E),
        .drop = bind_drop(b),
        .state = cuda_emitter(b)->state,
    };
    if (keys != seq) {
        int64_t split = span.split < 0 ? 0 : span.split < seq ? span.split : seq;
        out->split_rows = (int32_t)(split * group);
        out->first = (int32_t)span.first;
        out->second = (int32_t)span.second;
    }
    set_group_division(out);
    return make_documents(b, out);
}

/* One launch over `items` rows or keys per head; `streamed` bytes per head are read by each of its
 * blocks: heads whose bytes fit half of an H100's L2 run together. */
static Grid cut(AttentionSizes *sizes, int64_t items, int tile, int64_t streamed) {
    enum { L2_BYTES = 24 << 20 };
    int64_t heads = (int64_t)sizes->batch * sizes->kv_heads, together = L2_BYTES / (streamed + 1);
    sizes->tiles = (int32_t)((items + tile - 1) / tile);
    sizes->heads_together = (int32_t)(together < 1 ? 1 : together < heads ? together : heads);
    return (Grid){cuda_grid_size(sizes->tiles * heads), 1, 1};
}

/* What is asked about, and what cuDNN does if it is to; `command` has the results, and d_o. */
static AttentionCommand make_command(const Binding *b, const AttentionSizes *s,
                                     AttentionCommand command) {
    command.shape = (AttentionShape){
        .dtype = b->in_local[0].dtype,
        .backward = command.d_o != NULL,
        .causal = s->causal,
        .batch = s->batch,
        .seq = s->seq,
        .kv_heads = s->kv_heads,
        .group = s->group,
        .head = s->head,
        .scale = s->scale,
        .window = node_int(b->node, ATTR_window, 0),
        .softcap = (float)node_float(b->node, ATTR_softcap, 0),
        .keys = s->keys,
        .values = s->values,
        .documents = s->starts != NULL,
        .largest = command.d_o == NULL && b->node->n_outputs > 2,
        .drops = attention_drops(b->node),
    };
    command.q = b->in[0];
    command.k = b->in[1];
    command.v = b->in[2];
    command.starts = s->starts;
    command.workspace = b->workspace;
    command.workspace_bytes = b->workspace_bytes;
    return command;
}

static AttentionKernels ask(const Binding *b, const AttentionCommand *command) {
    const AttentionCheck *check = cuda_emitter(b)->attention;
    const AttentionShape *shape = &command->shape;
    if (!check || !dtype_is_low(shape->dtype) || !shape->batch) return ATTENTION_MMA;
    return check->choose(check->user, command);
}

/* x [batch, seq, kv_heads, group, ..], of so many bytes a head: what padding's queries, which are
 * zero, see of keys that are not. */
static bool push_zero_padding(Binding *b, const AttentionSizes *s, void *x, int64_t head_bytes) {
    if (b->in_local[0].rank < 5) return true;
    int64_t heads = bind_valid(b, bind_input_type(b, 0), bind_input_sharding(b, 0), 3);
    MoveRows zeros = {.in = x,
                      .out = (char *)x + heads * head_bytes,
                      .n_parts = 1,
                      .n_rows = (int64_t)s->batch * s->seq * s->kv_heads,
                      .width = (s->group - heads) * head_bytes,
                      .out_row = s->group * head_bytes};
    return cuda_push_rows(b, &zeros);
}

static bool push_forward(Binding *b, const AttentionCommand *command, AttentionForwardArgs *args) {
    AttentionSizes *s = &args->sizes;
    AttentionKernels kernels = ask(b, command);
    if (kernels == ATTENTION_CUDNN) return cuda_push_attention(b, command);
    AttentionLaunches l = choose_launches(&command->shape, kernels);
    int64_t bytes = (int64_t)(s->head + s->values) * dtype_bytes(command->shape.dtype);
    Grid grid = cut(s, s->rows, l.tile, bytes * s->keys);
    if (l.most_blocks && grid.x > l.most_blocks) grid.x = l.most_blocks;
    return cuda_push_launch(b, l.forward, grid, l.threads, l.forward_shared, args, sizeof(*args));
}

bool cuda_bind_attention(Binding *b) {
    AttentionForwardArgs args = {
        .q = b->in[0], .k = b->in[1], .v = b->in[2], .o = b->out[0], .lse = b->out[1]};
    const AttentionSizes *s = &args.sizes;
    const bool largest = b->node->n_outputs > 2;
    args.largest = largest ? b->out[2] : NULL;
    args.raise_at = largest ? 0 : ATTENTION_RAISE_AT;
    if (!make_sizes(b, &args.sizes)) return false;
    AttentionCommand command = make_command(b, s, (AttentionCommand){.o = args.o, .lse = args.lse});
    return push_forward(b, &command, &args) &&
           push_zero_padding(b, s, b->out[0], s->values * dtype_bytes(b->in_local[0].dtype)) &&
           push_zero_padding(b, s, b->out[1], (int64_t)sizeof(float)) &&
           (!largest || push_zero_padding(b, s, b->out[2], (int64_t)sizeof(float)));
}

/* What a plan leaves for cuDNN's gradient: for all of it at once where it says so, else for parts
 * of it that fill a device, too. Too little only means that own kernels do it. */
static int64_t library_room(const Node *node, const Type *q, const Type *v) {
    bool grouped = q->rank == 5;
    AttentionShape shape = {.seq = q->dims[1],
                            .group = grouped ? q->dims[3] : 1,
                            .head = q->dims[q->rank - 1],
                            .values = v->dims[3]};
    AttentionPart all = {q->dims[0], q->dims[2]};
    if (!dtype_is_low(q->dtype) || shape.head % 8 || shape.values % 8 ||
        node_float(node, ATTR_softcap, 0) > 0 || attention_drops(node)) {
        return 0;
    }
    int64_t bytes = attention_library_bytes(&shape, all);
    bool in_parts = bytes > ATTENTION_ROOM_BYTES && !node_int(node, ATTR_room, 0);
    return in_parts ? ATTENTION_ROOM_BYTES : bytes;
}

int64_t cuda_attention_grad_workspace_bytes(const Node *node, const Type *inputs,
                                            const Type *outputs) {
    const Type *q = &inputs[0];
    (void)outputs;
    int64_t rows = padded_rows(q->dims[1] * (q->rank == 5 ? q->dims[3] : 1));
    int64_t own = 2 * (int64_t)sizeof(float) * q->dims[0] * q->dims[2] * rows;
    int64_t library = library_room(node, q, &inputs[2]);
    return own > library ? own : library;
}

/* --- the gradient --- */

/* A piece of the workspace, in whole ALIGNs. */
static int64_t piece_bytes(int64_t bytes) {
    enum { ALIGN = 256 };
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

/* The workspace of the gradient in one pass of so many batch rows: lse2 and delta, sums of dq, of
 * rows that more than one tile of keys is seen by, turns and the count of tiles taken. */
typedef struct JointWorkspace {
    int64_t statistics, sums, turns; /* bytes; statistics: each of the two */
} JointWorkspace;

static JointWorkspace joint_workspace(const AttentionShape *s, int head, int64_t batch) {
    int64_t heads = batch * s->kv_heads, padded = padded_rows(s->seq * s->group);
    int64_t rows = padded - ATTENTION_TILE * s->group;
    return (JointWorkspace){
        .statistics = piece_bytes(heads * padded * (int64_t)sizeof(float)),
        .sums = rows > 0 ? piece_bytes(heads * rows * head * (int64_t)sizeof(float)) : 0,
        .turns = piece_bytes((heads * padded / ATTENTION_WGMMA_KEYS_STEP + 1) *
                             (int64_t)sizeof(uint32_t)),
    };
}
static int64_t joint_bytes(const JointWorkspace *w) {
    return 2 * w->statistics + w->sums + w->turns;
}

/* How many batch rows one pass does at a time in that workspace; 0: it does not do it. By shapes
 * only, and by what plans leave, which follows from them. */
static int64_t joint_batch(const AttentionShape *s, int64_t workspace_bytes) {
    const WgmmaKernels *wgmma = s->backward ? find_wgmma(s) : NULL;
    bool windowed = s->window > 0 && s->window < s->seq;
    bool suits = wgmma && wgmma->joint != N_KERNELS && s->causal && !windowed &&
                 !attention_is_part(s) && !s->documents && !attention_is_uneven(s);
    int64_t batch = suits ? s->batch : 0;
    for (JointWorkspace w; batch > 0; batch--) {
        w = joint_workspace(s, wgmma->head, batch);
        if (joint_bytes(&w) <= workspace_bytes) break;
    }
    return batch;
}

bool cuda_attention_has_joint(const AttentionShape *shape, int64_t workspace_bytes) {
    return joint_batch(shape, workspace_bytes) > 0;
}

static bool push_delta(Binding *b, KernelId kernel, const AttentionBackwardArgs *args) {
    const AttentionSizes *s = &args->sizes;
    int64_t heads = (int64_t)s->batch * s->kv_heads, rows_a_block = 256 / ATTENTION_DELTA_LANES;
    Grid grid = {cuda_grid_size(heads * s->rows_padded / rows_a_block), 1, 1};
    return cuda_push_launch(b, kernel, grid, 256, 0, args, sizeof(*args));
}

static const void *further(const void *from, int64_t bytes) {
    return (const char *)from + bytes;
}

/* The gradient of batch rows `first`... of an attention of whole heads: places, and workspace. */
static AttentionBackwardArgs joint_args(const AttentionBackwardArgs *all,
                                        const AttentionShape *shape, int head, int64_t first,
                                        int64_t batch) {
    AttentionBackwardArgs args = *all;
    AttentionSizes *s = &args.sizes;
    int64_t keys = first * s->seq * s->kv_heads * s->head * 2, queries = keys * s->group;
    JointWorkspace w = joint_workspace(shape, head, batch);
    s->batch = (int32_t)batch;
    args.q = further(all->q, queries);
    args.k = further(all->k, keys);
    args.v = further(all->v, keys);
    args.o = further(all->o, queries);
    args.d_o = further(all->d_o, queries);
    args.dq = (char *)all->dq + first * s->seq * all->dq_row * 2;
    args.dk = (char *)all->dk + first * s->seq * all->dk_row * 2;
    args.dv = (char *)all->dv + first * s->seq * all->dv_row * 2;
    args.lse = all->lse + first * s->seq * s->kv_heads * s->group;
    args.delta = (float *)((char *)all->lse2 + w.statistics);
    args.dq_sums = (float *)((char *)args.delta + w.statistics);
    args.turns = (uint32_t *)((char *)args.dq_sums + w.sums);
    args.taken = args.turns + batch * s->kv_heads * s->rows_padded / ATTENTION_WGMMA_KEYS_STEP;
    return args;
}

/* In parts of so many batch rows. Tiles of 16 heads at least are launched one after the other:
 * about as many as a device runs at a time, where blocks then follow each other over a head's rows.
 */
static bool push_joint(Binding *b, const AttentionShape *shape, const AttentionBackwardArgs *all) {
    enum { LEAST = 16, THREADS = ATTENTION_JOINT_THREADS, STEP = ATTENTION_WGMMA_KEYS_STEP };
    enum { LINE = 128 };
    const WgmmaKernels *wgmma = find_wgmma(shape);
    int64_t part = joint_batch(shape, b->workspace_bytes);
    if (!part) BUG("a gradient in one pass with heads of %d", (int)shape->head);
    int keys = wgmma->head > 64 ? 1 : 2; /* tiles of keys and values that there is room for */
    int shared = (keys * ATTENTION_TILE + ATTENTION_JOINT_BUFFERS * STEP) * wgmma->head * 4 +
                 ATTENTION_TILE * STEP * 2 + ATTENTION_JOINT_BUFFERS * STEP * 8 +
                 ATTENTION_JOINT_TAKEN * 4;
    if (wgmma->head > 64) /* a tile's sums of dq besides */
        shared = (shared + LINE - 1) / LINE * LINE + STEP * wgmma->head * 4;
    for (int64_t first = 0; first < all->sizes.batch; first += part) {
        int64_t left = all->sizes.batch - first;
        AttentionBackwardArgs args =
            joint_args(all, shape, wgmma->head, first, left < part ? left : part);
        AttentionSizes *s = &args.sizes;
        int64_t heads = (int64_t)s->batch * s->kv_heads, least = heads < LEAST ? heads : LEAST;
        int64_t row_bytes = 4 * s->head + 4 * wgmma->head; /* q, do; dq in f32 */
        Grid grid = cut(s, s->keys, ATTENTION_TILE, row_bytes * s->rows);
        if (s->heads_together < least) s->heads_together = (int32_t)least;
        if (grid.x > ATTENTION_JOINT_BLOCKS) grid.x = ATTENTION_JOINT_BLOCKS;
        if (!push_delta(b, kernel_for_dtype(&DELTA, wgmma->dtype), &args) ||
            !cuda_push_launch(b, wgmma->joint, grid, THREADS, shared, &args, sizeof(args))) {
            return false;
        }
    }
    return true;
}

bool cuda_bind_attention_grad(Binding *b) {
    DType dtype = b->in_local[0].dtype;
    AttentionBackwardArgs args = {
        .q = b->in[0],
        .k = b->in[1],
        .v = b->in[2],
        .o = b->in[3],
        .lse = b->in[4],
        .d_o = b->in[5],
        .dq = b->out[0],
        .dk = b->out[1],
        .dv = b->out[2],
        .lse2 = b->workspace,
    };
    AttentionSizes *s = &args.sizes;
    if (!make_sizes(b, s)) return false;
    args.dk_row = s->kv_heads * s->head;
    args.dq_row = s->group * args.dk_row;
    args.dv_row = s->kv_heads * s->values;
    AttentionCommand command = make_command(b, s,
                                            (AttentionCommand){.o = b->in[3],
                                                               .lse = b->in[4],
                                                               .d_o = args.d_o,
                                                               .dq = args.dq,
                                                               .dk = args.dk,
                                                               .dv = args.dv});
    AttentionKernels kernels = ask(b, &command);
    if (kernels == ATTENTION_CUDNN) return cuda_push_attention(b, &command);
    if (kernels == ATTENTION_JOINT) return push_joint(b, &command.shape, &args);
    AttentionLaunches l = choose_launches(&command.shape, kernels);
    int64_t bytes = (int64_t)(s->head + s->values) * dtype_bytes(dtype);
    args.delta = args.lse2 + (int64_t)s->batch * s->kv_heads * s->rows_padded;
    if (!push_delta(b, l.delta, &args)) return false;
    Grid grid = cut(s, s->keys, l.keys_tile, bytes * s->rows);
    if (!cuda_push_launch(b, l.keys, grid, l.keys_threads, l.keys_shared, &args, sizeof(args))) {
        return false;
    }
    grid = cut(s, s->rows, l.tile, bytes * s->keys);
    return cuda_push_launch(b, l.queries, grid, l.queries_threads, l.queries_shared, &args,
                            sizeof(args));
}
