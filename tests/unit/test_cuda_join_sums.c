/* Sums that are alike in one launch: which are joined, and that the bits are those of one after the
 * other.
 *
 * Would catch: sums that differ in shape, in what they add to, or in task; operands that change, or
 * results that something uses, before a sum's own place; tensors that are not equally far apart;
 * chunks for which there is no room; results exchanged.
 */
#include "runtime/cuda/codegen.h"
#include "runtime/cuda/join_sums.h"
#include "runtime/cuda/kernels/args.h"
#include "tests/support/gpu_run.h"
#include "tests/unit/cuda_check.h"

enum { N_SUMS = 3, COLUMNS = 40, WORKSPACE = 1 << 20 };
typedef enum Spoil {
    NOTHING,
    OPERAND, /* the second sum's operand is written between the first two */
    RESULT,  /* its result is read there */
    TASK,    /* the third is another task's */
    ADDS,    /* the third adds to what is there */
    PLACE,   /* the third's operand is not as far from the second as that from the first */
    WORKSPACE_ROOM
} Spoil;

typedef struct Case {
    const char *name;
    Spoil spoil;
    int n_joined;         /* sums that are gone */
    int n_joined_chunked; /* where chunks are joined */
} Case;
static const Case CASES[] = {
    {"three sums", NOTHING, 2, 2},
    {"an operand that comes later", OPERAND, 1, 1},
    {"a result that is used before", RESULT, 1, 1},
    {"a sum of another task", TASK, 1, 1},
    {"a sum that adds", ADDS, 1, 1},
    {"operands at other distances", PLACE, 1, 1},
    {"too little workspace", WORKSPACE_ROOM, 2, 0},
};

/* Operands one after the other, results likewise: as plans lay them out. */
typedef struct Bench {
    unsigned char *x;
    float *out, *workspace;
    int64_t x_bytes;
} Bench;

static void fill(Bench *bench, DType dtype, int rows) {
    int64_t n = (int64_t)(N_SUMS + 1) * rows * COLUMNS;
    bench->x_bytes = (int64_t)rows * COLUMNS * dtype_bytes(dtype);
    bench->x = gpu_run_alloc((size_t)(n * dtype_bytes(dtype)));
    bench->out = gpu_run_alloc(N_SUMS * COLUMNS * sizeof(float));
    bench->workspace = gpu_run_alloc(WORKSPACE);
    for (int64_t i = 0; i < n; i++) {
        float value = (float)(i * 7919 % 1009) / 1009 - 0.5f;
        uint32_t bits;
        memcpy(&bits, &value, sizeof(bits));
        if (dtype == DTYPE_F32) {
            ((float *)bench->x)[i] = value;
        } else { /* bf16, cut off */
            ((uint16_t *)bench->x)[i] = (uint16_t)(bits >> 16);
        }
    }
}

static void point_at(CommandList *list, const Bench *bench, const int *first, int k, int place) {
    for (int i = first[k]; i < first[k + 1]; i++) {
        Command *command = &list->items[i];
        bool rows = command->launch.kernel != KERNEL_reduce_finish;
        bool last = i + 1 == first[k + 1];
        if (rows) {
            ReduceArgs *args = (ReduceArgs *)command->launch.args;
            args->x = bench->x + place * bench->x_bytes;
            args->out = last ? bench->out + k * COLUMNS : bench->workspace;
        } else {
            ReduceFinishArgs *args = (ReduceFinishArgs *)command->launch.args;
            args->partial = bench->workspace;
            args->out = bench->out + k * COLUMNS;
        }
    }
}

static void describe(CommandList *list, const Bench *bench, const int *first, int k, int place,
                     int64_t workspace, Arena *arena) {
    Access *accesses = ARENA_ARRAY(arena, Access, 3);
    accesses[0] = access_to(bench->x + place * bench->x_bytes, bench->x_bytes, false);
    accesses[1] = access_to(bench->out + k * COLUMNS, COLUMNS * sizeof(float), true);
    accesses[2] = access_to(bench->workspace, workspace, true);
    accesses[2].workspace = true;
    for (int i = first[k]; i < first[k + 1]; i++) {
        list->items[i].accesses = accesses;
        list->items[i].n_accesses = 3;
    }
}

/* Another command between the first two sums, which is not run. */
static void insert(CommandList *list, int at, Access access, Arena *arena) {
    Access *accesses = ARENA_NEW(arena, Access);
    Command other = {.kind = COMMAND_FILL, .info = list->items[0].info, .n_accesses = 1};
    *accesses = access;
    other.accesses = accesses;
    command_list_push(list, &other);
    for (int i = list->count - 1; i > at; i--) list->items[i] = list->items[i - 1];
    list->items[at] = other;
}

static void run_list(const CommandList *list, const CudaRunHooks *hooks) {
    const char *why = "";
    for (int i = 0; i < list->count; i++) {
        if (list->items[i].kind == COMMAND_LAUNCH)
            CHECK(cuda_run_command(&list->items[i], hooks, &why), "%s", why);
    }
}

static void check_case(const Case *c, DType dtype, int rows) {
    CudaFixture f;
    CudaKernelRun run;
    Arena *arena = arena_create();
    CudaRunHooks hooks = {.generated = kernel_cache_create(arena)};
    StrBuf text = strbuf_create();
    Bench bench;
    float apart[N_SUMS * COLUMNS];
    for (int k = 0; k < N_SUMS; k++) {
        strbuf_printf(&text, "%%%d = input() {name=\"\"} : %s[rows=%d, cols=%d]\n", k,
                      dtype_name(dtype), rows, COLUMNS);
    }
    for (int k = 0; k < N_SUMS; k++) {
        strbuf_printf(&text,
                      "%%%d = reduce_sum(%%%d) {over=[rows], dtype=\"f32\"} : f32[cols=%d]\n",
                      N_SUMS + k, k, COLUMNS);
    }
    fill(&bench, dtype, rows);
    check_begin(arena_printf(arena, "%s, %s, %d rows", c->name, dtype_name(dtype), rows));
    bool made = cuda_fixture_create(&f, NULL, text.text);
    CHECK(made, "no fixture");
    bool bound = made && cuda_kernel_run_create(&run, f.reference, -1, &hooks, f.diag);
    CHECK(bound, "%s", made ? diag_text(f.diag) : "");
    if (bound) {
        CommandList *list = &run.lists[0];
        const int *first = run.first_command[0] + N_SUMS;
        int each = first[1] - first[0], before = list->count;
        int n_joined = each > 1 ? c->n_joined_chunked : c->n_joined;
        cuda_describe_commands(&run, arena);
        for (int k = 0; k < N_SUMS; k++) {
            int place = c->spoil == PLACE && k == 2 ? 3 : k;
            point_at(list, &bench, first, k, place);
            describe(list, &bench, first, k, place, c->spoil == WORKSPACE_ROOM ? 4 : WORKSPACE,
                     arena);
        }
        Command *third = &list->items[first[2]];
        for (int i = 0; i < each; i++) {
            if (c->spoil == TASK) third[i].info.micro = 1;
        }
        if (c->spoil == ADDS && each > 1) ((ReduceFinishArgs *)third[1].launch.args)->add = 1;
        if (c->spoil == ADDS && each == 1) ((ReduceArgs *)third->launch.args)->add = 1;
        memset(bench.out, 0, N_SUMS * COLUMNS * sizeof(float));
        run_list(list, &hooks);
        memcpy(apart, bench.out, sizeof(apart));
        memset(bench.out, 0, N_SUMS * COLUMNS * sizeof(float));
        if (c->spoil == OPERAND)
            insert(list, first[1], access_to(bench.x + bench.x_bytes, 4, true), arena);
        if (c->spoil == RESULT)
            insert(list, first[1], access_to(bench.out + COLUMNS, 4, false), arena);
        before = list->count;
        int n_gone = cuda_join_sums(list, arena);
        CHECK(n_gone == n_joined * each, "%d launches gone, not %d", n_gone, n_joined * each);
        CHECK(list->count == before - n_gone, "%d commands of %d", list->count, before);
        run_list(list, &hooks);
        CHECK(memcmp(apart, bench.out, sizeof(apart)) == 0, "other bits");
        cuda_kernel_run_destroy(&run);
    }
    check_end();
    cuda_fixture_destroy(&f);
    gpu_run_free(bench.x);
    gpu_run_free(bench.out);
    gpu_run_free(bench.workspace);
    strbuf_destroy(&text);
    arena_destroy(arena);
}

int main(void) {
    if (cuda_check_missing()) return 0;
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        for (int rows = 19; rows <= 600; rows += 581) { /* in one launch, and in two */
            check_case(&CASES[i], DTYPE_F32, rows);
            check_case(&CASES[i], DTYPE_BF16, rows);
        }
    }
    return check_report();
}
