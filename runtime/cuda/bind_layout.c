/* Layout changes and sums: transpose, reduce_sum, slice, add_n, const. */
#include "runtime/cuda/bind.h"
#include "runtime/cuda/kernels/args.h"
#include "runtime/cuda/move.h"
#include "runtime/cuda/workspace.h"

/* A permutation after merging: out's dimensions, outermost first, with x's strides. Elements. */
typedef struct Permutation {
    const char *x;
    char *out;
    int n_dims, element_bytes;
    int64_t total, dims[MAX_RANK], stride[MAX_RANK];
} Permutation;

static Permutation make_permutation(const Binding *b) {
    const Type *in = &b->in_local[0], *out = &b->out_local[0];
    Permutation p = {.x = b->in[0],
                     .out = b->out[0],
                     .element_bytes = dtype_bytes(in->dtype),
                     .total = type_elements(in)};
    for (int i = 0; i < out->rank; i++) {
        int64_t size = out->dims[i], stride = bind_stride(in, type_find_axis(in, out->axes[i]));
        if (size == 1) continue;
        if (p.n_dims && p.stride[p.n_dims - 1] == stride * size) {
            p.dims[p.n_dims - 1] *= size;
            p.stride[p.n_dims - 1] = stride;
        } else {
            p.dims[p.n_dims] = size;
            p.stride[p.n_dims++] = stride;
        }
    }
    return p;
}

/* Out's last dimension is contiguous in x: rows are copied, in the widest units. */
static bool push_row_copies(Binding *b, const Permutation *p) {
    static const KernelId KERNELS_BY_UNIT[] = {KERNEL_transpose_copy_2, KERNEL_transpose_copy_4,
                                               KERNEL_transpose_copy_8, KERNEL_transpose_copy_16};
    int last = p->n_dims - 1;
    int64_t row_bytes = p->dims[last] * p->element_bytes;
    int unit = move_unit(&row_bytes, 1), per_unit = unit / p->element_bytes;
    int64_t count = p->total / per_unit;
    if (count >= MOVE_MAX_COUNT) return bind_fail(b, "is too large");
    TransposeCopyArgs args = {.x = p->x, .out = p->out, .count = (uint32_t)count};
    index_map_add(&args.from, p->dims[last] / per_unit, 1);
    for (int d = last - 1; d >= 0; d--) {
        index_map_add(&args.from, p->dims[d], p->stride[d] / per_unit);
    }
    return cuda_push_launch(b, KERNELS_BY_UNIT[move_unit_log(unit)],
                            (Grid){cuda_blocks(count, COPY_THREADS), 1, 1}, COPY_THREADS, 0, &args,
                            sizeof(args));
}

/* X's contiguous dimension is `along` in out: tiles of it and of out's last dimension. */
static bool push_tiles(Binding *b, const Permutation *p, int along) {
    int last = p->n_dims - 1;
    int64_t rows = p->dims[along], columns = p->dims[last], out_stride = 1, matrices = 1;
    bool pairs = p->element_bytes == 2 && rows % 2 == 0 && columns % 2 == 0;
    int tile = pairs ? TRANSPOSE_PAIR_TILE : TRANSPOSE_TILE;
    int64_t row_tiles = (rows + tile - 1) / tile, column_tiles = (columns + tile - 1) / tile;
    for (int d = 0; d < last; d++) matrices *= d == along ? 1 : p->dims[d];
    int64_t blocks = matrices * row_tiles * column_tiles;
    if (blocks >= MOVE_MAX_COUNT) return bind_fail(b, "is too large");
    TransposeTileArgs args = {.x = p->x,
                              .out = p->out,
                              .rows = rows,
                              .columns = columns,
                              .x_stride = p->stride[last],
                              .row_tiles = fast_divisor(row_tiles),
                              .column_tiles = fast_divisor(column_tiles)};
    for (int d = last; d >= 0; d--) {
        if (d == along) args.out_stride = out_stride;
        if (d != along && d != last) {
            index_map_add(&args.x_at, p->dims[d], p->stride[d]);
            index_map_add(&args.out_at, p->dims[d], out_stride);
        }
        out_stride *= p->dims[d];
    }
    KernelId kernel = p->element_bytes == 4 ? KERNEL_transpose_tile_4
                      : pairs               ? KERNEL_transpose_tile_2_pairs
                                            : KERNEL_transpose_tile_2;
    return cuda_push_launch(b, kernel, (Grid){(uint32_t)blocks, 1, 1}, TRANSPOSE_THREADS, 0, &args,
                            sizeof(args));
}

bool cuda_bind_transpose(Binding *b) {
    Permutation p = make_permutation(b);
    int along = p.n_dims - 1;
    if (p.n_dims < 2) return cuda_push_copy(b, p.out, p.x, p.total * p.element_bytes);
    while (p.stride[along] != 1) along--;
    return along == p.n_dims - 1 ? push_row_copies(b, &p) : push_tiles(b, &p, along);
}

/* How a sum runs: its shape after merging, and how it is cut up. */
typedef struct SumPlan {
    bool last_reduced;
    bool fits; /* in the numbers that kernels count with; else nothing below is filled in */
    ReduceArgs args;
    int64_t n_rows, n_chunks;
    Grid grid;
} SumPlan;

/* Merges neighbours that are both summed or both kept; returns how many remain. */
static int merge_dims(const Node *node, const Type *in, int64_t *dims, bool *summed) {
    int n = 0;
    for (int i = 0; i < in->rank; i++) {
        bool sum = node_over(node, ATTR_over, in->axes[i]);
        if (in->dims[i] == 1) continue;
        if (n && summed[n - 1] == sum) {
            dims[n - 1] *= in->dims[i];
        } else {
            dims[n] = in->dims[i];
            summed[n++] = sum;
        }
    }
    if (n == 0) { /* one element: a kept dimension */
        dims[0] = 1;
        summed[n++] = false;
    }
    return n;
}

/* At least `least` of `length` in each chunk, no more chunks than make `enough` blocks. */
static int64_t choose_chunks(int64_t blocks, int64_t enough, int64_t length, int64_t least) {
    enum { MOST_CHUNKS = 256 };
    int64_t chunks = (enough + blocks - 1) / blocks;
    if (chunks > length / least) chunks = length / least;
    if (chunks > MOST_CHUNKS) chunks = MOST_CHUNKS;
    return chunks < 1 ? 1 : chunks;
}

/* About four blocks for each of an H200's 132 processors, where the sum is long enough; the same on
 * all devices, so that all give the same bits. */
enum { ENOUGH_BLOCKS = 512, LEAST_RUNS = 64, LEAST_VECTORS = 4096, WARP_VECTORS = 1024 };

/* Where rows and runs begin: all dimensions but the last of n. */
static void map_sum(const int64_t *dims, const bool *summed, int n, ReduceArgs *args) {
    int64_t stride = dims[n - 1];
    for (int d = n - 2; d >= 0; d--) {
        index_map_add(summed[d] ? &args->run_at : &args->row_at, dims[d], stride);
        stride *= dims[d];
    }
}

static SumPlan plan_sum(const Node *node, const Type *in) {
    SumPlan p = {.n_rows = 1};
    ReduceArgs *args = &p.args;
    int64_t dims[MAX_RANK + 1], n_runs = 1, per_vector = 16 / dtype_bytes(in->dtype);
    bool summed[MAX_RANK + 1];
    int n = merge_dims(node, in, dims, summed);
    int64_t width = dims[n - 1];
    p.last_reduced = summed[n - 1];
    for (int d = n - 2; d >= 0; d--) *(summed[d] ? &n_runs : &p.n_rows) *= dims[d];
    args->vector = width % per_vector == 0;
    if (!args->vector) per_vector = 1;
    int64_t parts, blocks; /* tiles of a row of columns, or vectors of a run */
    if (p.last_reduced) {
        int64_t vectors = n_runs * width / per_vector;
        parts = width / per_vector;
        args->n_outputs = p.n_rows;
        args->block_each = vectors > WARP_VECTORS;
        blocks = args->block_each ? p.n_rows : (p.n_rows + 7) / 8;
        p.n_chunks =
            args->block_each ? choose_chunks(blocks, ENOUGH_BLOCKS, vectors, LEAST_VECTORS) : 1;
    } else {
        parts = (width + 32 * per_vector - 1) / (32 * per_vector);
        args->n_outputs = p.n_rows * width;
        blocks = p.n_rows * parts;
        p.n_chunks = choose_chunks(blocks, ENOUGH_BLOCKS, n_runs, LEAST_RUNS);
    }
    p.fits = p.n_rows < MOVE_MAX_COUNT && n_runs < MOVE_MAX_COUNT && blocks < MOVE_MAX_COUNT &&
             (p.last_reduced ? n_runs * parts : width) < MOVE_MAX_COUNT;
    if (!p.fits) return p;
    map_sum(dims, summed, n, args);
    args->width = (uint32_t)width;
    args->n_runs = (uint32_t)n_runs;
    args->divisor = fast_divisor(parts);
    args->n_chunks = (uint32_t)p.n_chunks;
    p.grid = (Grid){(uint32_t)blocks, (uint32_t)p.n_chunks, 1};
    return p;
}

int64_t cuda_reduce_sum_workspace_bytes(const Node *node, const Type *inputs, const Type *outputs) {
    (void)outputs;
    SumPlan p = plan_sum(node, &inputs[0]);
    return p.fits && p.n_chunks > 1 ? p.n_chunks * p.args.n_outputs * (int64_t)sizeof(float) : 0;
}

bool cuda_bind_reduce_sum(Binding *b) {
    static const KernelsByDtype ROWS = KERNELS_BY_DTYPE(reduce_rows);
    static const KernelsByDtype COLUMNS = KERNELS_BY_DTYPE(reduce_columns);
    SumPlan p = plan_sum(b->node, &b->in_local[0]);
    DType out_dtype = b->out_local[0].dtype;
    if (!p.fits) return bind_fail(b, "is too large");
    KernelId kernel = kernel_for_dtype(p.last_reduced ? &ROWS : &COLUMNS, b->in_local[0].dtype);
    ReduceFinishArgs finish = {.partial = b->workspace,
                               .out = b->out[0],
                               .n_outputs = p.args.n_outputs,
                               .n_chunks = p.args.n_chunks,
                               .out_dtype = (int32_t)out_dtype};
    bool chunked = p.n_chunks > 1;
    if (chunked && b->workspace_bytes < p.n_chunks * p.args.n_outputs * (int64_t)sizeof(float)) {
        return bind_fail(b, "has too little workspace in this plan");
    }
    p.args.x = b->in[0];
    p.args.out = chunked ? b->workspace : b->out[0];
    p.args.out_dtype = (int32_t)(chunked ? DTYPE_F32 : out_dtype);
    bool pushed = cuda_push_launch(b, kernel, p.grid, REDUCE_THREADS, 0, &p.args, sizeof(p.args));
    if (!pushed || !chunked) return pushed;
    return cuda_push_launch(b, KERNEL_reduce_finish,
                            (Grid){cuda_blocks(p.args.n_outputs, 32), 1, 1}, REDUCE_THREADS, 0,
                            &finish, sizeof(finish));
}

bool cuda_bind_slice(Binding *b) {
    const Type *in = &b->in_local[0], *out = &b->out_local[0];
    int at = type_find_axis(in, node_axis(b->node, ATTR_axis));
    if (at < 0) return bind_fail(b, "names an axis that the operand does not have");
    int64_t inner = bind_stride(in, at) * dtype_bytes(in->dtype);
    SliceRun runs[2];
    int n_runs = bind_slice_runs(b, at, runs);
    for (int r = 0; r < n_runs; r++) { /* one of several is whole, the last takes the padding */
        int64_t width = r + 1 < n_runs ? runs[r].count : out->dims[at] - runs[r].to;
        MoveRows move = {.in = (const char *)b->in[0] + runs[r].from * inner,
                         .out = (char *)b->out[0] + runs[r].to * inner,
                         .n_parts = 1,
                         .n_rows = type_elements(in) / (bind_stride(in, at) * in->dims[at]),
                         .width = width * inner,
                         .limit = runs[r].count * inner,
                         .in_row = in->dims[at] * inner,
                         .out_row = out->dims[at] * inner};
        if (!cuda_push_rows(b, &move)) return false;
    }
    return true;
}

/* Operands that do not fit into one launch follow in others, which add to the result so far. */
bool cuda_bind_add_n(Binding *b) {
    enum { FEW_ELEMENTS = 64, MANY_OPERANDS = 8 };
    static const KernelsByDtype VECTORS = KERNELS_BY_DTYPE(add_n);
    static const KernelsByDtype SCALARS = KERNELS_BY_DTYPE(add_n_scalars);
    DType dtype = b->out_local[0].dtype;
    int n_inputs = b->node->n_inputs;
    AddNArgs args = {.out = b->out[0], .n = type_elements(&b->out_local[0]), .vector = true};
    int64_t per_vector = 16 / dtype_bytes(dtype), n_vectors = args.n / per_vector;
    bool scalars = args.n <= FEW_ELEMENTS && n_inputs > MANY_OPERANDS;
    int64_t threads = n_vectors + args.n % per_vector;
    uint32_t blocks = scalars ? (uint32_t)args.n : cuda_blocks(threads, COPY_THREADS);
    KernelId kernel = kernel_for_dtype(scalars ? &SCALARS : &VECTORS, dtype);
    for (int k = 0; k < n_inputs;) {
        args.n_operands = 0;
        if (k > 0) args.in[args.n_operands++] = b->out[0];
        while (k < n_inputs && args.n_operands < ADD_N_OPERANDS) {
            args.in[args.n_operands++] = b->in[k++];
        }
        if (!cuda_push_launch(b, kernel, (Grid){blocks, 1, 1}, COPY_THREADS, 0, &args,
                              sizeof(args))) {
            return false;
        }
    }
    return true;
}

bool cuda_bind_label_share(Binding *b) {
    CopyScalarArgs args = {
        .state = cuda_emitter(b)->state, .which = SCALAR_LABEL_SHARE, .to = b->out[0]};
    return cuda_push_launch(b, KERNEL_copy_scalar, (Grid){1, 1, 1}, 1, 0, &args, sizeof(args));
}

bool cuda_bind_const(Binding *b) {
    SetScalarArgs args = {.out = b->out[0],
                          .value = (float)node_float(b->node, ATTR_value, 0),
                          .dtype = (int32_t)b->out_local[0].dtype};
    return cuda_push_launch(b, KERNEL_set_scalar, (Grid){1, 1, 1}, 1, 0, &args, sizeof(args));
}
