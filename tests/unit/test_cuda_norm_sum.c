/* Sums over rows of what a layernorm's gradient stores: which become a sum of the norm's own, and
 * what that is.
 *
 * Would catch: sums of other norms, of other axes or in 16 bits folded; rows that change, or memory
 * that something else uses, before the sum was made; a sum that leaves rows or groups out, or is of
 * what the norm has before the addend; gain's or bias's sums that move with it.
 */
#include "runtime/cuda/codegen.h"
#include "runtime/cuda/norm_addend.h"
#include "runtime/cuda/norm_sum.h"
#include "tests/support/gpu_run.h"
#include "tests/unit/cuda_check.h"

/* $ is the dtype, # the number of columns, ~ of rows, @ is $[rows=~, cols=#]. */
static const char LEAVES[] = "%0 = input() {name=\"\"} : @\n"
                             "%1 = input() {name=\"+\"} : f32[cols=#]\n"
                             "%2 = input() {name=\"\"} : f32[rows=~]\n"
                             "%3 = input() {name=\"+\"} : f32[rows=~]\n"
                             "%4 = input() {name=\"\"} : @\n"
                             "%5 = input() {name=\"\"} : @\n";
#define LAYERNORM                                                                                  \
    "%6:3 = layernorm_grad(%0, %1, %2, %3, %4) {axis=cols} : @, f32[cols=#], f32[cols=#]\n"
#define RMSNORM "%6:2 = rmsnorm_grad(%0, %1, %3, %4) {axis=cols} : @, f32[cols=#]\n"
#define SUM(number, of)                                                                            \
    "%" number " = reduce_sum(%" of ") {over=[rows], dtype=\"f32\"} : f32[cols=#]\n"

typedef struct Case {
    const char *name, *nodes;
    int summed;  /* the node whose launches are gone, or 0 */
    int spoiled; /* the value that node 7, a copy, is said to write; 0: it does what it says */
} Case;

static const Case CASES[] = {
    {"a sum of the gradient", LAYERNORM SUM("7", "6"), 7, 0},
    {"with what came past the norm", LAYERNORM "%7 = add(%5, %6) : @\n" SUM("8", "7"), 8, 0},
    {"a command in between", LAYERNORM "%7 = copy(%5) : @\n" SUM("8", "6"), 8, 0},
    {"two sums: the first", LAYERNORM SUM("7", "6") SUM("8", "6"), 7, 0},
    /* What must be left alone. */
    {"rows that change in between", LAYERNORM "%7 = copy(%5) : @\n" SUM("8", "6"), 0, 6},
    {"a sum whose memory is used before", LAYERNORM "%7 = copy(%5) : @\n" SUM("8", "6"), 0, 8},
    {"a sum of something else", LAYERNORM SUM("7", "5"), 0, 0},
    {"an rmsnorm", RMSNORM SUM("7", "6"), 0, 0},
    {"a sum of columns",
     LAYERNORM "%7 = reduce_sum(%6) {over=[cols], dtype=\"f32\"} : f32[rows=~]\n", 0, 0},
};

static void put_text(StrBuf *out, const char *text, const char *dtype, int rows, int columns) {
    for (; *text; text++) {
        switch (*text) {
        case '@': strbuf_printf(out, "%s[rows=%d, cols=%d]", dtype, rows, columns); break;
        case '$': strbuf_put(out, dtype); break;
        case '#': strbuf_printf(out, "%d", columns); break;
        case '~': strbuf_printf(out, "%d", rows); break;
        default: strbuf_put_bytes(out, text, 1);
        }
    }
}

/* The commands of node 7 are said to write the value's memory, and nothing else. */
static void spoil(CudaKernelRun *run, int value, Arena *arena) {
    for (int i = run->first_command[0][7]; i < run->first_command[0][8]; i++) {
        Access *access = ARENA_NEW(arena, Access);
        *access = access_to(run->base.ranks[0].buffers[value * MAX_OUTPUTS], 4, true);
        run->lists[0].items[i].accesses = access;
        run->lists[0].items[i].n_accesses = 1;
    }
}

/* Of the norm at `at`: so many rows to a group. */
static void regroup(CommandList *list, int at, int64_t per_group, Arena *arena) {
    LaunchCommand *rows = &list->items[at].launch, *join = &list->items[at + 1].launch;
    NormGradArgs *args = ARENA_NEW(arena, NormGradArgs);
    NormJoinArgs *joined = ARENA_NEW(arena, NormJoinArgs);
    *args = *(const NormGradArgs *)rows->args;
    *joined = *(const NormJoinArgs *)join->args;
    args->rows_per_group = per_group;
    joined->groups = (args->rows + per_group - 1) / per_group;
    rows->grid.x = (uint32_t)joined->groups;
    rows->args = args;
    join->args = joined;
}

static int count_of(const CommandList *list, const Node *node) {
    int count = 0;
    for (int i = 0; i < list->count; i++) count += list->items[i].info.node == node;
    return count;
}

static void compare(CudaFixture *f, CudaKernelRun *run, const Case *c, DType dtype) {
    Node *norm = f->graph->nodes[6], *sum = f->graph->nodes[c->summed];
    double rounding = dtype == DTYPE_F32 ? 0 : dtype == DTYPE_BF16 ? 0x1p-9 : 0x1p-12;
    if (!cuda_run_launches(run)) return;
    for (int o = 1; o < 3; o++) {
        double error = cuda_kernel_run_error(run, node_value(norm, o), 0, true);
        CHECK(error <= 3e-6, "the norm's result %d: error %.3g", o, error);
    }
    /* The reference adds up what it has rounded; errors are of the largest sum. */
    double error = cuda_kernel_run_error(run, node_value(sum, 0), 0, true);
    CHECK(error <= 3e-6 + 5 * rounding, "error %.3g", error);
}

/* per_group: rows of a group; 0: as they are bound. */
static void check_case(const Case *c, const char *dtype, int rows, int columns, int per_group) {
    CudaFixture f;
    CudaKernelRun run;
    Arena *arena = arena_create();
    CudaRunHooks hooks = {.generated = kernel_cache_create(arena)};
    StrBuf text = strbuf_create();
    put_text(&text, LEAVES, dtype, rows, columns);
    put_text(&text, c->nodes, dtype, rows, columns);
    check_begin(arena_printf(arena, "%s, %s, %d x %d%s", c->name, dtype, rows, columns,
                             per_group ? " in large groups" : ""));
    if (cuda_fixture_create(&f, NULL, text.text)) {
        reference_run(f.reference);
        bool bound = cuda_kernel_run_create(&run, f.reference, -1, &hooks, f.diag);
        CHECK(bound, "%s", diag_text(f.diag));
        cuda_describe_commands(&run, arena);
        CommandList *list = &run.lists[0];
        if (c->spoiled) spoil(&run, c->spoiled, arena);
        cuda_fold_norm_addends(list, f.graph, arena);
        bool whole = columns % 8 == 0; /* rows that the norm takes in one turn */
        const Node *summed = c->summed && whole ? f.graph->nodes[c->summed] : NULL;
        int expected = summed ? count_of(list, summed) : 0, before = list->count;
        int n_gone = cuda_fold_norm_sums(list, f.graph, arena);
        CHECK(n_gone == expected, "%d launches gone, not %d", n_gone, expected);
        CHECK(list->count == before - n_gone, "%d commands of %d", list->count, before);
        CHECK(!summed || count_of(list, summed) == 0, "others are gone");
        CHECK(cuda_fold_norm_sums(list, f.graph, arena) == 0, "a norm makes two");
        if (n_gone && per_group) regroup(list, run.first_command[0][6], per_group, arena);
        if (bound && n_gone) compare(&f, &run, c, (DType)dtype_find(dtype, (int)strlen(dtype)));
        cuda_kernel_run_destroy(&run);
    }
    check_end();
    cuda_fixture_destroy(&f);
    strbuf_destroy(&text);
    arena_destroy(arena);
}

int main(void) {
    if (cuda_check_missing()) return 0;
    /* Three groups, the last of them short; sums in one launch and in two; groups of many rows; two
     * packs a thread; of no whole vectors. */
    static const int SIZES[][3] = {
        {19, 40, 0}, {600, 24, 0}, {600, 24, 70}, {19, 2056, 0}, {19, 37, 0}};
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        for (size_t s = 0; s < sizeof(SIZES) / sizeof(SIZES[0]); s++) {
            check_case(&CASES[i], "f32", SIZES[s][0], SIZES[s][1], SIZES[s][2]);
            check_case(&CASES[i], "bf16", SIZES[s][0], SIZES[s][1], SIZES[s][2]);
            check_case(&CASES[i], "f16", SIZES[s][0], SIZES[s][1], SIZES[s][2]);
        }
    }
    return check_report();
}
