/* Products of one operand with several others become one: which do, in what order and how far
 * apart, and what the product then computes.
 *
 * Would catch: a product that runs before its operand is there or after its result was read, one
 * that takes another's operand, products that differ, results that would overlap, a library that
 * has no such product.
 */
#include "runtime/cuda/codegen.h"
#include "runtime/cuda/emit.h"
#include "runtime/cuda/join_products.h"
#include "runtime/cuda/summary.h"
#include "tests/unit/cuda_check.h"
#include "tests/unit/train_fixture.h"

/* --- lists made up --- */

enum { M = 24, N = 32, K = 16, APART = 4096, MOST = 8 };

/* Memory is never followed: A, then right operands, results, biases, workspace, each in a room of
 * its own. */
enum Room { ROOM_A = 1, ROOM_B, ROOM_D, ROOM_BIAS, ROOM_WORKSPACE, ROOM_OTHER };
static char *room(enum Room number) {
    return (char *)((uintptr_t)number << 32);
}

typedef struct Draft {
    int count;
    Command items[MOST];
    Access accesses[MOST][6];
} Draft;

static Command *add(Draft *draft, CommandKind kind) {
    Command *command = &draft->items[draft->count];
    *command = (Command){.kind = kind, .accesses = draft->accesses[draft->count]};
    draft->count++;
    return command;
}

static void touch(Command *command, const void *at, int64_t bytes, bool write) {
    Access *accesses = (Access *)command->accesses;
    accesses[command->n_accesses++] = access_to(at, bytes, write);
}

/* A x B[place] + bias[place] -> D[place], as binders make it. */
static Command *add_product(Draft *draft, int place) {
    Command *command = add(draft, COMMAND_GEMM);
    GemmCommand *g = &command->gemm;
    g->layout = (MatmulLayout){.batch = 1, .m = M, .n = N, .k = K};
    g->in_dtype = g->out_dtype = DTYPE_BF16;
    g->a = room(ROOM_A);
    g->b = room(ROOM_B) + place * APART;
    g->d = room(ROOM_D) + place * 2 * APART;
    g->bias = room(ROOM_BIAS) + place * APART;
    touch(command, g->a, M * K * 2, false);
    touch(command, g->b, K * N * 2, false);
    touch(command, g->bias, N * 2, false);
    touch(command, g->d, M * N * 2, true);
    touch(command, room(ROOM_WORKSPACE), 1 << 20, true);
    ((Access *)command->accesses)[4].workspace = true;
    return command;
}

static void add_kernel(Draft *draft, const void *at, bool write) {
    touch(add(draft, COMMAND_LAUNCH), at, 64, write);
}

static void three(Draft *draft) {
    for (int i = 0; i < 3; i++) add_product(draft, i);
}

/* Each changes one thing, or makes a list of its own. */
static void plain(Draft *draft) {
    three(draft);
}
static void other_order(Draft *draft) {
    add_product(draft, 2), add_product(draft, 0), add_product(draft, 1);
}
static void kernels_between(Draft *draft) {
    add_product(draft, 0);
    add_kernel(draft, room(ROOM_D), false); /* reads the first result */
    add_product(draft, 1);
    add_kernel(draft, room(ROOM_OTHER), true);
    add_product(draft, 2);
}
static void result_used_between(Draft *draft) {
    add_product(draft, 0);
    add_kernel(draft, room(ROOM_D) + 2 * APART, false);
    add_product(draft, 1);
    add_product(draft, 2);
}
static void operand_made_between(Draft *draft) {
    add_product(draft, 0);
    add_product(draft, 1);
    add_kernel(draft, room(ROOM_B) + 2 * APART, true);
    add_product(draft, 2);
}
static void left_made_between(Draft *draft) {
    add_product(draft, 0);
    add_kernel(draft, room(ROOM_A), true);
    add_product(draft, 1);
}
static void message_between(Draft *draft) {
    add_product(draft, 0);
    add(draft, COMMAND_RECV);
    add_product(draft, 1);
}
static void operand_is_result(Draft *draft) {
    add_product(draft, 0);
    Command *second = add_product(draft, 1);
    second->gemm.b = room(ROOM_D);
    ((Access *)second->accesses)[1].at = (uintptr_t)second->gemm.b;
}
static void other_left(Draft *draft) {
    three(draft);
    draft->items[1].gemm.a = room(ROOM_OTHER);
}
static void other_sum(Draft *draft) {
    three(draft);
    draft->items[2].gemm.beta = 1;
}
static void other_shape(Draft *draft) {
    three(draft);
    draft->items[2].gemm.layout.n = N / 2;
}
static void without_bias(Draft *draft) {
    three(draft);
    draft->items[0].gemm.bias = NULL;
}
static void other_micro(Draft *draft) {
    three(draft);
    draft->items[2].info.micro = 1;
}
static void other_stream(Draft *draft) {
    three(draft);
    draft->items[2].stream = STREAM_DATA;
}
static void with_addend(Draft *draft) {
    three(draft);
    for (int i = 0; i < 3; i++) draft->items[i].gemm.c = room(ROOM_OTHER);
}
static void with_gelu(Draft *draft) {
    three(draft);
    for (int i = 0; i < 3; i++) draft->items[i].gemm.epilogue = EPILOGUE_GELU;
}
static void uneven(Draft *draft) {
    add_product(draft, 0), add_product(draft, 1), add_product(draft, 3);
}
static void against_each_other(Draft *draft) {
    three(draft);
    for (int i = 0; i < 3; i++) draft->items[i].gemm.b = room(ROOM_B) + (2 - i) * APART;
}
static void left_between_results(Draft *draft) {
    three(draft);
    for (int i = 0; i < 3; i++) {
        draft->items[i].gemm.a = room(ROOM_D) + APART;
        ((Access *)draft->items[i].accesses)[0].at = (uintptr_t)draft->items[i].gemm.a;
    }
}
static void unaligned(Draft *draft) {
    add_product(draft, 0), add_product(draft, 1);
    draft->items[1].gemm.bias = (const char *)draft->items[1].gemm.bias + 2;
}
static void large(Draft *draft) {
    three(draft);
    for (int i = 0; i < 3; i++) {
        draft->items[i].gemm.layout.m = draft->items[i].gemm.layout.n = 8192;
        draft->items[i].gemm.layout.k = 1;
        draft->items[i].gemm.b = room(ROOM_B) + i * (1 << 20);
        draft->items[i].gemm.d = room(ROOM_D) + (int64_t)i * (1 << 28);
        draft->items[i].gemm.bias = room(ROOM_BIAS) + i * (1 << 20);
    }
}

typedef struct Case {
    const char *name;
    void (*make)(Draft *draft);
    int n_gone, batch; /* of the first product that is left */
    int step;          /* places from one to the next */
} Case;

static const Case CASES[] = {
    {"three products of one operand", plain, 2, 3, 1},
    {"in another order", other_order, 2, 3, 1},
    {"with others between that they do not concern", kernels_between, 2, 3, 1},
    {"a result that is read before it would be made", result_used_between, 1, 2, 2},
    {"an operand that is made in between", operand_made_between, 1, 2, 1},
    {"the common operand changes in between", left_made_between, 0, 1, 1},
    {"a message in between", message_between, 0, 1, 1},
    {"one's result is the other's operand", operand_is_result, 0, 1, 1},
    {"another left operand", other_left, 1, 2, 2},
    {"one adds to its result", other_sum, 1, 2, 1},
    {"another shape", other_shape, 1, 2, 1},
    {"one without a bias", without_bias, 1, 1, 1},
    {"another micro-batch", other_micro, 1, 2, 1},
    {"another stream", other_stream, 1, 2, 1},
    {"with addends", with_addend, 0, 1, 1},
    {"with gelu", with_gelu, 0, 1, 1},
    {"not equally far apart", uneven, 1, 2, 1},
    {"operands in the opposite order of results", against_each_other, 0, 1, 1},
    {"the common operand lies between results", left_between_results, 1, 1, 1},
    {"not at a multiple of what memory is aligned to", unaligned, 0, 1, 1},
    {"large enough by themselves", large, 0, 1, 1},
};

static void check_case(const Case *c) {
    Draft draft = {0};
    CommandList list = {0};
    Arena *arena = arena_create();
    check_begin(c->name);
    c->make(&draft);
    for (int i = 0; i < draft.count; i++) command_list_push(&list, &draft.items[i]);
    int n_gone = cuda_join_products(&list, &(EpilogueCheck){0}, arena);
    const GemmCommand *g = &list.items[0].gemm;
    CHECK(n_gone == c->n_gone && list.count == draft.count - n_gone, "%d are gone, %d of %d left",
          n_gone, list.count, draft.count);
    CHECK(g->layout.batch == c->batch, "%lld at once", (long long)g->layout.batch);
    if (c->batch > 1) {
        CHECK(g->b == room(ROOM_B) && g->d == room(ROOM_D) && g->bias == room(ROOM_BIAS),
              "not the first one's operands");
        CHECK(g->apart.b == c->step * APART / 2 && g->apart.d == c->step * APART &&
                  g->apart.bias == c->step * APART / 2,
              "%lld, %lld, %lld elements apart", (long long)g->apart.b, (long long)g->apart.d,
              (long long)g->apart.bias);
        /* A and the workspace once, a right operand, bias and result of each. */
        CHECK(list.items[0].n_accesses == 2 + 3 * c->batch, "%d accesses",
              list.items[0].n_accesses);
    }
    command_list_release(&list);
    arena_destroy(arena);
    check_end();
}

static bool never(void *user, const GemmCommand *one, const GemmCommand *joined) {
    ++*(int *)user;
    return one->layout.batch == joined->layout.batch;
}

static void check_refused(void) {
    Draft draft = {0};
    CommandList list = {0};
    int n_asked = 0;
    Arena *arena = arena_create();
    check_begin("a product that is not wanted");
    three(&draft);
    for (int i = 0; i < draft.count; i++) command_list_push(&list, &draft.items[i]);
    int n_gone =
        cuda_join_products(&list, &(EpilogueCheck){.joins = never, .user = &n_asked}, arena);
    CHECK(n_gone == 0 && list.count == 3 && n_asked > 0, "%d are gone, asked %d times", n_gone,
          n_asked);
    CHECK(list.items[0].gemm.layout.batch == 1 && !list.items[0].gemm.apart.d, "half joined");
    command_list_release(&list);
    arena_destroy(arena);
    check_end();
}

/* A plan that was tuned says which are faster one by one. */
static void check_tuned(void) {
    Draft draft = {0};
    check_begin("a device section that has them one by one alone");
    three(&draft);
    GemmCommand joined = draft.items[0].gemm;
    joined.layout.batch = 3;
    joined.apart = (GemmStrides){APART / 2, APART, APART / 2};
    PlanAlgo both[2] = {gemm_product(&draft.items[0].gemm), gemm_product(&joined)};
    PlanDevice device = {.name = "x", .n_algos = 1, .algos = both};
    CHECK(!gemm_device_joins(&device, &draft.items[0].gemm, &joined), "joined all the same");
    device.n_algos = 2;
    CHECK(gemm_device_joins(&device, &draft.items[0].gemm, &joined), "not joined");
    device.n_algos = 0;
    CHECK(gemm_device_joins(&device, &draft.items[0].gemm, &joined), "not joined, with nothing");
    CHECK(gemm_device_joins(NULL, &draft.items[0].gemm, &joined), "not joined, not tuned");
    check_end();
}

/* --- plans --- */

typedef struct Plans {
    const char *model;
    Layout layout;
    int zero;
    int forward, gradients; /* joined products a block and micro-batch */
} Plans;

/* With t=2 and rows of sequences divided, scratch has gaps, which what the gradients of weights are
 * made from must not fill one by one. */
static const Plans PLANS[] = {
    {"models/gpt.lua", {1, 1, 1, 2, 1, "1f1b", false, NULL, 0}, 0, 3, 3},
    {"models/gpt.lua", {1, 1, 2, 2, 2, "interleaved", false, NULL, 0}, 0, 3, 3},
    {"models/gpt.lua", {2, 1, 1, 2, 1, "1f1b", false, NULL, 0}, 0, 3, 3},
    {"models/gpt.lua", {2, 1, 1, 2, 1, "1f1b", true, NULL, 0}, 0, 3, 3},
    {"models/gpt.lua", {1, 2, 1, 2, 1, "1f1b", false, NULL, 0}, 1, 3, 3},
};

static void check_plan(const Plans *p) {
    static const ModelSetting settings[] = {{"layers", "4"}};
    Run run;
    CommandList list = {0};
    char name[128];
    int joined[2] = {0}, single[2] = {0};
    snprintf(name, sizeof(name), "q, k and v in %s, t=%d d=%d p=%d%s", p->model, p->layout.t,
             p->layout.d, p->layout.p, p->zero ? ", ZeRO" : "");
    check_begin(name);
    run_zero = p->zero;
    bool fine = run_plan_for(&run, p->model, settings, 1, &p->layout, 8, false, true, DTYPE_BF16);
    run_zero = 0;
    fine = fine && cuda_emit_stage(run.plan, 0, NULL, NULL, run.arena,
                                   kernel_cache_create(run.arena), &list, run.diag);
    CHECK(fine, "%s", diag_text(run.diag));
    int blocks = 4 / p->layout.p * run.plan->n_micro;
    for (int i = 0; fine && i < list.count; i++) {
        const GemmCommand *g = &list.items[i].gemm;
        if (list.items[i].kind != COMMAND_GEMM) continue;
        bool gradient = g->layout.transpose_a;
        if (g->apart.d) {
            joined[gradient] += (int)g->layout.batch;
        } else {
            single[gradient]++;
        }
    }
    CHECK(joined[0] == p->forward * blocks && joined[1] == p->gradients * blocks,
          "%d and %d products are joined in %d blocks, %d and %d are not", joined[0], joined[1],
          blocks, single[0], single[1]);
    command_list_release(&list);
    run_close(&run);
    check_end();
}

int main(void) {
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) check_case(&CASES[i]);
    check_refused();
    check_tuned();
    for (size_t i = 0; i < sizeof(PLANS) / sizeof(PLANS[0]); i++) check_plan(&PLANS[i]);
    return check_report();
}
