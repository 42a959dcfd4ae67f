/* Gradients that meet behind a norm: which adds become part of the norm's launch, and what that
 * then computes.
 *
 * Would catch: a gradient that something else reads left out; an addend that comes too late or is
 * gone too early; a sum written over what the norm still reads; other bits in f32 than those of two
 * launches.
 */
#include "runtime/cuda/codegen.h"
#include "runtime/cuda/norm_addend.h"
#include "tests/support/gpu_run.h"
#include "tests/unit/cuda_check.h"

/* What every case begins with; $ is the dtype, # the number of columns, @ is $[rows=19, cols=#]. 19
 * rows are three groups, the last of them short. */
static const char LEAVES[] = "%0 = input() {name=\"\"} : @\n"
                             "%1 = input() {name=\"+\"} : f32[cols=#]\n"
                             "%2 = input() {name=\"\"} : f32[rows=19]\n"
                             "%3 = input() {name=\"+\"} : f32[rows=19]\n"
                             "%4 = input() {name=\"\"} : @\n"
                             "%5 = input() {name=\"\"} : @\n";
#define LAYERNORM                                                                                  \
    "%6:3 = layernorm_grad(%0, %1, %2, %3, %4) {axis=cols} : @, f32[cols=#], f32[cols=#]\n"
#define RMSNORM "%6:2 = rmsnorm_grad(%0, %1, %3, %4) {axis=cols} : @, f32[cols=#]\n"

typedef struct Case {
    const char *name, *nodes;
    int n_folded;
    int in_place; /* the operand whose memory elementwise results take, or -1 */
    int spoiled;  /* leaf that node 7 is said to write; 0: it does what it says */
} Case;

static const Case CASES[] = {
    {"what came past a layernorm", LAYERNORM "%7 = add(%5, %6) : @\n", 1, -1, 0},
    {"the same the other way round", LAYERNORM "%7 = add(%6, %5) : @\n", 1, -1, 0},
    {"what came past an rmsnorm", RMSNORM "%7 = add(%5, %6) : @\n", 1, -1, 0},
    {"in a fused node", RMSNORM "%7 = fused(%5, %6) {program=\"t0=add(i1,i0) -> t0\"} : @\n", 1, -1,
     0},
    {"the sum in the addend's memory", LAYERNORM "%7 = add(%5, %6) : @\n", 1, 0, 0},
    {"the sum in the gradient's memory", LAYERNORM "%7 = add(%6, %5) : @\n", 1, 0, 0},
    {"the norm's input, added twice over", RMSNORM "%7 = add(%0, %6) : @\n", 1, 0, 0},
    {"the gradient's own gradient", RMSNORM "%7 = add(%6, %4) : @\n", 1, 1, 0},
    {"a command in between", LAYERNORM "%7 = copy(%5) : @\n%8 = add(%5, %6) : @\n", 1, -1, 0},
    /* What must be left alone. */
    {"a gradient that is an output", LAYERNORM "%7 = add(%5, %6) : @\noutput(%6) {name=\"dx\"}\n",
     0, -1, 0},
    {"a gradient that is read twice", LAYERNORM "%7 = add(%6, %5) : @\n%8 = mul(%6, %5) : @\n", 0,
     -1, 0},
    {"the same twice", LAYERNORM "%7 = add(%6, %6) : @\n", 0, -1, 0},
    {"an addend that comes later", LAYERNORM "%7 = copy(%5) : @\n%8 = add(%7, %6) : @\n", 0, -1, 0},
    {"an addend that is overwritten", LAYERNORM "%7 = copy(%4) : @\n%8 = add(%5, %6) : @\n", 0, -1,
     5},
    {"a difference", LAYERNORM "%7 = sub(%5, %6) : @\n", 0, -1, 0},
    {"an addend for each row",
     LAYERNORM "%7 = input() {name=\"\"} : $[rows=19]\n%8 = add(%6, %7) : @\n", 0, -1, 0},
    {"more than a sum",
     LAYERNORM "%7 = fused(%5, %6) {program=\"t0=add(i1,i0) t1=relu(t0) -> t1\"} : @\n", 0, -1, 0},
};

static void put_text(StrBuf *out, const char *text, const char *dtype, int columns) {
    for (; *text; text++) {
        switch (*text) {
        case '@': strbuf_printf(out, "%s[rows=19, cols=%d]", dtype, columns); break;
        case '$': strbuf_put(out, dtype); break;
        case '#': strbuf_printf(out, "%d", columns); break;
        default: strbuf_put_bytes(out, text, 1);
        }
    }
}

/* The add's operands after the norm's own launches, added here. */
static void compare_bits(CudaKernelRun *folded, CudaKernelRun *apart, const Node *add) {
    float *const *buffers = (float *const *)apart->base.ranks[0].buffers;
    const float *left = buffers[add->inputs[0].node->id * MAX_OUTPUTS];
    const float *right = buffers[add->inputs[1].node->id * MAX_OUTPUTS];
    const float *sum = folded->base.ranks[0].buffers[add->id * MAX_OUTPUTS];
    for (int64_t i = 0; i < type_elements(&add->types[0]); i++) {
        CHECK(sum[i] == left[i] + right[i], "element %d is %.9g, not %.9g", (int)i, (double)sum[i],
              (double)(left[i] + right[i]));
    }
}

static void run_and_compare(CudaFixture *f, CudaKernelRun *folded, const CudaRunHooks *hooks,
                            DType dtype) {
    Node *add = f->graph->nodes[f->graph->n_nodes - 1];
    CudaKernelRun apart;
    if (!cuda_run_launches(folded)) return;
    double error = cuda_kernel_run_error(folded, node_value(add, 0), 0, true);
    /* In 16 bits the reference rounds the gradient before it adds: up to 2^-9 or 2^-12 of it. */
    double allowed = dtype == DTYPE_F32 ? 3e-6 : dtype == DTYPE_BF16 ? 0x1p-8 : 0x1p-11;
    CHECK(error <= allowed, "error %.3g", error);
    if (dtype != DTYPE_F32) return;
    bool bound = cuda_kernel_run_create(&apart, f->reference, -1, hooks, f->diag);
    CHECK(bound, "%s", diag_text(f->diag));
    if (bound && cuda_run_launches(&apart)) compare_bits(folded, &apart, add);
    cuda_kernel_run_destroy(&apart);
}

/* The commands of node 7 are said to write the leaf's memory, and nothing else. */
static void spoil(CudaKernelRun *run, int leaf, Arena *arena) {
    for (int i = run->first_command[0][7]; i < run->first_command[0][8]; i++) {
        Access *access = ARENA_NEW(arena, Access);
        *access = access_to(run->base.ranks[0].buffers[leaf * MAX_OUTPUTS], 4, true);
        run->lists[0].items[i].accesses = access;
        run->lists[0].items[i].n_accesses = 1;
    }
}

static void check_case(const Case *c, const char *dtype, int columns) {
    CudaFixture f;
    CudaKernelRun run;
    Arena *arena = arena_create();
    CudaRunHooks hooks = {.generated = kernel_cache_create(arena)};
    StrBuf text = strbuf_create();
    put_text(&text, LEAVES, dtype, columns);
    put_text(&text, c->nodes, dtype, columns);
    check_begin(arena_printf(arena, "%s, %s, %d columns", c->name, dtype, columns));
    if (cuda_fixture_create(&f, NULL, text.text)) {
        reference_run(f.reference);
        bool bound = cuda_kernel_run_create(&run, f.reference, c->in_place, &hooks, f.diag);
        CHECK(bound, "%s", diag_text(f.diag));
        cuda_describe_commands(&run, arena);
        if (c->spoiled) spoil(&run, c->spoiled, arena);
        int before = run.lists[0].count;
        int n_folded = cuda_fold_norm_addends(&run.lists[0], f.graph, arena);
        CHECK(n_folded == c->n_folded, "%d launches folded", n_folded);
        CHECK(run.lists[0].count == before - n_folded, "%d commands of %d", run.lists[0].count,
              before);
        if (bound && n_folded)
            run_and_compare(&f, &run, &hooks, (DType)dtype_find(dtype, (int)strlen(dtype)));
        cuda_kernel_run_destroy(&run);
    }
    check_end();
    cuda_fixture_destroy(&f);
    strbuf_destroy(&text);
    arena_destroy(arena);
}

int main(void) {
    if (cuda_check_missing()) return 0;
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        /* A row in one turn and two launches; of no whole vectors, three. */
        for (int columns = 40; columns >= 37; columns -= 3) {
            check_case(&CASES[i], "f32", columns);
            check_case(&CASES[i], "bf16", columns);
            check_case(&CASES[i], "f16", columns);
        }
    }
    return check_report();
}
