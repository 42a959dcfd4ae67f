/* Products that do what follows them: which launches become part of a product, and what the
 * products then compute.
 *
 * Would catch: a value lost that something else reads; a bias along the wrong axis or rounded; a
 * result kept for the backward left out; a product that writes over what it reads or runs before
 * what it adds is there; erf's gelu taken for tanh's; a device without an algorithm.
 */
#include "runtime/cuda/codegen.h"
#include "runtime/cuda/emit.h"
#include "tests/support/gpu_run.h"
#include "tests/unit/cuda_check.h"
#include "tests/unit/train_fixture.h"

/* --- small graphs --- */

/* What every case begins with; $ is the dtype, # the number of columns. */
static const char LEAVES[] = "%0 = input() {name=\"\"} : $[rows=6, k=16]\n"
                             "%1 = input() {name=\"\"} : $[k=16, cols=#]\n"
                             "%2 = input() {name=\"\"} : $[cols=#]\n"
                             "%3 = input() {name=\"\"} : $[rows=6, cols=#]\n"
                             "%4 = input() {name=\"\"} : $[rows=6, k=16]\n"
                             "%5 = input() {name=\"\"} : f32[cols=#]\n"
                             "%6 = input() {name=\"\"} : $[rows=6]\n"
                             "%7 = matmul(%0, %1) {over=[k]} : $[rows=6, cols=#]\n";

#define AS  " : $[rows=6, cols=#]\n"
#define SUM "%8 = add(%7, %2)" AS
#define LOW " bf16 f16 "

typedef struct Case {
    const char *name, *nodes;
    int n_folded;         /* launches */
    const char *products; /* their epilogues, in order */
    const char *only;     /* dtypes; NULL: all */
} Case;

static const Case CASES[] = {
    {"a bias", SUM, 1, "+bias", NULL},
    {"a bias, on the left", "%8 = add(%2, %7)" AS, 1, "+bias", NULL},
    {"an addend", "%8 = add(%3, %7)" AS, 1, "+addend", NULL},
    {"a bias and an addend",
     "%8 = fused(%2, %7, %3) {program=\"t0=add(i1,i0) t1=add(i2,t0) -> t1\"}" AS, 1, "+bias+addend",
     NULL},
    {"a bias, then an addend", SUM "%9 = add(%8, %3)" AS, 2, "+bias+addend", NULL},
    {"gelu of a sum that is kept", SUM "%9 = gelu(%8)" AS "output(%8) {name=\"pre\"}\n", 2,
     "+bias+gelu", LOW},
    {"gelu of a sum", "%8 = fused(%7, %2) {program=\"t0=add(i0,i1) t1=gelu(t0) -> t1\"}" AS, 1,
     "+bias+gelu", LOW},
    {"gelu and its sum",
     "%8:2 = fused(%7, %2) {program=\"t0=add(i0,i1) t1=gelu(t0) -> t0 t1\"} : $[rows=6, cols=#], "
     "$[rows=6, cols=#]\n",
     1, "+bias+gelu", LOW},
    {"gelu alone", "%8 = gelu(%7)" AS, 1, "+gelu", LOW},
    {"gelu's gradient", "%8 = gelu_grad(%3, %7)" AS, 1, "+gelu_grad", LOW},
    {"two products", "%8 = matmul(%4, %1) {over=[k]}" AS "%9 = add(%7, %8)" AS, 1, " +addend",
     NULL},
    {"two products and an addend",
     "%8 = matmul(%4, %1) {over=[k]}" AS
     "%9 = fused(%7, %8, %3) {program=\"t0=add(i0,i1) t1=add(t0,i2) -> t1\"}" AS,
     1, "+addend +addend", NULL},
    {"three products",
     "%8 = matmul(%4, %1) {over=[k]}" AS "%9 = matmul(%0, %1) {over=[k]}" AS
     "%10 = fused(%7, %9, %8) {program=\"t0=add(i0,i1) t1=add(t0,i2) -> t1\"}" AS,
     1, " +addend +addend", NULL},
    {"three products and an addend",
     "%8 = matmul(%4, %1) {over=[k]}" AS "%9 = matmul(%0, %1) {over=[k]}" AS
     "%10 = fused(%7, %8, %3, %9) {program=\"t0=add(i0,i1) t1=add(t0,i2) t2=add(t1,i3) -> t2\"}" AS,
     1, "+addend +addend +addend", NULL},
    /* What must be left alone. cuBLASLt's gelu is not good enough for f32. */
    {"gelu alone", "%8 = gelu(%7)" AS, 0, "", " f32 "},
    {"gelu of a sum that is kept", SUM "%9 = gelu(%8)" AS "output(%8) {name=\"pre\"}\n", 1, "+bias",
     " f32 "},
    {"gelu of a sum", "%8 = fused(%7, %2) {program=\"t0=add(i0,i1) t1=gelu(t0) -> t1\"}" AS, 0, "",
     " f32 "},
    {"gelu's gradient", "%8 = gelu_grad(%3, %7)" AS, 0, "", " f32 "},
    {"read twice", SUM "%9 = add(%7, %3)" AS, 0, "", NULL},
    {"an output", SUM "output(%7) {name=\"y\"}\n", 0, "", NULL},
    {"gelu_erf", SUM "%9 = gelu_erf(%8)" AS, 1, "+bias", NULL},
    {"gelu_erf in one node",
     "%8 = fused(%7, %2) {program=\"t0=add(i0,i1) t1=gelu_erf(t0) -> t1\"}" AS, 0, "", NULL},
    {"a broadcast along rows", "%8 = add(%7, %6)" AS, 0, "", NULL},
    {"dropout in between",
     "%8 = fused(%7, %2, %3) {program=\"t0=add(i0,i1) t1=dropout(t0,p=0.1,key=1) t2=add(t1,i2) -> "
     "t2\"}" AS,
     0, "", NULL},
    {"an f32 bias", "%8 = fused(%5, %7) {program=\"t0=to_bf16(i0) t1=add(i1,t0) -> t1\"}" AS, 0, "",
     " bf16 "},
    {"a kept sum that is read before gelu", SUM "%9 = relu(%8)" AS "%10 = gelu(%8)" AS, 1, "+bias",
     NULL},
    {"two products and two addends",
     "%8 = matmul(%4, %1) {over=[k]}" AS
     "%9 = fused(%7, %8, %3, %3) {program=\"t0=add(i0,i1) t1=add(t0,i2) t2=add(t1,i3) -> t2\"}" AS,
     0, " ", NULL},
    {"three products, of which two are read again",
     "%8 = matmul(%4, %1) {over=[k]}" AS "%9 = matmul(%0, %1) {over=[k]}" AS
     "%10 = fused(%7, %8, %3, %9) {program=\"t0=add(i0,i1) t1=add(t0,i2) t2=add(t1,i3) -> t2\"}" AS
     "%11 = relu(%7)" AS "%12 = relu(%8)" AS,
     0, "  ", NULL},
    {"a difference", "%8 = sub(%3, %7)" AS, 0, "", NULL},
    {"the same twice", "%8 = add(%7, %7)" AS, 0, "", NULL},
    {"a bias twice", SUM "%9 = add(%8, %2)" AS, 1, "+bias", NULL},
    {"gelu's gradient of a product", "%8 = gelu_grad(%7, %3)" AS, 0, "", NULL},
    {"what already adds",
     "%8 = accumulator() {name=\"\", of=\"\"}" AS "%9 = matmul(%4, %1, %8) {over=[k]}" AS
     "%10 = add(%9, %3)" AS,
     0, " ", " f32 "},
};

static const char *fill_in(Arena *arena, const char *text, const char *dtype, int columns) {
    StrBuf out = strbuf_create();
    for (; *text; text++) {
        if (*text == '$') {
            strbuf_put(&out, dtype);
        } else if (*text == '#') {
            strbuf_printf(&out, "%d", columns);
        } else {
            strbuf_put_bytes(&out, text, 1);
        }
    }
    const char *filled = arena_strdup(arena, out.text);
    strbuf_destroy(&out);
    return filled;
}

/* The commands of node `n` are said to write, and nothing else, the leaf's memory. */
static void spoil(CudaKernelRun *run, int n, int leaf, Arena *arena) {
    for (int i = run->first_command[0][n]; i < run->first_command[0][n + 1]; i++) {
        Access *access = ARENA_NEW(arena, Access);
        *access = access_to(run->base.ranks[0].buffers[leaf * MAX_OUTPUTS], 4, true);
        run->lists[0].items[i].accesses = access;
        run->lists[0].items[i].n_accesses = 1;
    }
}

static const char *name_products(const CommandList *list, Arena *arena) {
    const char *names = NULL;
    for (int i = 0; i < list->count; i++) {
        if (list->items[i].kind != COMMAND_GEMM) continue;
        const char *name = epilogue_name(&list->items[i].gemm, arena);
        names = names ? arena_printf(arena, "%s %s", names, name) : name;
    }
    return names ? names : "";
}

/* Sums go into gelu or an addition as they are; the reference rounds them to 16 bits before, which
 * is up to 2^-9 or 2^-12 of them each, and there are at most two in a row. In f32: sums of 16
 * products. */
static double tolerance_of(const char *dtype) {
    return strcmp(dtype, "bf16") == 0 ? 0x1p-7 : strcmp(dtype, "f16") == 0 ? 0x1p-10 : 4e-6;
}

/* Where all launches are gone everything that is left can be run here. */
static void run_and_compare(CudaKernelRun *run, const char *dtype) {
    const Graph *graph = run->base.reference->graph;
    const CommandList *list = &run->lists[0];
    bool *stored = ARENA_ARRAY(run->base.reference->arena, bool, graph->n_nodes + 1);
    for (int i = 0; i < list->count; i++) {
        if (list->items[i].kind != COMMAND_GEMM) return;
        if (!gpu_run_has_product(&list->items[i].gemm)) return;
        stored[list->items[i].info.node->id] = true;
    }
    for (int i = 0; i < list->count; i++) {
        const char *why = "";
        bool good = cuda_run_command(&list->items[i], &run->hooks, &why);
        CHECK(good, "%s", why);
    }
    for (int n = 0; n < graph->n_nodes; n++) {
        Node *node = graph->nodes[n];
        /* The first of two products holds the sum of two addends; aux is an add's. */
        bool kept = stored[n] || (node->op == OP_ADD && n + 1 < graph->n_nodes &&
                                  graph->nodes[n + 1]->op == OP_GELU);
        if (OPS[node->op].flags & LEAF || !kept || node->op == OP_MATMUL) continue;
        for (int o = 0; o < node->n_outputs; o++) {
            double error = cuda_kernel_run_error(run, node_value(node, o), 0, true);
            CHECK(error <= tolerance_of(dtype), "%%%d %s, result %d: error %.3g", n,
                  OPS[node->op].name, o, error);
        }
    }
}

typedef struct Expected {
    int n_folded;
    const char *products;
    int spoiled; /* leaf that node 8 writes; 0: it does what it says */
} Expected;

static void check_case(const char *nodes, const char *dtype, int columns,
                       const EpilogueCheck *check, bool in_place, Expected expected) {
    CudaFixture f;
    CudaKernelRun run;
    Arena *arena = arena_create();
    CudaRunHooks hooks = {.generated = kernel_cache_create(arena)};
    const char *text = arena_printf(arena, "%s%s", LEAVES, nodes);
    if (cuda_fixture_create(&f, NULL, fill_in(arena, text, dtype, columns))) {
        reference_run(f.reference);
        bool bound = cuda_kernel_run_create(&run, f.reference, in_place ? 0 : -1, &hooks, f.diag);
        CHECK(bound, "%s", diag_text(f.diag));
        cuda_describe_commands(&run, arena);
        if (expected.spoiled) spoil(&run, 8, expected.spoiled, arena);
        int before = run.lists[0].count;
        int n_folded = cuda_fold_epilogues(&run.lists[0], f.graph, check, arena);
        const char *products = name_products(&run.lists[0], arena);
        CHECK(n_folded == expected.n_folded, "%d launches folded: %s", n_folded, products);
        CHECK(run.lists[0].count == before - n_folded, "%d commands of %d", run.lists[0].count,
              before);
        CHECK(strcmp(products, expected.products) == 0, "products: '%s'", products);
        if (bound) run_and_compare(&run, dtype);
        cuda_kernel_run_destroy(&run);
    }
    cuda_fixture_destroy(&f);
    arena_destroy(arena);
}

static bool supports_nothing(void *user, const GemmCommand *gemm) {
    ++*(int *)user;
    return gemm == NULL;
}

static void test_cases(void) {
    static const char *const DTYPES[] = {"f32", "bf16", "f16"};
    static const EpilogueCheck ALL = {.supports = NULL, .user = NULL, .sums_bias = NULL};
    Arena *arena = arena_create();
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        const Case *c = &CASES[i];
        for (int d = 0; d < 3; d++) {
            if (c->only && !strstr(c->only, arena_printf(arena, " %s ", DTYPES[d]))) continue;
            check_begin(arena_printf(arena, "%s, %s", c->name, DTYPES[d]));
            check_case(c->nodes, DTYPES[d], 24, &ALL, false,
                       (Expected){c->n_folded, c->products, 0});
            check_end();
        }
    }
    check_begin("gelu keeps sums in rows of a multiple of 8");
    check_case(SUM "%9 = gelu(%8)" AS "output(%8) {name=\"pre\"}\n", "bf16", 20, &ALL, false,
               (Expected){1, "+bias", 0});
    check_begin("a result in the memory of what gelu's gradient reads");
    check_case("%8 = copy(%3)" AS "%9 = gelu_grad(%8, %7)" AS, "bf16", 24, &ALL, true,
               (Expected){0, "", 0});
    check_begin("something else in between");
    check_case("%8 = copy(%3)" AS "%9 = add(%7, %2)" AS, "f32", 24, &ALL, false,
               (Expected){1, "+bias", 0});
    check_begin("an operand that is gone when the product would run");
    check_case("%8 = copy(%3)" AS "%9 = add(%7, %2)" AS, "f32", 24, &ALL, false,
               (Expected){0, "", 1});
    check_begin("an addend that comes after the product it would be added by");
    check_case("%8 = gelu(%3)" AS "%9 = matmul(%4, %1) {over=[k]}" AS
               "%10 = fused(%7, %9, %8) {program=\"t0=add(i0,i1) t1=add(t0,i2) -> t1\"}" AS,
               "f32", 24, &ALL, false, (Expected){0, " ", 0});
    check_begin("a product that the device does not have");
    int n_asked = 0;
    check_case(SUM, "f32", 24,
               &(EpilogueCheck){.supports = supports_nothing, .user = &n_asked, .sums_bias = NULL},
               false, (Expected){0, "", 0});
    CHECK(n_asked == 1, "asked %d times", n_asked);
    check_end();
    arena_destroy(arena);
}

/* --- plans --- */

typedef struct Count {
    const char *model;
    Layout layout;
    DType precision;
    int per_block; /* launches that are gone for each block and micro-batch */
    int more;      /* and for each micro-batch */
} Count;

/* GPT: biases of q, k, v; of the attention's and the feed-forward part's results, with the
 * residual; bias and gelu; gelu's gradient; the sum of the gradients that come back through q, k
 * and v. With t=2, sums over ranks come before the results' biases. Llama: two residuals, the
 * gradients through q, k and v, and those through gate and up. In both, what came past the two
 * norms (norm_addend.h), and the accumulators of gains and biases (accumulation.h): six biases and
 * two of each norm in a block of GPT, two gains in one of Llama; more are the last norm's and GPT's
 * positions. And q, k and v at once, and the gradients of their weights (join_products.h); of
 * Llama's, gate and up, too. The gradients through q, k and v, and in Llama the two launches that
 * turn them back, are one each, with one copy of weights, in Llama two (stack_products.h). In f32
 * not what has gelu.
 * Of GPT's biases' gradients, two of a block are norms' (norm_sum.h), and those of q, k and v are
 * one launch (join_sums.h). Where the vocabulary is not divided, cross-entropy is one
 * (fused_loss.h).
 */
static const Count COUNTS[] = {
    {"models/gpt.lua", {1, 1, 1, 2, 1, "1f1b", false, NULL, 0}, DTYPE_F32, 31, 5},
    {"models/gpt.lua", {1, 1, 1, 2, 1, "1f1b", false, NULL, 0}, DTYPE_BF16, 33, 5},
    {"models/gpt.lua", {2, 1, 1, 2, 1, "1f1b", false, NULL, 0}, DTYPE_BF16, 31, 3},
    {"models/gpt.lua", {2, 2, 1, 2, 1, "1f1b", true, NULL, 0}, DTYPE_BF16, 29, 3},
    {"models/llama.lua", {1, 1, 1, 2, 1, "1f1b", false, NULL, 0}, DTYPE_BF16, 12, 3},
};

static int64_t emit(const Run *run, const EpilogueCheck *epilogues, CommandList *out) {
    static const uintptr_t BASE = (uintptr_t)1 << 32; /* never followed */
    EmitMemory memory = {.state = (DeviceState *)(BASE / 2),
                         .staging = (const unsigned char *)(BASE / 4),
                         .epilogues = epilogues};
    RankContext rank = rank_context(run->plan, 0, run->arena);
    rank_set_memory(&rank, (void *)BASE);
    bool good =
        emit_rank(&rank, &memory, EMIT_TRAIN, kernel_cache_create(run->arena), out, run->diag);
    CHECK(good, "%s", diag_text(run->diag));
    return command_count_nodes(out);
}

static void test_counts(void) {
    static const EpilogueCheck ALL = {.supports = NULL, .user = NULL, .sums_bias = NULL};
    static const ModelSetting settings[] = {{"layers", "4"}};
    for (size_t i = 0; i < sizeof(COUNTS) / sizeof(COUNTS[0]); i++) {
        const Count *c = &COUNTS[i];
        Run run;
        CommandList with = {0}, without = {0};
        char name[128];
        snprintf(name, sizeof(name), "launches saved in %s, %s, t=%d d=%d", c->model,
                 dtype_name(c->precision), c->layout.t, c->layout.d);
        check_begin(name);
        bool planned =
            run_plan_for(&run, c->model, settings, 1, &c->layout, 8, false, true, c->precision);
        CHECK(planned, "%s", diag_text(run.diag));
        if (planned) {
            int64_t saved = emit(&run, NULL, &without) - emit(&run, &ALL, &with);
            int64_t expected = run.plan->n_micro * (4 * c->per_block + c->more);
            printf("%s: %.2f of each block\n", name, (double)saved / (double)run.plan->n_micro / 4);
            CHECK(saved == expected, "%lld launches, not %lld", (long long)saved,
                  (long long)expected);
        }
        command_list_release(&with);
        command_list_release(&without);
        run_close(&run);
        check_end();
    }
}

int main(void) {
    if (cuda_check_missing()) return 0;
    test_cases();
    test_counts();
    return check_report();
}
