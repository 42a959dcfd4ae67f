/* The gradient through q, k and v as one product: which are, and that everything then has the
 * numbers that it had.
 *
 * Would catch: a gradient read where it no longer lies, weights in another order than the
 * gradients, an addend left out or added twice, memory that something else uses by then, a reader
 * that is not known, a copy of weights that are changed before they are used, launches that do not
 * run at all.
 */
#include "runtime/cuda/codegen.h"
#include "runtime/cuda/emit.h"
#include "runtime/cuda/stack_products.h"
#include "tests/support/gpu_run.h"
#include "tests/unit/cuda_check.h"
#include "tests/unit/train_fixture.h"

/* What every case begins with: $ is the dtype; queries of @ heads for each key's, heads of &. The
 * gradients are %5 (dq), %5.1 and %5.2; %6 what q, k and v came from, %7 to %9 their weights, %10
 * what else is added. */
#define POSITIONS "batch=2, seq=24"
#define KEYS      "kv=2, head=&"
#define QUERIES   "kv=2, group=@, head=&"
static const char LEAVES[] =
    "%0 = input() {name=\"\"} : $[" POSITIONS ", " QUERIES "]\n"
    "%1 = input() {name=\"\"} : $[" POSITIONS ", " KEYS "]\n"
    "%2 = input() {name=\"\"} : $[" POSITIONS ", " KEYS "]\n"
    "%3 = input() {name=\"\"} : $[" POSITIONS ", " QUERIES "]\n"
    "%4:2 = attention(%0, %1, %2) {seq=seq, head=head, causal=1, scale=0.35} : $[" POSITIONS
    ", " QUERIES "], f32[" POSITIONS ", kv=2, group=@]\n"
    "%5:3 = attention_grad(%0, %1, %2, %4, %4.1, %3) {seq=seq, head=head, causal=1, scale=0.35} : "
    "$[" POSITIONS ", " QUERIES "], $[" POSITIONS ", " KEYS "], $[" POSITIONS ", " KEYS "]\n"
    "%6 = input() {name=\"\"} : $[" POSITIONS ", model=24]\n"
    "%7 = input() {name=\"\"} : $[model=24, " QUERIES "]\n"
    "%8 = input() {name=\"\"} : $[model=24, " KEYS "]\n"
    "%9 = input() {name=\"\"} : $[model=24, " KEYS "]\n"
    "%10 = input() {name=\"\"} : $[" POSITIONS ", model=24]\n";
#define X "$[" POSITIONS ", model=24]\n"
/* Of the gradients or of what rotary makes of them: through q, k and v; of weights; of biases. */
#define KEYS_THROUGH(of, weights) " = matmul(" of ", " weights ") {over=[kv, head]} : " X
#define QUERIES_THROUGH(of)       " = matmul(" of ", %7) {over=[kv, group, head]} : " X
#define WEIGHTS(of, heads)                                                                         \
    " = matmul(%6, " of ") {over=[batch, seq], dtype=\"f32\"} : f32[model=24, " heads "]\n"
#define TURNED(of, heads, more)                                                                    \
    " = rotary(" of ") {seq=seq, head=head, direction=-1, " more "} : $[" POSITIONS ", " heads "]" \
    "\n"
#define DV    KEYS_THROUGH("%5.2", "%9")
#define DK    KEYS_THROUGH("%5.1", "%8")
#define DQ    QUERIES_THROUGH("%5")
#define WV    WEIGHTS("%5.2", KEYS)
#define WK    WEIGHTS("%5.1", KEYS)
#define WQ    WEIGHTS("%5", QUERIES)
#define BV    " = reduce_sum(%5.2) {over=[batch, seq], dtype=\"f32\"} : f32[" KEYS "]\n"
#define BK    " = reduce_sum(%5.1) {over=[batch, seq], dtype=\"f32\"} : f32[" KEYS "]\n"
#define BQ    " = reduce_sum(%5) {over=[batch, seq], dtype=\"f32\"} : f32[" QUERIES "]\n"
#define SUM   "%14 = add(%11, %12) : " X "%15 = add(%14, %13) : " X
#define CHAIN "%11" DV "%12" DK "%13" DQ SUM
#define REST  "%16" WV "%17" WK "%18" WQ
/* Turned back by rotary; then k and q, as %11 and %12. */
#define TURN_Q TURNED("%5", QUERIES, "base=100")
#define TURN_K TURNED("%5.1", KEYS, "base=100")
#define TURN_V TURNED("%5.2", KEYS, "base=100")
#define TURN   "%11" TURN_K "%12" TURN_Q
/* The sum of what comes through these, behind two nodes or three, and the weights' gradients. */
#define CHAIN_OF(v, k, q)                                                                          \
    "%13" KEYS_THROUGH(v, "%9") "%14" KEYS_THROUGH(k, "%8") "%15" QUERIES_THROUGH(                 \
        q) "%16 = add(%13, %14) : " X "%17 = add(%16, %15) : " X
#define CHAIN_BEHIND(v, k, q)                                                                      \
    "%14" KEYS_THROUGH(v, "%9") "%15" KEYS_THROUGH(k, "%8") "%16" QUERIES_THROUGH(                 \
        q) "%17 = add(%14, %15) : " X "%18 = add(%17, %16) : " X
#define REST_OF(v, k, q) "%18" WEIGHTS(v, KEYS) "%19" WEIGHTS(k, KEYS) "%20" WEIGHTS(q, QUERIES)
#define TURNED_REST      CHAIN_OF("%5.2", "%11", "%12") REST_OF("%5.2", "%11", "%12")

typedef struct Case {
    const char *name, *nodes;
    int sum; /* the node that has all of it */
    bool stacked;
    void (*change)(CudaKernelRun *run); /* of the commands, or NULL */
    int64_t lacks;                      /* bytes of the room for weights */
} Case;

static Command *command_of(CudaKernelRun *run, int node) {
    return &run->lists[0].items[run->first_command[0][node]];
}

static void add_access(CudaKernelRun *run, int at, int leaf, int output, bool write) {
    Command *command = command_of(run, at);
    Access *accesses = ARENA_ARRAY(run->base.reference->arena, Access, command->n_accesses + 1);
    memcpy(accesses, command->accesses, sizeof(*accesses) * (size_t)command->n_accesses);
    accesses[command->n_accesses++] =
        access_to(run->base.ranks[0].buffers[leaf * MAX_OUTPUTS + output], 4, write);
    command->accesses = accesses;
}
static void other_micro(CudaKernelRun *run) {
    command_of(run, 18)->info.micro = 1;
}
static void other_stream(CudaKernelRun *run) {
    command_of(run, 18)->stream = STREAM_DATA;
}
static void write_gradient(CudaKernelRun *run) {
    add_access(run, 19, 5, 2, true);
}
static void write_weight(CudaKernelRun *run) {
    add_access(run, 12, 9, 0, true);
}
static void read_gradient(CudaKernelRun *run) {
    add_access(run, 19, 5, 1, false);
}
static void write_addend(CudaKernelRun *run) {
    add_access(run, 15, 10, 0, true);
}
/* Rows of three are more than 32 bits count. */
static void long_sequence(CudaKernelRun *run) {
    for (int i = run->first_command[0][5]; i < run->first_command[0][6]; i++)
        ((AttentionBackwardArgs *)run->lists[0].items[i].launch.args)->sizes.seq = 1 << 30;
}
static void message_between(CudaKernelRun *run) {
    command_of(run, 19)->kind = COMMAND_RECV;
}
static void turn_in_other_micro(CudaKernelRun *run) {
    command_of(run, 12)->info.micro = 1;
}
static void turn_on_other_stream(CudaKernelRun *run) {
    command_of(run, 11)->stream = STREAM_DATA;
}
static RotaryArgs *turn_args(CudaKernelRun *run) {
    return (RotaryArgs *)command_of(run, 12)->launch.args;
}
static void turn_one_sequence(CudaKernelRun *run) {
    turn_args(run)->batch = 1;
}
static void turn_one_head(CudaKernelRun *run) {
    turn_args(run)->inner = 1;
    turn_args(run)->row = turn_args(run)->head;
}
static void turn_elsewhere(CudaKernelRun *run) {
    add_access(run, 13, 12, 0, true);
}
static void read_turned(CudaKernelRun *run) {
    add_access(run, 13, 11, 0, false);
}
static void with_gelu(CudaKernelRun *run) {
    command_of(run, 11)->gemm.epilogue = EPILOGUE_GELU;
}

static const Case CASES[] = {
    {"as in a transformer's block", CHAIN REST "%19" BV "%20" BK "%21" BQ, 15, true, NULL, 0},
    {"each with its weight's and bias's",
     "%11" DV "%12" DK "%13" BV "%14" WV "%15" BK "%16" WK "%17" BQ "%18" DQ
     "%19 = add(%11, %12) : " X "%20 = add(%19, %18) : " X "%21" WQ,
     20, true, NULL, 0},
    {"in one fused sum",
     "%11" DV "%12" DK "%13" DQ "%14 = fused(%11, %12, %13) {program=\"t0=add(i0,i1) "
     "t1=add(t0,i2) -> t1\"} : " X "%15 = copy(%14) : " X REST,
     14, true, NULL, 0},
    {"q first", "%11" DQ "%12" DK "%13" DV SUM REST, 15, true, NULL, 0},
    {"without other readers", CHAIN, 15, true, NULL, 0},
    {"with what came past",
     "%11" DV "%12" DK "%13" DQ "%14 = add(%10, %11) : " X "%15 = add(%14, %12) : " X
     "%16 = add(%15, %13) : " X "%17" WV "%18" WK "%19" WQ,
     16, true, NULL, 0},
    /* What must be left alone. */
    {"no room for the weights", CHAIN REST, 15, false, NULL, 2},
    {"another reads a gradient", CHAIN REST "%19 = copy(%5.1) : $[" POSITIONS ", " KEYS "]\n", 15,
     false, NULL, 0},
    {"a gradient that is an output", CHAIN REST "output(%5) {name=\"dq\"}\n", 15, false, NULL, 0},
    {"a sum on the way is read", CHAIN REST "%19 = copy(%14) : " X, 15, false, NULL, 0},
    {"two are added up", "%11" DV "%12" DK "%13" DQ "%14 = add(%11, %12) : " X, 14, false, NULL, 0},
    {"one is added twice",
     "%11" DV "%12" DK "%13" DQ "%14 = add(%11, %12) : " X "%15 = add(%14, %13) : " X
     "%16 = add(%15, %13) : " X,
     16, false, NULL, 0},
    {"a reader in another micro-batch", CHAIN REST, 15, false, other_micro, 0},
    {"a reader on another stream", CHAIN REST, 15, false, other_stream, 0},
    {"gradients are written over before all have read them",
     CHAIN "%16" WV "%17" WK "%18 = copy(%6) : " X "%19 = copy(%6) : " X "%20" WQ, 15, false,
     write_gradient, 0},
    {"a weight changes before the last product",
     "%11" DV "%12 = copy(%6) : " X "%13" DK "%14" DQ "%15 = add(%11, %13) : " X
     "%16 = add(%15, %14) : " X,
     16, false, write_weight, 0},
    {"the addend changes before the last product",
     "%11" DV "%12" DK "%13" DQ "%14 = add(%10, %11) : " X "%15 = copy(%6) : " X
     "%16 = add(%14, %12) : " X "%17 = add(%16, %13) : " X,
     17, false, write_addend, 0},
    {"a long sequence", CHAIN REST, 15, false, long_sequence, 0},
    {"an unknown reader",
     CHAIN "%16" WV "%17" WK "%18 = copy(%6) : " X "%19 = copy(%6) : " X "%20" WQ, 15, false,
     read_gradient, 0},
    {"a message in between",
     CHAIN "%16" WV "%17" WK "%18 = copy(%6) : " X "%19 = copy(%6) : " X "%20" WQ, 15, false,
     message_between, 0},
    {"gelu of the first", CHAIN REST, 15, false, with_gelu, 0},
};

/* Where rotary turns q and k, it turns their gradients back, in their places. */
static const struct {
    Case c;
    int n_turns; /* launches of rotary, where products are stacked */
} TURNED_CASES[] = {
    {{"turned by rotary", TURN TURNED_REST, 17, true, NULL, 0}, 1},
    {{"turned, q first",
      "%11" TURN_Q "%12" TURN_K CHAIN_OF("%5.2", "%12", "%11") REST_OF("%5.2", "%12", "%11"), 17,
      true, NULL, 0},
     1},
    {{"turned in part",
      "%11" TURNED("%5.1", KEYS, "base=100, turned=4") "%12" TURNED(
          "%5", QUERIES, "base=100, turned=4") TURNED_REST,
      17, true, NULL, 0},
     1},
    {{"turned to other frequencies",
      "%11" TURNED("%5.1", KEYS, "base=100, factors=\"1,2.5,7e0\", turned=6") "%12" TURNED(
          "%5", QUERIES, "base=100, factors=\"1,2.5,7.5e0\", turned=6") TURNED_REST,
      17, true, NULL, 0},
     2},
    {{"turned to given positions",
      "%11 = input() {name=\"#90\"} : i32[" POSITIONS "]\n"
      "%12" TURNED("%5.1, %11", KEYS, "base=100") "%13" TURNED("%5, %11", QUERIES, "base=100")
          CHAIN_BEHIND("%5.2", "%12", "%13"),
      18, true, NULL, 0},
     1},
    {{"only q turned",
      "%11 = copy(%6) : " X "%12" TURN_Q CHAIN_OF("%5.2", "%5.1", "%12")
          REST_OF("%5.2", "%5.1", "%12"),
      17, true, NULL, 0},
     1},
    {{"with a reader between turning k and q",
      "%11" TURN_K "%12" WEIGHTS("%11", KEYS) "%13" TURN_Q CHAIN_BEHIND("%5.2", "%11", "%13"), 18,
      true, NULL, 0},
     2},
    {{"with something else between turning k and q",
      "%11" TURN_K "%12 = copy(%6) : " X "%13" TURN_Q CHAIN_BEHIND("%5.2", "%11", "%13"), 18, true,
      NULL, 0},
     2},
    {{"q and v turned, which are not side by side",
      "%11" TURN_V "%12" TURN_Q CHAIN_OF("%11", "%5.1", "%12") REST_OF("%11", "%5.1", "%12"), 17,
      true, NULL, 0},
     2},
    {{"all three turned", "%11" TURN_Q "%12" TURN_K "%13" TURN_V CHAIN_BEHIND("%13", "%12", "%11"),
      18, true, NULL, 0},
     1},
    {{"a bias's sum before it is turned",
      "%11" BK "%12" TURN_K CHAIN_OF("%5.2", "%12", "%5") REST_OF("%5.2", "%12", "%5"), 17, true,
      NULL, 0},
     1},
    /* What must be left alone. */
    {{"what is not turned yet is read later",
      TURN CHAIN_OF("%5.2", "%11", "%12") REST_OF("%5.2", "%11", "%5"), 17, false, NULL, 0},
     0},
    {{"turned after its product",
      "%11" DQ "%12" TURN_Q "%13" DK "%14" DV "%15 = add(%11, %13) : " X "%16 = add(%15, %14) : " X
      "%17" WEIGHTS("%12", QUERIES),
      16, false, NULL, 0},
     0},
    {{"what is turned is an output", TURN TURNED_REST "output(%12) {name=\"dq\"}\n", 17, false,
      NULL, 0},
     0},
    {{"another reads what is turned",
      TURN TURNED_REST "%21 = copy(%11) : $[" POSITIONS ", " KEYS "]\n", 17, false, NULL, 0},
     0},
    {{"turned in another micro-batch", TURN TURNED_REST, 17, false, turn_in_other_micro, 0}, 0},
    {{"turned on another stream", TURN TURNED_REST, 17, false, turn_on_other_stream, 0}, 0},
    {{"one sequence turned", TURN TURNED_REST, 17, false, turn_one_sequence, 0}, 0},
    {{"one head turned", TURN TURNED_REST, 17, false, turn_one_head, 0}, 0},
    {{"written between turning and products",
      TURN "%13 = copy(%6) : " X CHAIN_BEHIND("%5.2", "%11", "%12"), 18, false, turn_elsewhere, 0},
     0},
    {{"read between turning and products",
      TURN "%13 = copy(%6) : " X CHAIN_BEHIND("%5.2", "%11", "%12"), 18, false, read_turned, 0},
     0},
};

static int64_t weights_bytes(const CudaKernelRun *run) {
    const Graph *graph = run->base.reference->graph;
    int64_t bytes = 0;
    for (int n = 7; n <= 9; n++) bytes += cuda_value_bytes(graph, node_value(graph->nodes[n], 0));
    return bytes;
}

/* How a case is run. */
typedef struct Form {
    const char *dtype;
    int group, head;
    const AttentionCheck *attention;
    int64_t most_workspace_bytes; /* CudaRunHooks */
    bool never;                   /* stacked */
} Form;

static void put_text(StrBuf *out, const char *text, const Form *form) {
    for (; *text; text++) {
        switch (*text) {
        case '$': strbuf_put(out, form->dtype); break;
        case '@': strbuf_printf(out, "%d", form->group); break;
        case '&': strbuf_printf(out, "%d", form->head); break;
        default: strbuf_put_bytes(out, text, 1);
        }
    }
}

static AttentionKernels use_joint(void *user, const AttentionCommand *attention) {
    (void)user;
    bool joint = cuda_attention_has_joint(&attention->shape, attention->workspace_bytes);
    return joint ? ATTENTION_JOINT : ATTENTION_WGMMA;
}

static AttentionKernels use_library(void *user, const AttentionCommand *attention) {
    (void)user;
    return attention->shape.backward ? ATTENTION_CUDNN : ATTENTION_MMA;
}

/* `user`: can it? */
static bool lays_out(void *user, const AttentionCommand *attention) {
    const bool *can = user;
    CHECK(attention->shape.gradient_row == 48, "rows of %lld numbers",
          (long long)attention->shape.gradient_row);
    return *can;
}

static int fold(CudaKernelRun *run, StackRoom room, Arena *arena) {
    static const EpilogueCheck ALL = {NULL, NULL, NULL, NULL};
    const Graph *graph = run->base.reference->graph;
    cuda_fold_epilogues(&run->lists[0], graph, &ALL, arena);
    return cuda_stack_products(&run->lists[0], graph, room, run->hooks.attention, arena);
}

static bool is_turn(const Command *command) {
    static const KernelsByDtype ROTARY = KERNELS_BY_DTYPE(rotary);
    return command->kind == COMMAND_LAUNCH && !command->launch.generated &&
           kernel_is_of(&ROTARY, command->launch.kernel);
}

static int count_turns(const CommandList *list) {
    int n = 0;
    for (int i = 0; i < list->count; i++) n += is_turn(&list->items[i]);
    return n;
}

/* Everything that a command makes but the gradients themselves and sums on the way. */
static void compare(const CudaKernelRun *stacked, const CudaKernelRun *apart, int sum,
                    DType dtype) {
    const Graph *graph = stacked->base.reference->graph;
    for (int n = 11; n < graph->n_nodes; n++) {
        Node *node = graph->nodes[n];
        const void *now = stacked->base.ranks[0].buffers[n * MAX_OUTPUTS];
        const void *then = apart->base.ranks[0].buffers[n * MAX_OUTPUTS];
        if (node->types[0].dtype == DTYPE_F32 && node->op != OP_ADD && node->op != OP_FUSED &&
            node->op != OP_ROTARY &&
            !(node->op == OP_MATMUL && dtype == DTYPE_F32 && node->inputs[0].node->id != 6)) {
            if (OPS[node->op].flags & EFFECT || node->op == OP_COPY) continue;
            size_t bytes = (size_t)cuda_value_bytes(graph, node_value(node, 0));
            CHECK(memcmp(now, then, bytes) == 0, "%%%d has other bits", n);
        }
        if (n != sum) continue;
        double error = cuda_kernel_run_error(stacked, node_value(node, 0), 0, true);
        double before = cuda_kernel_run_error(apart, node_value(node, 0), 0, true);
        double allowed = dtype == DTYPE_F32 ? 3e-6 : 2e-2;
        CHECK(error <= allowed && before <= allowed, "%%%d: error %.3g, before %.3g", n, error,
              before);
    }
}

/* k and q, side by side in rows of all three, by one launch. */
static void check_turns(const CudaKernelRun *run) {
    char *const *made = (char *const *)&run->base.ranks[0].buffers[5 * MAX_OUTPUTS];
    for (int i = 0; i < run->lists[0].count; i++) {
        const Command *command = &run->lists[0].items[i];
        const RotaryArgs *args = command->launch.args;
        if (!is_turn(command)) continue;
        CHECK(args->x == made[2] + 32 && args->y == args->x && args->row == 48 && args->inner == 4,
              "%lld heads, rows of %lld", (long long)args->inner, (long long)args->row);
        CHECK(command->n_others == 1 &&
                  command->others[0].node == run->base.reference->graph->nodes[12],
              "stands for one of two");
    }
}

/* Of a library's command: dv first, then dk and dq, in rows of all three. */
static void check_library(const CudaKernelRun *run, bool stacked) {
    void *const *made = &run->base.ranks[0].buffers[5 * MAX_OUTPUTS];
    int n = 0;
    for (int i = 0; i < run->lists[0].count; i++) {
        const AttentionCommand *a = &run->lists[0].items[i].attention;
        if (run->lists[0].items[i].kind != COMMAND_ATTENTION) continue;
        n++;
        CHECK(a->shape.gradient_row == (stacked ? 48 : 0) && a->dv == made[2], "rows of %lld",
              (long long)a->shape.gradient_row);
        CHECK(a->dk == (stacked ? (char *)made[2] + 32 : made[1]) &&
                  a->dq == (stacked ? (char *)made[2] + 64 : made[0]),
              "dq and dk lie elsewhere");
    }
    CHECK(n == 1, "%d commands", n);
    if (stacked) check_turns(run);
}

static void check_case(const Case *c, int n_turns, const Form *form) {
    CudaFixture f;
    CudaKernelRun runs[2];
    Arena *arena = arena_create();
    CudaRunHooks hooks = {.generated = kernel_cache_create(arena),
                          .attention = form->attention,
                          .most_workspace_bytes = form->most_workspace_bytes,
                          .together = true};
    StrBuf text = strbuf_create();
    bool stacked = c->stacked && !form->never;
    put_text(&text, LEAVES, form);
    put_text(&text, c->nodes, form);
    check_begin(arena_printf(arena, "%s, %s, %d heads of %d a key's", c->name, form->dtype,
                             form->group, form->head));
    if (cuda_fixture_create(&f, NULL, text.text)) {
        reference_run(f.reference);
        for (int i = 0; i < 2; i++) {
            bool bound = cuda_kernel_run_create(&runs[i], f.reference, -1, &hooks, f.diag);
            CHECK(bound, "%s", diag_text(f.diag));
            cuda_describe_commands(&runs[i], arena);
            if (c->change) c->change(&runs[i]);
        }
        StackRoom room = {NULL, weights_bytes(&runs[0])}, none = {NULL, 0};
        room.at = gpu_run_alloc((size_t)room.bytes);
        room.bytes -= c->lacks;
        int n_gone = fold(&runs[0], room, arena), n_kept = fold(&runs[1], none, arena);
        CHECK(n_gone == (stacked ? 2 : 0) && n_kept == 0, "%d products gone, %d without room",
              n_gone, n_kept);
        CHECK(!stacked || count_turns(&runs[0].lists[0]) == n_turns, "%d launches of rotary",
              count_turns(&runs[0].lists[0]));
        bool library = form->attention && form->attention->choose == use_library;
        if (stacked && !library && cuda_run_launches(&runs[0]) && cuda_run_launches(&runs[1]))
            compare(&runs[0], &runs[1], c->sum,
                    (DType)dtype_find(form->dtype, (int)strlen(form->dtype)));
        if (library) check_library(&runs[0], stacked);
        gpu_run_free(room.at);
        for (int i = 0; i < 2; i++) cuda_kernel_run_destroy(&runs[i]);
    }
    check_end();
    cuda_fixture_destroy(&f);
    strbuf_destroy(&text);
    arena_destroy(arena);
}

static void test_cases(void) {
    static const Form FORMS[] = {{"bf16", 1, 8, NULL, 0, false},
                                 {"f32", 1, 8, NULL, 0, false},
                                 {"f16", 3, 8, NULL, 0, false}};
    static const AttentionCheck JOINT = {.choose = use_joint};
    static bool can[2] = {false, true};
    /* In one pass a sequence at a time; rows that are no whole 16 bytes. */
    static const Form ONE_BY_ONE = {"bf16", 1, 40, &JOINT, 3000, false};
    static const Form UNALIGNED = {"bf16", 1, 6, NULL, 0, true};
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        for (int k = 0; k < 3; k++) check_case(&CASES[i], 0, &FORMS[k]);
    }
    for (size_t i = 0; i < sizeof(TURNED_CASES) / sizeof(TURNED_CASES[0]); i++) {
        for (int k = 0; k < 3; k++)
            check_case(&TURNED_CASES[i].c, TURNED_CASES[i].n_turns, &FORMS[k]);
    }
    const Case *turned = &TURNED_CASES[0].c;
    if (gpu_run_has_wgmma()) {
        check_case(&CASES[0], 0, &ONE_BY_ONE);
        check_case(turned, 1, &ONE_BY_ONE);
    }
    check_case(&CASES[0], 0, &UNALIGNED);
    check_case(turned, 0, &UNALIGNED);
    for (int k = 0; k < 2; k++) {
        const AttentionCheck library = {
            .choose = use_library, .user = &can[k], .lays_out = lays_out};
        const Form form = {"bf16", 1, 8, &library, 0, !can[k]};
        check_case(&CASES[0], 0, &form);
        check_case(turned, 1, &form);
    }
}

/* --- plans --- */

typedef struct PlanCase {
    const char *model;
    DType precision;
    Layout layout;
    int n_settings;
    ModelSetting settings[3];
    bool stacked;
} PlanCase;

/* Where weights' gradients are made later, tasks are others; BERT adds what came past; Llama's are
 * turned before they are multiplied, by rotary alone or by norms of each head, too. */
static const PlanCase PLANS[] = {
    {"models/gpt.lua", DTYPE_BF16, {1, 1, 1, 2, 1, "1f1b", false, NULL, 0}, 0, {{0}}, true},
    {"models/gpt.lua", DTYPE_F32, {1, 1, 1, 2, 1, "1f1b", false, NULL, 0}, 0, {{0}}, true},
    {"models/gpt.lua", DTYPE_BF16, {2, 1, 1, 2, 1, "1f1b", false, NULL, 0}, 0, {{0}}, true},
    {"models/gpt.lua", DTYPE_BF16, {1, 2, 2, 2, 1, "1f1b", false, NULL, 0}, 0, {{0}}, true},
    {"models/gpt.lua", DTYPE_BF16, {1, 1, 2, 2, 1, "zb-h1", false, NULL, 0}, 0, {{0}}, false},
    /* Weights of 2,304 x 768, of more than twice as many rows, and of fewer. */
    {"models/gpt.lua",
     DTYPE_BF16,
     {1, 1, 1, 2, 1, "1f1b", false, NULL, 0},
     3,
     {{"model", "768"}, {"seq", "600"}, {"layers", "1"}},
     true},
    {"models/gpt.lua",
     DTYPE_BF16,
     {1, 1, 1, 2, 1, "1f1b", false, NULL, 0},
     3,
     {{"model", "768"}, {"seq", "560"}, {"layers", "1"}},
     false},
    {"models/bert.lua", DTYPE_BF16, {1, 1, 1, 2, 1, "1f1b", false, NULL, 0}, 0, {{0}}, true},
    {"models/llama.lua", DTYPE_BF16, {1, 1, 1, 2, 1, "1f1b", false, NULL, 0}, 0, {{0}}, true},
    {"models/llama.lua", DTYPE_F32, {2, 1, 2, 2, 1, "1f1b", false, NULL, 0}, 0, {{0}}, true},
    {"models/llama.lua", DTYPE_BF16, {1, 1, 1, 2, 1, "zb-h1", false, NULL, 0}, 0, {{0}}, false},
    {"models/llama.lua",
     DTYPE_BF16,
     {1, 1, 1, 2, 1, "1f1b", false, NULL, 0},
     3,
     {{"rotary_share", "0.5"}, {"documents", "0"}, {"qkv_bias", "true"}},
     true},
    {"models/llama.lua",
     DTYPE_BF16,
     {1, 1, 1, 2, 1, "1f1b", false, NULL, 0},
     2,
     {{"rotary_skip", "2"}, {"norms", "after"}},
     true},
    {"models/llama.lua",
     DTYPE_BF16,
     {1, 1, 1, 2, 1, "1f1b", false, NULL, 0},
     1,
     {{"qk_norm", "true"}},
     false},
    /* Weights of 6,144 x 4,096, with queries of four heads a key's. */
    {"models/llama.lua",
     DTYPE_BF16,
     {1, 1, 1, 2, 1, "1f1b", false, NULL, 0},
     3,
     {{"size", "8b"}, {"seq", "4096"}, {"layers", "1"}},
     true},
};

/* All commands of a rank, at addresses that are never followed. */
static RankContext emit_step(const Run *run, CommandList *out) {
    static const uintptr_t BASE = (uintptr_t)1 << 32;
    static const EpilogueCheck ALL = {NULL, NULL, NULL, NULL};
    EmitMemory memory = {.state = (DeviceState *)(BASE / 2),
                         .staging = (const unsigned char *)(BASE / 4),
                         .epilogues = &ALL};
    RankContext rank = rank_context(run->plan, 0, run->arena);
    rank_set_memory(&rank, (void *)BASE);
    bool good =
        emit_rank(&rank, &memory, EMIT_TRAIN, kernel_cache_create(run->arena), out, run->diag);
    CHECK(good, "%s", diag_text(run->diag));
    return rank;
}

static void count_in_plan(const PlanCase *c, const Run *run) {
    CommandList list = {0};
    RankContext rank = emit_step(run, &list);
    int n_gradients = 0, n_stacked = 0;
    for (int i = 0; i < list.count; i++) {
        const Command *command = &list.items[i];
        n_gradients += command->kind == COMMAND_LAUNCH && !command->launch.generated &&
                       strncmp(KERNELS[command->launch.kernel].name, "attention_delta_", 16) == 0;
        n_stacked += command->kind == COMMAND_GEMM &&
                     command->gemm.b == rank.workspace + rank.parts.offset[WORKSPACE_WEIGHTS];
    }
    CHECK(n_gradients > 0 && n_stacked == (c->stacked ? n_gradients : 0),
          "%d of %d gradients of attention", n_stacked, n_gradients);
    command_list_release(&list);
}

static void test_plans(void) {
    for (size_t i = 0; i < sizeof(PLANS) / sizeof(PLANS[0]); i++) {
        const PlanCase *c = &PLANS[i];
        Run run;
        char name[128];
        snprintf(name, sizeof(name), "%s, %s, t=%d d=%d p=%d, %s: one product%s", c->model,
                 dtype_name(c->precision), c->layout.t, c->layout.d, c->layout.p,
                 c->layout.schedule, c->stacked ? "" : " cannot be made");
        check_begin(name);
        bool planned = run_plan_for(&run, c->model, c->settings, c->n_settings, &c->layout, 8,
                                    false, true, c->precision);
        CHECK(planned, "%s", diag_text(run.diag));
        if (planned) count_in_plan(c, &run);
        run_close(&run);
        check_end();
    }
}

int main(void) {
    if (cuda_check_missing()) return 0;
    test_cases();
    test_plans();
    return check_report();
}
