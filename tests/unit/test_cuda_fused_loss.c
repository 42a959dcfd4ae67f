/* Cross-entropy and its gradient in one launch: which are joined, and that the bits are those of
 * three.
 *
 * Would catch: logits whose gradient takes their place while something still reads them; rows whose
 * losses have other gradients, or gradients that running decides; labels that change in between; a
 * row's copy, or its head and rest beside whole vectors, that is taken wrongly; a launch in another
 * micro-batch.
 */
#include "runtime/cuda/codegen.h"
#include "runtime/cuda/fused_loss.h"
#include "runtime/cuda/summary.h"
#include "tests/support/gpu_run.h"
#include "tests/unit/cuda_check.h"
#include "tests/unit/train_fixture.h"

/* $ is the dtype, # the number of words. */
#define LEAVES                                                                                     \
    "%0 = input() {name=\"\"} : $[rows=7, vocab=#]\n"                                              \
    "%1 = input() {name=\"#%d\"} : i32[rows=7]\n"
#define LOGSUMEXP "%2 = logsumexp(%0) {axis=vocab} : f32[rows=7]\n"
#define PICK      "%3 = pick(%0, %1) {axis=vocab} : f32[rows=7]\n"
#define MEAN                                                                                       \
    "%4 = const() {value=1} : f32[]\n"                                                             \
    "%5 = scale(%4) {value=0.142857142} : f32[]\n"                                                 \
    "%6 = broadcast(%5) : f32[rows=7]\n"
#define GRADIENT "%7 = cross_entropy_grad(%0, %1, %2, %6) {axis=vocab} : $[rows=7, vocab=#]\n"

typedef struct Case {
    const char *name, *nodes;
    int n_gone;
    bool apart;  /* the gradient has memory of its own */
    int spoiled; /* leaf that node 4 is said to write; -1: it does what it says */
    bool later;  /* the gradient is another micro-batch's */
} Case;

static const Case CASES[] = {
    {"a mean over rows", LEAVES LOGSUMEXP PICK MEAN GRADIENT, 2, false, -1, false},
    /* What must be left alone. */
    {"a gradient that has memory of its own", LEAVES LOGSUMEXP PICK MEAN GRADIENT, 0, true, -1,
     false},
    {"logits that something else reads",
     LEAVES LOGSUMEXP PICK MEAN "%7 = reduce_sum(%0) {over=[vocab]} : $[rows=7]\n"
                                "%8 = cross_entropy_grad(%0, %1, %2, %6) {axis=vocab} : "
                                "$[rows=7, vocab=#]\n",
     0, false, -1, false},
    {"logits that change in between", LEAVES LOGSUMEXP PICK MEAN GRADIENT, 0, false, 0, false},
    {"labels that change in between", LEAVES LOGSUMEXP PICK MEAN GRADIENT, 0, false, 1, false},
    {"a weight for each row",
     LEAVES LOGSUMEXP PICK "%4 = input() {name=\"\"} : f32[rows=7]\n"
                           "%5 = scale(%4) {value=2} : f32[rows=7]\n"
                           "%6 = cross_entropy_grad(%0, %1, %2, %5) {axis=vocab} : "
                           "$[rows=7, vocab=#]\n",
     0, false, -1, false},
    {"a penalty on log-sum-exp",
     LEAVES LOGSUMEXP PICK MEAN "%7 = cross_entropy_grad(%0, %1, %2, %6, %6) {axis=vocab} : "
                                "$[rows=7, vocab=#]\n",
     0, false, -1, false},
    {"another log-sum-exp",
     LEAVES LOGSUMEXP PICK MEAN "%7 = scale(%2) {value=2} : f32[rows=7]\n"
                                "%8 = cross_entropy_grad(%0, %1, %7, %6) {axis=vocab} : "
                                "$[rows=7, vocab=#]\n",
     0, false, -1, false},
    {"a pick before",
     LEAVES "%2 = pick(%0, %1) {axis=vocab} : f32[rows=7]\n"
            "%3 = logsumexp(%0) {axis=vocab} : f32[rows=7]\n" MEAN
            "%7 = cross_entropy_grad(%0, %1, %3, %6) {axis=vocab} : $[rows=7, vocab=#]\n",
     0, false, -1, false},
    {"no pick",
     LEAVES LOGSUMEXP "%3 = const() {value=1} : f32[]\n"
                      "%4 = broadcast(%3) : f32[rows=7]\n"
                      "%5 = cross_entropy_grad(%0, %1, %2, %4) {axis=vocab} : $[rows=7, vocab=#]\n",
     0, false, -1, false},
    {"another micro-batch", LEAVES LOGSUMEXP PICK MEAN GRADIENT, 0, false, -1, true},
};

static void put_text(StrBuf *out, const char *text, const char *dtype, int words) {
    for (; *text; text++) {
        if (strncmp(text, "#%d", 3) == 0) {
            strbuf_printf(out, "#%d", words);
            text += 2;
        } else if (*text == '$') {
            strbuf_put(out, dtype);
        } else if (*text == '#') {
            strbuf_printf(out, "%d", words);
        } else {
            strbuf_put_bytes(out, text, 1);
        }
    }
}

static void *buffer_of(const CudaKernelRun *run, int node) {
    return run->base.ranks[0].buffers[node * MAX_OUTPUTS];
}

static void check_value(CudaFixture *f, const CudaKernelRun *joined, const CudaKernelRun *apart,
                        int node) {
    Value value = node_value(f->graph->nodes[node], 0);
    size_t bytes = (size_t)cuda_value_bytes(f->graph, value);
    CHECK(memcmp(buffer_of(joined, node), buffer_of(apart, node), bytes) == 0,
          "value %d has other bits", node);
}

/* Generated kernels, which nobody runs here, make the losses' gradients. */
static void run_and_compare(CudaFixture *f, CudaKernelRun *joined, const CudaRunHooks *hooks,
                            DType dtype) {
    enum { LSE = 2, PICKED = 3, DLOSS = 6, GRADIENTS = 7, ROWS = 7 };
    CudaKernelRun apart;
    bool bound = cuda_kernel_run_create(&apart, f->reference, 0, hooks, f->diag);
    CHECK(bound, "%s", diag_text(f->diag));
    for (int i = 0; bound && i < ROWS; i++) {
        ((float *)buffer_of(&apart, DLOSS))[i] = (float)0.142857142;
    }
    if (bound && cuda_run_launches(joined) && cuda_run_launches(&apart)) {
        double allowed = dtype == DTYPE_F32 ? 1e-5 : dtype == DTYPE_BF16 ? 0x1p-8 : 0x1p-10;
        Value gradient = node_value(f->graph->nodes[GRADIENTS], 0);
        double error = cuda_kernel_run_error(joined, gradient, 1e-6, true);
        CHECK(error <= allowed, "error %.3g", error);
        check_value(f, joined, &apart, LSE);
        check_value(f, joined, &apart, PICKED);
        check_value(f, joined, &apart, GRADIENTS);
    }
    cuda_kernel_run_destroy(&apart);
}

/* The commands of node 4 are said to write the leaf's memory. */
static void spoil(CudaKernelRun *run, int leaf, Arena *arena) {
    for (int i = run->first_command[0][4]; i < run->first_command[0][5]; i++) {
        Access *access = ARENA_NEW(arena, Access);
        *access = access_to(buffer_of(run, leaf), 4, true);
        run->lists[0].items[i].accesses = access;
        run->lists[0].items[i].n_accesses = 1;
    }
}

static void check_case(const Case *c, const char *dtype, int words) {
    CudaFixture f;
    CudaKernelRun run;
    Arena *arena = arena_create();
    CudaRunHooks hooks = {.generated = kernel_cache_create(arena)};
    StrBuf text = strbuf_create();
    put_text(&text, c->nodes, dtype, words);
    check_begin(arena_printf(arena, "%s, %s, %d words", c->name, dtype, words));
    if (cuda_fixture_create(&f, NULL, text.text)) {
        reference_run(f.reference);
        bool bound = cuda_kernel_run_create(&run, f.reference, c->apart ? -1 : 0, &hooks, f.diag);
        CHECK(bound, "%s", diag_text(f.diag));
        cuda_describe_commands(&run, arena);
        CommandList *list = &run.lists[0];
        if (c->spoiled >= 0) spoil(&run, c->spoiled, arena);
        if (c->later) list->items[list->count - 1].info.micro = 1;
        int before = list->count, n_gone = cuda_fuse_losses(list, arena);
        CHECK(n_gone == c->n_gone, "%d launches gone", n_gone);
        CHECK(list->count == before - n_gone, "%d commands of %d", list->count, before);
        if (bound && n_gone)
            run_and_compare(&f, &run, &hooks, (DType)dtype_find(dtype, (int)strlen(dtype)));
        cuda_kernel_run_destroy(&run);
    }
    check_end();
    cuda_fixture_destroy(&f);
    strbuf_destroy(&text);
    arena_destroy(arena);
}

/* In the last stage of plans: of so many micro-batches. */
static void check_plan(const char *schedule, int t, int p, int loss_parts, int expected) {
    enum { BATCH = 8 };
    static const ModelSetting SETTINGS[] = {{"layers", "4"}};
    const Layout layout = {t, 1, p, 2, 1, schedule, false, NULL, 0};
    Run run;
    CommandList list = {0};
    char name[96];
    int n_joined = 0, n_apart = 0;
    run_loss_parts = loss_parts;
    snprintf(name, sizeof(name), "%s, t=%d p=%d, the loss in %d", schedule, t, p, loss_parts);
    check_begin(name);
    bool good = run_plan_for(&run, "models/gpt.lua", SETTINGS, 1, &layout, BATCH, false, true,
                             DTYPE_BF16) &&
                cuda_emit_stage(run.plan, p - 1, NULL, NULL, run.arena,
                                kernel_cache_create(run.arena), &list, run.diag);
    CHECK(good, "%s", diag_text(run.diag));
    for (int i = 0; i < list.count; i++) {
        const Command *command = &list.items[i];
        if (command->kind != COMMAND_LAUNCH || command->launch.generated) continue;
        n_joined += command->launch.kernel == KERNEL_cross_entropy_bf16;
        n_apart += command->launch.kernel == KERNEL_cross_entropy_grad_bf16;
    }
    CHECK(n_joined == expected, "%d joined, not %d", n_joined, expected);
    CHECK(n_joined + n_apart == BATCH / 2 * loss_parts, "%d gradients", n_joined + n_apart);
    check_end();
    command_list_release(&list);
    run_close(&run);
    run_loss_parts = 1;
}

int main(void) {
    if (cuda_check_missing()) return 0;
    check_plan("1f1b", 1, 1, 1, 4);
    check_plan("1f1b", 1, 2, 1, 4);
    check_plan("zb-h1", 1, 2, 1, 4);
    check_plan("gpipe", 1, 2, 1, 0);
    check_plan("1f1b", 1, 2, 4, 16);
    check_plan("gpipe", 1, 2, 4, 16); /* parts are made in the backward */
    check_plan("1f1b", 2, 1, 1, 0);
    /* Rows that begin anywhere; of whole vectors; of more than a block's threads have at once; one
     * that does not fit in any dtype but 16 bits. */
    static const int WORDS[] = {1, 41, 96, 5003, 20480};
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        for (size_t w = 0; w < sizeof(WORDS) / sizeof(WORDS[0]); w++) {
            if (i && w != 1) continue;
            check_case(&CASES[i], "f32", WORDS[w]);
            check_case(&CASES[i], "bf16", WORDS[w]);
            check_case(&CASES[i], "f16", WORDS[w]);
        }
    }
    check_case(&(Case){"a row too long to keep", CASES[0].nodes, 0, false, -1, false}, "f32",
               25217);
    check_case(&(Case){"the longest row", CASES[0].nodes, 2, false, -1, false}, "f32", 25216);
    return check_report();
}
