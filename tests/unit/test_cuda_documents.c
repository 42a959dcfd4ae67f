/* CUDA kernels of attention and its gradient within documents, causal and not, through their
 * binders and the emulator, against float64.
 *
 * Would catch: a document that another's row sees, before it or behind it, a tile of rows or keys
 * left out or gone through in vain, ends asked for of another batch row or of another part of the
 * queries, places followed that lie nowhere, kernels that do not know of documents' ends where
 * there are some.
 */
#include "runtime/cuda/kernels/args.h"
#include "tests/support/gpu_run.h"
#include "tests/unit/cuda_check.h"

#include <math.h>

typedef struct Shape {
    int batch, seq, kv_heads, group, head;
    bool causal;
    DType dtype;
    int window; /* 0: none */
    float softcap;
    int values; /* numbers of a head of v and o; 0: head */
} Shape;

static AttentionKernels use_wgmma(void *user, const AttentionCommand *attention) {
    (void)user, (void)attention;
    return ATTENTION_WGMMA;
}

static const AttentionCheck USE_WGMMA = {.choose = use_wgmma};
/* On mma.sync, or without tensor cores; on wgmma. */
enum { ON_MMA, ON_WGMMA, N_SETS };
static const CudaRunHooks HOOKS[N_SETS] = {{0}, {.attention = &USE_WGMMA}};
static const char *const WITH[N_SETS] = {"", ", on wgmma"};

static bool has_set(int set, const Shape *s) {
    AttentionShape shape = {.dtype = s->dtype,
                            .causal = s->causal,
                            .head = s->head,
                            .scale = 1,
                            .softcap = s->softcap,
                            .values = s->values,
                            .documents = true};
    return set == ON_MMA || cuda_attention_has_wgmma(&shape);
}

/* Where documents begin and end in tokens, of which one of `length` in the mean is a separator: it
 * ends one, or, where attention is not causal, is apart. */
static const char *find_documents(Arena *arena, const Shape *s, int length, const char *own) {
    const char *type = arena_printf(arena, "i32[batch=%d, seq=%d]", s->batch, s->seq);
    const char *apart = s->causal ? "" : ", apart=1";
    return arena_printf(arena,
                        "%%4 = input() {name=\"#%d\"} : %s\n"
                        "%%5:2 = documents(%%4) {axis=seq, separator=0%s} : %s, %s\n"
                        "%%6 = document_ends(%%4) {axis=seq, separator=0%s} : %s\n"
                        "%%7 = input() {name=\"#9\"} : %s\n",
                        length, type, apart, own, own, apart, own, type);
}

enum { ATTENTION = 8, GRADIENT };

/* Attention and its gradient, nodes 8 and 9, within what `places` says of documents: "%5, %6";
 * queries "/c": a mesh divides them. */
static const char *make_documents(Arena *arena, const Shape *s, int length, const char *queries,
                                  const char *places) {
    const char *dtype = dtype_name(s->dtype);
    const char *rows = arena_printf(arena, "[batch=%d, seq=%d%s, kv=%d, group=%d", s->batch, s->seq,
                                    queries, s->kv_heads, s->group);
    const char *q = arena_printf(arena, "%s%s, head=%d]", dtype, rows, s->head);
    const char *k = arena_printf(arena, "%s[batch=%d, seq=%d, kv=%d, head=%d]", dtype, s->batch,
                                 s->seq, s->kv_heads, s->head);
    const char *value = s->values ? arena_printf(arena, "value=%d", s->values)
                                  : arena_printf(arena, "head=%d", s->head);
    const char *o = arena_printf(arena, "%s%s, %s]", dtype, rows, value);
    const char *v = arena_printf(arena, "%s[batch=%d, seq=%d, kv=%d, %s]", dtype, s->batch, s->seq,
                                 s->kv_heads, value);
    const char *const types[4] = {q, k, v, o};
    const char *own = arena_printf(arena, "i32[batch=%d, seq=%d%s]", s->batch, s->seq, queries);
    const char *attrs = arena_printf(
        arena, "{seq=seq, head=head, causal=%d, %sscale=%.9g%s}", s->causal,
        s->window ? arena_printf(arena, "window=%d, ", s->window) : "", 1 / sqrt(s->head),
        s->softcap > 0 ? arena_printf(arena, ", softcap=%.9g", (double)s->softcap) : "");
    const char *sum = *queries ? "~sum(c)" : "";
    const char *leaves = "";
    for (int i = 0; i < 4; i++) {
        leaves = arena_printf(arena, "%s%%%d = param() {name=\"\", init=\"zeros\", decay=1} : %s\n",
                              leaves, i, types[i]);
    }
    return arena_printf(
        arena,
        "%s%s%%8:2 = attention(%%0, %%1, %%2, %s) %s : %s, f32%s]\n"
        "%%9:3 = attention_grad(%%0, %%1, %%2, %%8, %%8.1, %%3, %s) %s : %s, %s%s, %s%s\n",
        leaves, find_documents(arena, s, length, own), places, attrs, o, rows, places, attrs, q, k,
        sum, v, sum);
}

static const char *places_of(const Shape *s) {
    return s->causal ? "%5" : "%5, %6";
}

/* Documents that begin and end within tiles, and are longer than tiles; several of a tile, most of
 * one position; each set of kernels, groups, windows, soft caps, two chunks of the queries. */
static void test_documents(int set) {
    static const struct {
        const char *mesh;
        Shape shape;
        int length;
        double tolerance;
    } CASES[] = {
        {"t=1, c=3, d=1, p=1", {2, 78, 1, 2, 12, true, DTYPE_F32, 0, 0, 0}, 15, 1e-5},
        {"t=1, d=1, p=1", {2, 330, 1, 1, 64, true, DTYPE_BF16, 0, 0, 0}, 60, 4e-2},
        {"t=1, c=2, d=1, p=1", {1, 276, 1, 1, 128, true, DTYPE_BF16, 90, 0, 0}, 100, 4e-2},
        {"t=1, d=1, p=1", {1, 90, 1, 3, 32, true, DTYPE_F16, 0, 2, 0}, 7, 8e-3},
        {"t=1, d=1, p=1", {1, 140, 1, 1, 40, true, DTYPE_BF16, 0, 0, 16}, 30, 4e-2},
        {"t=1, c=3, d=1, p=1", {2, 78, 1, 2, 12, false, DTYPE_F32, 0, 0, 0}, 15, 1e-5},
        {"t=1, d=1, p=1", {1, 70, 2, 1, 13, false, DTYPE_F32, 9, 0, 20}, 8, 1e-5},
        {"t=1, d=1, p=1", {2, 330, 1, 1, 64, false, DTYPE_BF16, 0, 0, 0}, 60, 4e-2},
        {"t=1, c=2, d=1, p=1", {1, 276, 1, 1, 128, false, DTYPE_BF16, 90, 0, 0}, 100, 4e-2},
        {"t=1, d=1, p=1", {1, 90, 1, 3, 32, false, DTYPE_F16, 0, 2, 0}, 7, 8e-3},
        {"t=1, d=1, p=1", {1, 140, 1, 1, 40, false, DTYPE_BF16, 0, 0, 16}, 30, 4e-2},
        {"t=1, c=2, d=1, p=1", {1, 140, 1, 1, 256, false, DTYPE_F16, 0, 0, 0}, 40, 8e-3},
        {"t=1, d=1, p=1", {2, 33, 1, 2, 64, false, DTYPE_BF16, 0, 0, 0}, 2, 4e-2},
    };
    for (int i = set % VARIANT_STEP; i < (int)(sizeof(CASES) / sizeof(*CASES)); i += VARIANT_STEP) {
        const Shape *s = &CASES[i].shape;
        bool divided = strstr(CASES[i].mesh, "c=") != NULL;
        if (!has_set(set, s)) continue;
        Arena *arena = arena_create();
        check_begin(arena_printf(arena, "within documents%s, %s, seq %d, head %d, %s%s",
                                 s->causal ? "" : ", not causal", CASES[i].mesh, s->seq, s->head,
                                 dtype_name(s->dtype), WITH[set]));
        cuda_check(&(CudaCase){
            .mesh = CASES[i].mesh,
            .hooks = &HOOKS[set],
            .nodes = make_documents(arena, s, CASES[i].length, divided ? "/c" : "", places_of(s)),
            .tolerance = CASES[i].tolerance});
        check_end();
        arena_destroy(arena);
    }
}

/* Runs what `change` has made of the leaves' numbers; `look` looks at the results. */
static void run_changed(const char *nodes, int set, void (*change)(const CudaFixture *f),
                        void (*look)(const CudaKernelRun *run, const Graph *graph)) {
    CudaFixture f;
    CudaKernelRun run;
    bool bound = cuda_fixture_create(&f, NULL, nodes);
    if (bound) {
        change(&f);
        reference_run(f.reference);
        bound = cuda_kernel_run_create(&run, f.reference, -1, &HOOKS[set], f.diag);
        CHECK(bound, "%s", diag_text(f.diag));
    }
    if (bound) {
        CHECK(cuda_kernel_run_step(&run), "%s", cuda_kernel_run_reason(&run));
        look(&run, f.graph);
        cuda_kernel_run_destroy(&run);
    }
    cuda_fixture_destroy(&f);
}

static double *leaf_values(const CudaFixture *f, int n, int64_t *out_each) {
    const Type *type = &f->graph->nodes[n]->types[0];
    *out_each = type_elements(type) / type->dims[1];
    return reference_value(f->reference, node_value(f->graph->nodes[n], 0));
}

static void look_at_rows(const CudaKernelRun *run, const Node *node, int o, int64_t first,
                         int64_t end) {
    const Type *type = &node->types[o];
    const void *got = run->base.ranks[0].buffers[node->id * MAX_OUTPUTS + o];
    int64_t each = type_elements(type) / type->dims[1], i = first * each;
    while (i < end * each && isfinite((double)vec_get(got, type->dtype, i))) i++;
    CHECK(i == end * each, "%s: row %d of result %d is no number", OPS[node->op].name,
          (int)(i / each), o);
}

/* Numbers that no documents begin or end at: within bounds all the same, and every row sees a key.
 */
static void set_wrong(const CudaFixture *f) {
    int64_t each;
    double *starts = leaf_values(f, 4, &each), *ends = leaf_values(f, 7, &each);
    for (int k = 0; k < f->graph->nodes[4]->types[0].dims[1]; k++) {
        const double values[4] = {INT32_MIN, INT32_MAX, 149 - k, k % 7};
        starts[k] = values[k % 4];
        ends[k] = values[(k / 2 + 1) % 4];
    }
}

static void look_at_all(const CudaKernelRun *run, const Graph *graph) {
    for (int n = ATTENTION; n <= GRADIENT; n++) {
        for (int o = 0; o < graph->nodes[n]->n_outputs; o++) {
            look_at_rows(run, graph->nodes[n], o, 0, graph->nodes[n]->types[o].dims[1]);
        }
    }
}

/* Tokens, and some numbers far off, in the place of what is found in them. */
static void test_wrong_documents(int set) {
    static const Shape SHAPES[] = {{1, 150, 1, 2, 64, true, DTYPE_BF16, 0, 0, 0},
                                   {1, 70, 1, 2, 12, true, DTYPE_F32, 0, 0, 0},
                                   {1, 150, 1, 2, 64, false, DTYPE_BF16, 0, 0, 0},
                                   {1, 70, 1, 2, 12, false, DTYPE_F32, 0, 0, 0}};
    for (size_t i = 0; i < sizeof(SHAPES) / sizeof(*SHAPES); i++) {
        const Shape *s = &SHAPES[i];
        if (!has_set(set, s)) continue;
        Arena *arena = arena_create();
        check_begin(arena_printf(arena, "wrong places of documents%s, %s%s",
                                 s->causal ? "" : ", not causal", dtype_name(s->dtype), WITH[set]));
        run_changed(make_documents(arena, s, 1, "", s->causal ? "%4" : "%4, %7"), set, set_wrong,
                    look_at_all);
        check_end();
        arena_destroy(arena);
    }
}

/* Three documents of 110 positions. What is no number shows where tiles of another document were
 * looked at: masked weights are zero, but 0 x is none. Tiles are of 128 rows or keys, passed over
 * in steps of 64: rows from 256 on need no key before 192, keys before 128 no row from 256 on. */
enum { FAR_DOCUMENT = 110, FAR_ROW = 256, FAR_ROWS = 330 };

/* Of leaves n and n + step those of positions from `first` to `end` are no numbers. */
static void spoil(const CudaFixture *f, int n, int step, int64_t first, int64_t end) {
    int64_t each;
    double *tokens = leaf_values(f, 4, &each);
    for (int k = 0; k < FAR_ROWS; k++) {
        tokens[k] = k % FAR_DOCUMENT == FAR_DOCUMENT - 1 ? 0 : 1;
    }
    for (int i = 0; i < 2; i++) {
        double *values = leaf_values(f, n + i * step, &each);
        for (int64_t k = first * each; k < end * each; k++) values[k] = NAN;
    }
}

static void spoil_first_keys(const CudaFixture *f) {
    spoil(f, 1, 1, 0, FAR_DOCUMENT);
}

static void look_at_last_queries(const CudaKernelRun *run, const Graph *graph) {
    look_at_rows(run, graph->nodes[ATTENTION], 0, FAR_ROW, FAR_ROWS);
    look_at_rows(run, graph->nodes[GRADIENT], 0, FAR_ROW, FAR_ROWS);
}

static void spoil_last_queries(const CudaFixture *f) {
    spoil(f, 0, 3, FAR_ROW, FAR_ROWS);
}

static void look_at_first_keys(const CudaKernelRun *run, const Graph *graph) {
    for (int o = 1; o <= 2; o++) look_at_rows(run, graph->nodes[GRADIENT], o, 0, FAR_DOCUMENT);
}

/* And the other way round, where not causal: rows before 96, which no warp has with others, need
 * no key from 128 on, keys from 256 on no row before 192. */
static void spoil_last_keys(const CudaFixture *f) {
    spoil(f, 1, 1, 2 * FAR_DOCUMENT, FAR_ROWS);
}

static void look_at_first_queries(const CudaKernelRun *run, const Graph *graph) {
    enum { WHOLE_WARPS = 96 };
    look_at_rows(run, graph->nodes[ATTENTION], 0, 0, WHOLE_WARPS);
    look_at_rows(run, graph->nodes[GRADIENT], 0, 0, WHOLE_WARPS);
}

static void spoil_first_queries(const CudaFixture *f) {
    spoil(f, 0, 3, 0, FAR_DOCUMENT);
}

static void look_at_last_keys(const CudaKernelRun *run, const Graph *graph) {
    for (int o = 1; o <= 2; o++) look_at_rows(run, graph->nodes[GRADIENT], o, FAR_ROW, FAR_ROWS);
}

static void test_far_documents(int set) {
    static const Shape SHAPES[] = {{1, FAR_ROWS, 1, 1, 64, true, DTYPE_BF16, 0, 0, 0},
                                   {1, FAR_ROWS, 1, 1, 12, true, DTYPE_F32, 0, 0, 0},
                                   {1, FAR_ROWS, 1, 1, 64, false, DTYPE_BF16, 0, 0, 0},
                                   {1, FAR_ROWS, 1, 1, 72, false, DTYPE_F16, 0, 0, 0},
                                   {1, FAR_ROWS, 1, 1, 12, false, DTYPE_F32, 0, 0, 0}};
    for (size_t i = 0; i < sizeof(SHAPES) / sizeof(*SHAPES); i++) {
        const Shape *s = &SHAPES[i];
        if (!has_set(set, s)) continue;
        Arena *arena = arena_create();
        const char *nodes = make_documents(arena, s, 2, "", places_of(s));
        check_begin(arena_printf(arena, "other documents' tiles are left out%s, head %d, %s%s",
                                 s->causal ? "" : ", not causal", s->head, dtype_name(s->dtype),
                                 WITH[set]));
        run_changed(nodes, set, spoil_first_keys, look_at_last_queries);
        run_changed(nodes, set, spoil_last_queries, look_at_first_keys);
        if (!s->causal) {
            run_changed(nodes, set, spoil_last_keys, look_at_first_queries);
            run_changed(nodes, set, spoil_first_queries, look_at_last_keys);
        }
        check_end();
        arena_destroy(arena);
    }
}

/* One value for both would be taken for none. */
static void test_one_value(void) {
    const Shape shape = {1, 20, 1, 1, 16, false, DTYPE_F32, 0, 0, 0};
    Arena *arena = arena_create();
    CudaFixture f;
    CudaKernelRun run;
    check_begin("documents that end where they begin are refused");
    if (cuda_fixture_create(&f, NULL, make_documents(arena, &shape, 4, "", "%5, %5"))) {
        CHECK(!cuda_kernel_run_create(&run, f.reference, -1, &HOOKS[ON_MMA], f.diag) &&
                  strstr(diag_text(f.diag), "attention: has documents that end where they begin"),
              "%s", diag_text(f.diag));
        cuda_kernel_run_destroy(&run);
    }
    check_end();
    cuda_fixture_destroy(&f);
    arena_destroy(arena);
}

/* What knows of no ends must not be chosen where there are some. */
static void test_sets(void) {
    const Shape causal = {1, 256, 1, 1, 64, true, DTYPE_BF16, 0, 0, 0};
    Shape both = causal;
    both.causal = false;
    check_begin("wgmma is for causal documents");
    CHECK(has_set(ON_WGMMA, &causal), "not for these");
    CHECK(!has_set(ON_WGMMA, &both), "for others, too");
    check_end();
}

int main(void) {
    if (cuda_check_missing()) return 0;
    test_sets();
    test_one_value();
    for (int set = ON_MMA; set < (gpu_run_has_wgmma() ? N_SETS : ON_WGMMA); set++) {
        test_documents(set);
        test_wrong_documents(set);
        test_far_documents(set);
    }
    return check_report();
}
