/* Elementwise nodes and optimizers that are formulas through their CUDA binders and the generated
 * kernels, run on the host, against float64: every op's cases in f32, bf16 and f16, with memory of
 * their own and in their operands', adding and setting, training and not, of several micro-batches;
 * and shards.
 *
 * Would catch: strides mixed up by name, a shard that takes itself for the first one (dropout
 * masks), a sum that is set instead of added to, a rounding to 16 bits where none belongs.
 */
#include "tests/support/generated_run.h"
#include "tests/unit/cuda_check.h"

/* Of max(|value|, root mean square): as the CPU's kernels have it (test_ops.c). */
static const double TOLERANCE = 2e-6;

enum { N_VARIANTS = 4, MOST_RUNS = 4096 };

typedef struct Job {
    const OpCase *op_case;
    CudaKernelRun *run;
} Job;

typedef struct Jobs {
    Arena *arena;
    Diag *diag;
    CudaRunHooks hooks;
    int count;
    Job items[MOST_RUNS];
} Jobs;

/* What op_cases.c leaves to its gradient graphs. */
static const OpCase MORE_CASES[] = {
    {OP_GELU_GRAD, "rows=3 cols=8; cols=8", "", 0, 0},
    {OP_GELU_ERF_GRAD, "rows=3 cols=8; rows=3", "", 0, 0},
    {OP_SILU_GRAD, "rows=3 cols=7; rows=3 cols=7", "", 0, 0},
    {OP_RELU_GRAD, "rows=3 cols=5; rows=3 cols=5", "", 0, 0},
    {OP_MAXIMUM_GRAD, "rows=3 cols=5; cols=5; rows=3 cols=5", "", 0, 0},
    {OP_MAXIMUM_GRAD, "rows=2 cols=4; @0; cols=4", "", 0, 0},
};
enum { N_MORE_CASES = sizeof(MORE_CASES) / sizeof(MORE_CASES[0]) };

static bool is_elementwise(OpKind op) {
    return OPS[op].flags & ELEMENTWISE_BIT || op == OP_FUSED || op == OP_BROADCAST ||
           op == OP_ACCUMULATE || op_rule_states(op) >= 0;
}

static void add_job(Jobs *jobs, const OpCase *op_case, const Graph *graph, int in_place,
                    int variant) {
    Reference *ref = reference_create(jobs->arena, graph);
    op_case_fill(op_case, graph, ref);
    ref->overwrite = variant & 1;
    ref->train = variant < 3;
    ref->seed = UINT64_C(0x123456789abcdef0);
    ref->step = 3 + (uint64_t)variant;
    ref->micro = variant;
    ref->n_micro = N_VARIANTS;
    CudaKernelRun *run = ARENA_NEW(jobs->arena, CudaKernelRun);
    bool bound = cuda_kernel_run_create(run, ref, in_place, &jobs->hooks, jobs->diag);
    CHECK(bound, "%s: %s", OPS[op_case->op].name, diag_text(jobs->diag));
    if (!bound || jobs->count == MOST_RUNS) return;
    reference_run(ref);
    jobs->items[jobs->count++] = (Job){op_case, run};
}

static void add_case(Jobs *jobs, const OpCase *op_case, DType precision) {
    const Graph *graph = op_case_build(jobs->arena, op_case, precision, false, jobs->diag);
    CHECK(graph && graph_verify(graph, jobs->diag), "%s", diag_text(jobs->diag));
    if (!graph) return;
    const Node *node = graph->nodes[graph->n_nodes - 1];
    for (int in_place = -1; in_place < node->n_inputs; in_place++) {
        if (in_place >= 0 && !op_may_reuse(node, in_place)) continue;
        for (int variant = 0; variant < N_VARIANTS; variant++) {
            add_job(jobs, op_case, graph, in_place, variant);
        }
    }
}

static void run_job(Jobs *jobs, const Job *job) {
    bool good = cuda_kernel_run_step(job->run);
    CHECK(good, "%s", good ? "" : cuda_kernel_run_reason(job->run));
    if (good) {
        const Graph *graph = job->run->base.reference->graph;
        Node *node = graph->nodes[graph->n_nodes - 1];
        for (int o = 0; o < node->n_outputs; o++) {
            double error = cuda_kernel_run_error(job->run, node_value(node, o), 0, false);
            CHECK(error <= TOLERANCE, "%s: result %d: error %.3g",
                  op_case_name(jobs->arena, job->op_case, ""), o, error);
        }
    }
    cuda_kernel_run_destroy(job->run);
}

/* All are bound first: one compilation then serves all. */
static void test_cases(KernelCache *cache) {
    static Jobs jobs;
    bool tested[N_OPS] = {false};
    jobs.arena = arena_create();
    jobs.diag = diag_create();
    jobs.hooks = (CudaRunHooks){
        .user = cache, .generated = cache, .launch_generated = generated_host_launch};
    check_begin("every elementwise op's cases against float64");
    for (int i = 0; i < N_OP_CASES + N_MORE_CASES; i++) {
        const OpCase *op_case = i < N_OP_CASES ? &OP_CASES[i] : &MORE_CASES[i - N_OP_CASES];
        if (!is_elementwise(op_case->op)) continue;
        tested[op_case->op] = true;
        add_case(&jobs, op_case, DTYPE_F32);
        if (op_case_takes_low(op_case)) add_case(&jobs, op_case, DTYPE_BF16);
        if (op_case_takes_low(op_case) || op_case_says_low(op_case)) {
            add_case(&jobs, op_case, DTYPE_F16);
        }
    }
    CHECK(jobs.count < MOST_RUNS, "more runs than room for them");
    for (int i = 0; i < jobs.count; i++) run_job(&jobs, &jobs.items[i]);
    for (int op = 0; op < N_OPS; op++) {
        CHECK(!is_elementwise((OpKind)op) || tested[op], "%s has no case", OPS[op].name);
    }
    CHECK(diag_error_count(jobs.diag) == 0, "%s", diag_text(jobs.diag));
    diag_destroy(jobs.diag);
    arena_destroy(jobs.arena);
}

static void test_sharded(KernelCache *cache) {
    static const struct {
        const char *name, *mesh, *nodes;
    } CASES[] = {
        {"dropout, batch and columns divided", "t=2, d=2, p=1",
         "%0 = input() {name=\"+\"} : f32[batch=3/d, seq=5, model=7/t]\n"
         "%1 = dropout(%0) {p=0.4, key=3} : f32[batch=3/d, seq=5, model=7/t]\n"},
        {"dropout, positions divided", "t=3, d=1, p=1",
         "%0 = input() {name=\"+\"} : f32[batch=3, seq=7/t, model=8]\n"
         "%1 = dropout(%0) {p=0.4, key=3} : f32[batch=3, seq=7/t, model=8]\n"},
        {"a divided bias", "t=2, d=2, p=1",
         "%0 = input() {name=\"\"} : bf16[batch=4/d, seq=5, model=16/t]\n"
         "%1 = input() {name=\"\"} : bf16[model=16/t]\n"
         "%2 = add(%0, %1) : bf16[batch=4/d, seq=5, model=16/t]\n"},
        {"a divided bias in f16", "t=2, d=2, p=1",
         "%0 = input() {name=\"\"} : f16[batch=4/d, seq=5, model=16/t]\n"
         "%1 = input() {name=\"\"} : f16[model=16/t]\n"
         "%2 = add(%0, %1) : f16[batch=4/d, seq=5, model=16/t]\n"},
        {"a broadcast to shards", "t=2, d=1, p=1",
         "%0 = input() {name=\"\"} : f32[seq=5/t]\n"
         "%1 = broadcast(%0) : f32[batch=2, seq=5/t, model=4]\n"},
    };
    const CudaRunHooks hooks = {
        .user = cache, .generated = cache, .launch_generated = generated_host_launch};
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        CudaCase c = {.mesh = CASES[i].mesh,
                      .nodes = CASES[i].nodes,
                      .tolerance = TOLERANCE,
                      .hooks = &hooks};
        check_begin(CASES[i].name);
        cuda_check(&c);
    }
}

int main(void) {
    const char *missing = generated_host_missing();
    if (missing) {
        printf("skip elementwise CUDA kernels: %s\n", missing);
        return 0;
    }
    Arena *arena = arena_create();
    KernelCache *cache = kernel_cache_create(arena);
    test_cases(cache);
    test_sharded(cache);
    arena_destroy(arena);
    return check_report();
}
