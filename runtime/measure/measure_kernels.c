#include "runtime/measure/measure_kernels.h"

#include "runtime/cpu/bind.h"
#include "runtime/cpu/vec_low.h"

#include <string.h>

enum { N_KEYS = 64, /* MEASURED_KEYS of planner/cost/measured_time.h */ N_VALUES = 64 };
enum { N_COLUMNS = 256, N_VOCAB = 512, MOST_SETS = 16, MOST_OPERANDS = 8 };

/* Operands that together are beyond the second-level cache. */
static const int64_t FOOTPRINT_FLOATS = 2 << 20;

/* What an op's operands are, a letter each: x [rows, cols] of the row's dtype, f the same in f32,
 * c [cols], r [rows], s a scalar, all f32; C [cols], y [cols, rows] and a table t [vocab, cols] of
 * the row's dtype, T the table in f32; i labels [rows]. Of states q [1, rows, keys] and v [1, rows,
 * heads, values] are of the row's dtype, d [1, rows, heads] and w [taps, heads, values] f32. */
typedef struct KernelCase {
    OpKind op;
    bool only_f32;
    const char *operands, *results, *attrs;
} KernelCase;

static const KernelCase CASES[] = {
    {OP_ADD, false, "xx", "x", ""},
    {OP_DIV, false, "xx", "x", ""},
    {OP_SQRT, false, "x", "x", ""},
    {OP_EXP, false, "x", "x", ""},
    {OP_LOG, false, "x", "x", ""},
    {OP_TANH, false, "x", "x", ""},
    {OP_SIGMOID, false, "x", "x", ""},
    {OP_GELU, false, "x", "x", ""},
    {OP_GELU_GRAD, false, "xx", "x", ""},
    {OP_GELU_ERF, false, "x", "x", ""},
    {OP_GELU_ERF_GRAD, false, "xx", "x", ""},
    {OP_SILU, false, "x", "x", ""},
    {OP_SILU_GRAD, false, "xx", "x", ""},
    {OP_DROPOUT, false, "x", "x", "{p=0.1, key=0}"},
    {OP_ACCUMULATE, true, "ff", "f", ""},
    {OP_REDUCE_SUM, false, "x", "C", "{over=[rows]}"},
    {OP_TRANSPOSE, false, "x", "y", "{to=[cols, rows]}"},
    {OP_LAYERNORM, false, "xcc", "xrr", "{axis=cols, eps=1e-05}"},
    {OP_LAYERNORM_GRAD, false, "xcrrx", "xcc", "{axis=cols}"},
    {OP_RMSNORM, false, "xc", "xr", "{axis=cols, eps=1e-05}"},
    {OP_RMSNORM_GRAD, false, "xcrx", "xc", "{axis=cols}"},
    {OP_ROTARY, false, "x", "x", "{seq=rows, head=cols, base=10000, direction=1}"},
    {OP_EMBEDDING, false, "it", "x", "{axis=vocab}"},
    {OP_EMBEDDING_GRAD, false, "ixT", "T", "{axis=vocab}"},
    {OP_LINEAR_ATTENTION, false, "qqvd", "v", "{seq=rows, head=keys, scale=1}"},
    {OP_LINEAR_ATTENTION_GRAD, false, "qqvvd", "qqvd", "{seq=rows, head=keys, scale=1}"},
    {OP_CONVOLVE, false, "vw", "v", "{seq=rows, axis=taps}"},
    {OP_CONVOLVE_GRAD, false, "vwv", "vw", "{seq=rows, axis=taps}"},
    {OP_CROSS_ENTROPY_GRAD, false, "xirr", "x", "{axis=cols}"},
    {OP_LOGSUMEXP, false, "x", "r", "{axis=cols}"},
    {OP_PICK, false, "xi", "r", "{axis=cols}"},
    {OP_SUMSQ, true, "f", "s", ""},
    {OP_ADAMW, true, "ffffsss", "fff", "{eps=1e-08, beta1=0.9, beta2=0.95, weight_decay=0.1}"},
    {OP_SGD, true, "fffss", "ff", "{momentum=0.9, weight_decay=0.1}"},
    {OP_LION, true, "fffss", "ff", "{beta1=0.9, beta2=0.99, weight_decay=0.1}"},
    {OP_LAMB_MOMENTS, true, "fffssf", "ffss",
     "{eps=1e-06, beta1=0.9, beta2=0.999, weight_decay=0.01}"},
    {OP_LAMB, true, "fffsssss", "f", "{eps=1e-06, beta1=0.9, beta2=0.999, weight_decay=0.01}"},
    {OP_MUON_MOMENTUM, true, "fsf", "ff", "{momentum=0.95}"},
    {OP_MUON, true, "ffss", "f", "{scale=6.4, weight_decay=0.1}"},
};
enum { N_CASES = sizeof(CASES) / sizeof(CASES[0]) };

struct KernelSets {
    int count, next;
    CpuCall calls[MOST_SETS];
    CpuContext context;
    StepState state;
};

void measure_list_kernels(const MeasureList *list, int64_t threads, bool bf16) {
    static const int64_t SIZES[] = {256, 8192, 32768, 131072, 1 << 20, 1 << 22};
    static const int64_t QUICK_SIZES[] = {256, 16384, 262144};
    int n_sizes = list->quick || list->tiny ? 3 : 6;
    for (int i = 0; i < N_CASES; i++) {
        if (bf16 && CASES[i].only_f32) continue;
        for (int s = 0; s < n_sizes; s++) {
            ProfileKernel row = {.op = CASES[i].op, .bf16 = bf16, .threads = threads};
            row.elements = n_sizes == 3 ? QUICK_SIZES[s] : SIZES[s];
            ARENA_PUSH(list->arena, list->profile->kernels, list->profile->n_kernels,
                       list->profile->kernels_capacity, row);
        }
    }
}

static const KernelCase *find_case(OpKind op) {
    for (int i = 0; i < N_CASES; i++) {
        if (CASES[i].op == op) return &CASES[i];
    }
    BUG("%s is not measured", OPS[op].name);
}

/* "f32[rows=64, cols=256]" */
static const char *type_text(const ProfileKernel *row, char letter, Arena *arena) {
    const char *dtype = strchr("xtyCqv", letter) && row->bf16 ? "bf16"
                        : letter == 'i'                       ? "i32"
                                                              : "f32";
    long long rows = (long long)(row->elements / N_COLUMNS);
    switch (letter) {
    case 'x':
    case 'f': return arena_printf(arena, "%s[rows=%lld, cols=%d]", dtype, rows, N_COLUMNS);
    case 'y': return arena_printf(arena, "%s[cols=%d, rows=%lld]", dtype, N_COLUMNS, rows);
    case 't':
    case 'T': return arena_printf(arena, "%s[vocab=%d, cols=%d]", dtype, N_VOCAB, N_COLUMNS);
    case 'c':
    case 'C': return arena_printf(arena, "%s[cols=%d]", dtype, N_COLUMNS);
    case 'q': return arena_printf(arena, "%s[batch=1, rows=%lld, keys=%d]", dtype, rows, N_KEYS);
    case 'v':
        return arena_printf(arena, "%s[batch=1, rows=%lld, heads=%d, values=%d]", dtype, rows,
                            N_COLUMNS / N_VALUES, N_VALUES);
    case 'd':
        return arena_printf(arena, "%s[batch=1, rows=%lld, heads=%d]", dtype, rows,
                            N_COLUMNS / N_VALUES);
    case 'w':
        return arena_printf(arena, "%s[taps=4, heads=%d, values=%d]", dtype, N_COLUMNS / N_VALUES,
                            N_VALUES);
    case 's': return "f32[]";
    default: return arena_printf(arena, "%s[rows=%lld]", dtype, rows);
    }
}

/* The graph as its parser takes it: a leaf per operand, then the node. */
static const char *graph_text(const ProfileKernel *row, const KernelCase *of, Arena *arena) {
    const char *text = "graph \"kernel\" mesh(t=1, d=1, p=1) {\nforward:\n", *inputs = "";
    int n = 0, n_results = (int)strlen(of->results);
    for (const char *c = of->operands; *c; c++, n++) {
        text = arena_printf(arena, "%s  %%%d = input() {name=\"%d\"} : %s\n", text, n, n,
                            type_text(row, *c, arena));
        inputs = arena_printf(arena, "%s%s%%%d", inputs, n ? ", " : "", n);
    }
    const char *count = n_results > 1 ? arena_printf(arena, ":%d", n_results) : "";
    const char *gap = of->attrs[0] ? " " : "";
    text = arena_printf(arena, "%s  %%%d%s = %s(%s)%s%s : ", text, n, count, OPS[of->op].name,
                        inputs, gap, of->attrs);
    for (const char *c = of->results; *c; c++) {
        text = arena_printf(arena, "%s%s%s", text, c > of->results ? ", " : "",
                            type_text(row, *c, arena));
    }
    return arena_printf(arena, "%s\n}\n", text);
}

static int64_t align_floats(int64_t bytes) {
    return (bytes + 63) / 64 * 16;
}

/* An operand's numbers: of everyday size, and labels that exist. */
static void fill(void *at, const Type *type) {
    const bool is_float = dtype_is_float(type->dtype);
    const int64_t count = type_elements(type), period = is_float ? 97 : N_COLUMNS;
    const int64_t bytes = dtype_bytes(type->dtype);
    for (int64_t i = 0; i < count && i < period; i++) {
        if (is_float)
            vec_put(at, type->dtype, i, type->rank == 0 ? 1 : 0.01f * (float)(i + 1));
        else
            ((int32_t *)at)[i] = (int32_t)(i * 7919 % N_COLUMNS);
    }
    for (int64_t done = period; done < count; done *= 2) { /* whole periods */
        int64_t n = count - done < done ? count - done : done;
        memcpy((char *)at + done * bytes, at, (size_t)(n * bytes));
    }
}

static int64_t value_floats(const Type *type) {
    return align_floats(type_bytes(type));
}

static int64_t set_floats(const Node *node) {
    int64_t floats = 0;
    Type inputs[MOST_OPERANDS];
    for (int i = 0; i < node->n_inputs; i++) {
        inputs[i] = *value_type(node->inputs[i]);
        floats += value_floats(&inputs[i]);
    }
    for (int o = 0; o < node->n_outputs; o++) {
        if (op_alias(node, o) < 0) floats += value_floats(&node->types[o]);
    }
    return floats + align_floats(op_workspace_bytes(node, inputs));
}

static bool bind_set(KernelSets *sets, const Graph *graph, Node *node, float *memory, Arena *arena,
                     Diag *diag) {
    Binding b = {.graph = graph,
                 .node = node,
                 .arena = arena,
                 .diag = diag,
                 .block = NO_BLOCK,
                 .n_micro = 1,
                 .in = ARENA_ARRAY(arena, void *, node->n_inputs),
                 .in_local = ARENA_ARRAY(arena, Type, node->n_inputs),
                 .backend = &sets->context};
    for (int i = 0; i < node->n_inputs; i++) {
        b.in_local[i] = *value_type(node->inputs[i]);
        b.in[i] = memory;
        fill(b.in[i], &b.in_local[i]);
        memory += value_floats(&b.in_local[i]);
    }
    for (int o = 0; o < node->n_outputs; o++) {
        int alias = op_alias(node, o);
        b.out_local[o] = node->types[o];
        b.out[o] = alias < 0 ? memory : b.in[alias];
        if (alias >= 0) continue;
        fill(b.out[o], &b.out_local[o]);
        memory += value_floats(&b.out_local[o]);
    }
    b.workspace = memory;
    b.workspace_bytes = op_workspace_bytes(node, b.in_local);
    return cpu_bind(&b, &sets->calls[sets->count++]);
}

int64_t measure_kernel_floats(const ProfileKernel *row) {
    return 9 * row->elements + 4 * N_VOCAB * N_COLUMNS;
}

KernelSets *measure_kernel_prepare(const ProfileKernel *row, float *memory, int64_t floats,
                                   Arena *arena, Diag *diag) {
    const char *text = graph_text(row, find_case(row->op), arena);
    int line = 1;
    Graph *graph = graph_parse(arena, OPS[row->op].name, &text, &line, diag);
    if (!graph) return NULL;
    Node *node = graph->nodes[graph->n_nodes - 1];
    int64_t size = set_floats(node), n_sets = FOOTPRINT_FLOATS / size + 1;
    if (size > floats) BUG("%s needs %lld floats", OPS[row->op].name, (long long)size);
    if (n_sets > floats / size) n_sets = floats / size;
    if (n_sets > MOST_SETS) n_sets = MOST_SETS;
    KernelSets *sets = ARENA_NEW(arena, KernelSets);
    sets->state = (StepState){1, 1, 1, 1};
    sets->context.state = &sets->state;
    for (int64_t i = 0; i < n_sets; i++) {
        if (!bind_set(sets, graph, node, memory + i * size, arena, diag)) return NULL;
    }
    return sets;
}

bool measure_kernel_run(const void *sets) {
    KernelSets *of = (KernelSets *)sets;
    CpuCall *call = &of->calls[of->next];
    of->next = of->next + 1 < of->count ? of->next + 1 : 0;
    return call->run(call->args);
}
