/* Gradients of biases made by the product that makes the weight's: which sums become part of a
 * product, and what the products then compute.
 *
 * Would catch: a sum of another operand, over other axes or rounded; a product that runs before its
 * operands are there or in front of what a message waits for; sums taken in without a measurement.
 */
#include "runtime/cuda/bias_grad.h"
#include "runtime/cuda/codegen.h"
#include "runtime/cuda/summary.h"
#include "tests/support/gpu_run.h"
#include "tests/unit/cuda_check.h"
#include "tests/unit/train_fixture.h"

static bool all_sums(void *user, const GemmCommand *gemm) {
    if (user) ++*(int *)user;
    return gemm != NULL;
}

/* --- small graphs --- */

/* x and dy of a product in bf16, what is added up in f32. $ is a dtype. */
static const char LEAVES[] =
    "%0 = input() {name=\"\"} : $[batch=2, rows=9, in=16]\n"
    "%1 = input() {name=\"\"} : $[batch=2, rows=9, heads=3, head=8]\n"
    "%2 = accumulator() {name=\"\", of=\"\"} : f32[in=16, heads=3, head=8]\n"
    "%3 = accumulator() {name=\"\", of=\"\"} : f32[heads=3, head=8]\n"
    "%4 = input() {name=\"\"} : $[in=16, rows=9]\n";

#define OVER " {over=[batch, rows], dtype=\"f32\"}"
#define DW   " = matmul(%0, %1, %2)" OVER " : f32[in=16, heads=3, head=8]\n"
#define DB   " = reduce_sum(%1)" OVER " : f32[heads=3, head=8]\n"

typedef struct Case {
    const char *name, *nodes;
    int n_folded;
    const char *only; /* dtype; NULL: both */
    int spoiled;      /* node in between that writes leaf 0 instead of its result */
} Case;

static const Case CASES[] = {
    {"a sum, then the product", "%5" DB "%6" DW, 1, NULL, 0},
    {"what adds the sum up in between", "%5" DB "%6 = add_n(%3, %5) : f32[heads=3, head=8]\n%7" DW,
     1, NULL, 0},
    {"a product that only sets",
     "%5" DB "%6 = matmul(%0, %1)" OVER " : f32[in=16, heads=3, head=8]\n", 1, NULL, 0},
    {"a reader of what the product adds to in between",
     "%5" DB "%6 = matmul(%1, %2) {over=[heads, head]} : f32[batch=2, rows=9, in=16]\n%7" DW, 0,
     "f32", 0},
    {"the product, then the sum", "%5" DW "%6" DB, 0, NULL, 0},
    {"a sum over fewer axes",
     "%5 = reduce_sum(%1) {over=[rows], dtype=\"f32\"} : f32[batch=2, heads=3, head=8]\n%6" DW, 0,
     NULL, 0},
    {"a sum over more axes",
     "%5 = reduce_sum(%1) {over=[batch, rows, heads], dtype=\"f32\"} : f32[head=8]\n%6" DW, 0, NULL,
     0},
    {"a sum of something else of that shape",
     "%5 = input() {name=\"\"} : $[batch=2, rows=9, heads=3, head=8]\n"
     "%6 = reduce_sum(%5)" OVER " : f32[heads=3, head=8]\n%7" DW,
     0, NULL, 0},
    {"a sum of the left operand", "%5 = reduce_sum(%0)" OVER " : f32[in=16]\n%6" DW, 0, NULL, 0},
    {"a rounded sum", "%5 = reduce_sum(%1) {over=[batch, rows]} : bf16[heads=3, head=8]\n%6" DW, 0,
     "bf16", 0},
    {"a rounded product",
     "%5" DB "%6 = matmul(%0, %1) {over=[batch, rows]} : bf16[in=16, heads=3, head=8]\n", 0, "bf16",
     0},
    {"a right operand that lies the other way",
     "%5 = input() {name=\"\"} : $[rows=9, cols=8]\n"
     "%6 = reduce_sum(%4) {over=[rows], dtype=\"f32\"} : f32[in=16]\n"
     "%7 = matmul(%5, %4) {over=[rows], dtype=\"f32\"} : f32[cols=8, in=16]\n",
     0, NULL, 0},
    {"an operand that comes only after the sum",
     "%5" DB "%6 = add_n(%3, %5) : f32[heads=3, head=8]\n%7" DW, 0, NULL, 6},
};

static const char *fill_in(Arena *arena, const char *text, const char *dtype) {
    StrBuf out = strbuf_create();
    for (; *text; text++) {
        if (*text == '$') {
            strbuf_put(&out, dtype);
        } else {
            strbuf_put_bytes(&out, text, 1);
        }
    }
    const char *filled = arena_strdup(arena, out.text);
    strbuf_destroy(&out);
    return filled;
}

/* As emit.c says whose commands are and what they touch. */
static void describe_commands(CudaKernelRun *run, int spoiled, Arena *arena) {
    const Graph *graph = run->base.reference->graph;
    void **buffers = run->base.ranks[0].buffers;
    for (int n = 0; n < graph->n_nodes; n++) {
        Node *node = graph->nodes[n];
        Access *accesses = ARENA_ARRAY(arena, Access, node->n_inputs + 1);
        for (int i = 0; i <= node->n_inputs; i++) {
            bool write = i == node->n_inputs;
            Value value = write ? node_value(node, 0) : node->inputs[i];
            if (write && n == spoiled) value = node_value(graph->nodes[0], 0);
            accesses[i] = access_to(buffers[value.node->id * MAX_OUTPUTS + value.output],
                                    cuda_value_bytes(graph, value), write);
        }
        for (int i = run->first_command[0][n]; i < run->first_command[0][n + 1]; i++) {
            Command *command = &run->lists[0].items[i];
            command->info = (CommandInfo){.node = node, .block = NO_BLOCK};
            command->accesses = accesses;
            command->n_accesses = node->n_inputs + 1;
        }
    }
}

/* Everything that is left, in its new order, against float64. Sums in f32 of 18 products of any
 * dtype. */
static void run_and_compare(CudaKernelRun *run) {
    const Graph *graph = run->base.reference->graph;
    for (int i = 0; i < run->lists[0].count; i++) {
        const Command *command = &run->lists[0].items[i];
        const char *why = "";
        if (command->kind == COMMAND_GEMM && !gpu_run_has_product(&command->gemm)) return;
        bool good = cuda_run_command(command, &run->hooks, &why);
        CHECK(good, "%s", why);
    }
    for (int n = 0; n < graph->n_nodes; n++) {
        if (OPS[graph->nodes[n]->op].flags & LEAF) continue;
        if (run->base.overwritten[n * MAX_OUTPUTS]) continue;
        double error = cuda_kernel_run_error(run, node_value(graph->nodes[n], 0), 0, true);
        CHECK(error <= 4e-6, "%%%d %s: error %.3g", n, OPS[graph->nodes[n]->op].name, error);
    }
}

static void check_case(const Case *c, const char *dtype) {
    CudaFixture f;
    CudaKernelRun run;
    int n_asked = 0;
    EpilogueCheck check = {.supports = NULL, .user = &n_asked, .sums_bias = all_sums};
    Arena *arena = arena_create();
    CudaRunHooks hooks = {.generated = kernel_cache_create(arena)};
    const char *text = fill_in(arena, arena_printf(arena, "%s%s", LEAVES, c->nodes), dtype);
    if (cuda_fixture_create(&f, NULL, text)) {
        reference_run(f.reference);
        bool bound = cuda_kernel_run_create(&run, f.reference, -1, &hooks, f.diag);
        CHECK(bound, "%s", diag_text(f.diag));
        describe_commands(&run, c->spoiled ? c->spoiled : -1, arena);
        int before = run.lists[0].count;
        int n_folded = cuda_fold_bias_gradients(&run.lists[0], &check, arena);
        CHECK(n_folded == c->n_folded, "%d launches folded", n_folded);
        CHECK(n_asked == c->n_folded, "asked %d times", n_asked);
        CHECK(run.lists[0].count == before - n_folded, "%d of %d left", run.lists[0].count, before);
        if (bound && c->n_folded) run_and_compare(&run);
        cuda_kernel_run_destroy(&run);
    }
    cuda_fixture_destroy(&f);
    arena_destroy(arena);
}

static void test_cases(void) {
    static const char *const DTYPES[] = {"f32", "bf16", "f16"};
    Arena *arena = arena_create();
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        for (int d = 0; d < 3; d++) {
            if (CASES[i].only && strcmp(CASES[i].only, DTYPES[d]) != 0) continue;
            check_begin(arena_printf(arena, "%s, %s", CASES[i].name, DTYPES[d]));
            check_case(&CASES[i], DTYPES[d]);
            check_end();
        }
    }
    arena_destroy(arena);
}

/* --- plans --- */

typedef struct Count {
    Layout layout;
    DType precision;
    int per_block; /* of six biases */
} Count;

/* With t=2 hide_messages has gradients of weights right behind the message that they hide. Only the
 * last micro-batch's gradients are sent over d. */
static const Count COUNTS[] = {
    {{1, 1, 1, 2, 1, "1f1b", false, NULL, 0}, DTYPE_F32, 6},
    {{1, 2, 1, 2, 1, "1f1b", false, NULL, 0}, DTYPE_BF16, 6},
    {{2, 1, 1, 2, 1, "1f1b", false, NULL, 0}, DTYPE_BF16, 6},
};

static int count_sums(const CommandList *list) {
    int n = 0;
    for (int i = 0; i < list->count; i++) {
        n += list->items[i].kind == COMMAND_GEMM && list->items[i].gemm.bias_grad;
    }
    return n;
}

/* A sum is one launch, or two. */
static int count_launches(const CommandList *list) {
    int n = 0;
    for (int i = 0; i < list->count; i++) {
        const Node *node = list->items[i].info.node;
        n += list->items[i].kind == COMMAND_LAUNCH && node && node->op == OP_REDUCE_SUM;
    }
    return n;
}

/* With each three products became one and a copy; where a sum lies between, in memory that is free
 * by then, they do not (stack_products.h). */
static int count_unstacked(const CommandList *list) {
    int n = list->count;
    for (int i = 0; i < list->count; i++) {
        const Command *command = &list->items[i];
        n += command->kind == COMMAND_GEMM && command->gemm.layout.batch == 1 &&
             command->n_others == 2;
    }
    return n;
}

static void emit(const Run *run, const EpilogueCheck *check, CommandList *out) {
    bool good = cuda_emit_stage(run->plan, 0, check, NULL, run->arena,
                                kernel_cache_create(run->arena), out, run->diag);
    CHECK(good, "%s", diag_text(run->diag));
}

static bool joins_none(void *user, const GemmCommand *one, const GemmCommand *joined) {
    (void)user, (void)one, (void)joined;
    return false;
}

static void test_counts(void) {
    static const EpilogueCheck ALL = {.sums_bias = all_sums, .joins = joins_none};
    static const EpilogueCheck NONE = {.joins = joins_none};
    static const ModelSetting settings[] = {{"layers", "2"}};
    for (size_t i = 0; i < sizeof(COUNTS) / sizeof(COUNTS[0]); i++) {
        const Count *c = &COUNTS[i];
        Run run;
        CommandList with = {0}, without = {0}, untuned = {0};
        char name[96];
        snprintf(name, sizeof(name), "sums in products, gpt, %s, t=%d d=%d",
                 dtype_name(c->precision), c->layout.t, c->layout.d);
        check_begin(name);
        bool planned = run_plan_for(&run, "models/gpt.lua", settings, 1, &c->layout, 8, false, true,
                                    c->precision);
        CHECK(planned, "%s", diag_text(run.diag));
        if (planned) {
            emit(&run, &ALL, &with);
            emit(&run, &NONE, &without);
            emit(&run, NULL, &untuned);
            int expected = run.plan->n_micro * 2 * c->per_block;
            CHECK(count_sums(&with) == expected, "%d, not %d", count_sums(&with), expected);
            int gone = count_launches(&without) - count_launches(&with);
            /* The first micro-batch's sets its accumulator, as reduce_sum does; others' are added.
             */
            int added = expected - expected / run.plan->n_micro;
            /* Two of a block's six are made by norms (norm_sum.h), three at once (join_sums.h). */
            int launched = run.plan->n_micro * 2 * 2;
            int all_gone = count_unstacked(&without) - count_unstacked(&with);
            CHECK(gone >= launched && gone <= 2 * launched && all_gone == gone - added,
                  "%d launches are gone, %d of sums, %d to add them are new", all_gone, gone,
                  added);
            CHECK(count_sums(&untuned) == 0 && untuned.count < without.count,
                  "%d without a device section", count_sums(&untuned));
        }
        command_list_release(&with);
        command_list_release(&without);
        command_list_release(&untuned);
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
