/* Messages among virtual ranks in one launch, and the steps around NCCL's calls, against
 * comm_inproc: the same bits in f32, since both take the members in order.
 *
 * Would catch: padding that is not cut or not zero, rows or members mixed up, a vector path that
 * takes odd sizes, an input that is overwritten before all have read it, a step that is missing.
 */
#include "runtime/comm/comm.h"
#include "runtime/cpu/vec_low.h"
#include "runtime/cuda/collective.h"
#include "runtime/cuda/virtual.h"
#include "tests/unit/cuda_check.h"
#include "tests/unit/kernel_check.h"

#include <pthread.h>

enum { MOST_MEMBERS = 8 };
static bool deals;     /* of calls made from now on: two chunks a member, as over c */
static bool to_strips; /* likewise, of all-to-alls */

typedef struct Shape {
    int64_t outer, local, total, inner; /* all_reduce: count in `total`; all_to_all: rows, of all */
} Shape;

static int64_t in_count(CollectiveKind kind, const Shape *s) {
    if (kind == ALL_REDUCE) return s->total;
    return s->outer * s->inner * (kind == ALL_GATHER ? s->local : s->total);
}

static int64_t out_count(CollectiveKind kind, const Shape *s) {
    if (kind == ALL_REDUCE) return s->total;
    return s->outer * s->inner * (kind == REDUCE_SCATTER ? s->local : s->total);
}

/* What comm_inproc makes of the inputs: one thread per member. */
typedef struct Peer {
    CommGroup *group;
    int member;
    CollectiveKind kind;
    ReduceKind reduce;
    const Shape *shape;
    const float *in;
    float *out;
    bool good;
} Peer;

static void *run_peer(void *user) {
    Peer *p = user;
    const Shape *s = p->shape;
    size_t outer = (size_t)s->outer, local = (size_t)s->local, total = (size_t)s->total;
    size_t inner = (size_t)s->inner;
    switch (p->kind) {
    case ALL_REDUCE:
        p->good = comm_all_reduce(p->group, p->member, p->reduce, DTYPE_F32, p->in, p->out, total);
        break;
    case ALL_GATHER:
        p->good = comm_all_gather(p->group, p->member, DTYPE_F32, p->in, p->out, outer, local,
                                  total, inner);
        break;
    case REDUCE_SCATTER:
        p->good = comm_reduce_scatter(p->group, p->member, p->reduce, DTYPE_F32, p->in, p->out,
                                      outer, local, total, inner);
        break;
    case ALL_TO_ALL:
        p->good = comm_all_to_all(p->group, p->member, DTYPE_F32, p->in, p->out, outer, local,
                                  inner, to_strips);
        break;
    }
    return NULL;
}

static bool run_peers(CollectiveKind kind, ReduceKind reduce, const Shape *shape, int n,
                      float *const *in, float *const *out) {
    CommWorld *world = comm_world_create(n);
    CommGroup *group = comm_group_create(world, n, "peers");
    if (deals) comm_group_set_dealing(group);
    Peer peers[MOST_MEMBERS];
    pthread_t threads[MOST_MEMBERS];
    bool good = true;
    for (int k = 0; k < n; k++) {
        peers[k] = (Peer){group, k, kind, reduce, shape, in[k], out[k], false};
        if (pthread_create(&threads[k], NULL, run_peer, &peers[k])) exit(2);
    }
    for (int k = 0; k < n; k++) {
        pthread_join(threads[k], NULL);
        good &= peers[k].good;
    }
    comm_world_destroy(world);
    return good;
}

/* Rounds in place to what the dtype holds. */
static void round_all(DType dtype, float *x, int64_t n) {
    for (int64_t i = 0; i < n; i++) x[i] = (float)reference_rounded(dtype, (double)x[i]);
}

static void *aligned(int64_t bytes) {
    void *p;
    if (posix_memalign(&p, 64, (size_t)(bytes ? bytes : 1))) exit(2);
    memset(p, 0xff, (size_t)bytes);
    return p;
}

/* A group's call: inputs, what is expected, and the commands. */
typedef struct Call {
    int n;
    int64_t in_count, out_count;
    DType dtype;
    float *in[MOST_MEMBERS], *expected[MOST_MEMBERS];
    void *device_in[MOST_MEMBERS], *device_out[MOST_MEMBERS];
    CollectiveCommand commands[MOST_MEMBERS];
} Call;

static void *copy_in(const float *x, int64_t n, DType dtype) {
    void *p = aligned(n * dtype_bytes(dtype));
    for (int64_t i = 0; i < n; i++) vec_put(p, dtype, i, x[i]);
    return p;
}

/* in_place: of all_reduce, out is in; of all_gather, in lies at its place in out. */
static Call make_call(CollectiveKind kind, ReduceKind reduce, DType dtype, const Shape *s, int n,
                      bool in_place) {
    Call c = {.n = n, .in_count = in_count(kind, s), .out_count = out_count(kind, s)};
    c.dtype = dtype;
    int64_t element = dtype_bytes(dtype);
    for (int k = 0; k < n; k++) {
        c.in[k] = kc_random(c.in_count);
        round_all(dtype, c.in[k], c.in_count);
        c.expected[k] = kc_zeros(c.out_count);
        c.device_in[k] = copy_in(c.in[k], c.in_count, dtype);
        c.device_out[k] = aligned(c.out_count * element);
        if (in_place && kind == ALL_REDUCE) {
            free(c.device_out[k]);
            c.device_out[k] = c.device_in[k];
        } else if (in_place) {
            char *place = (char *)c.device_out[k] + k * c.in_count * element;
            memcpy(place, c.device_in[k], (size_t)(c.in_count * element));
            free(c.device_in[k]);
            c.device_in[k] = place;
        }
    }
    CHECK(run_peers(kind, reduce, s, n, c.in, c.expected), "comm_inproc failed");
    for (int k = 0; k < n; k++) {
        c.commands[k] = (CollectiveCommand){.kind = kind,
                                            .reduce = reduce,
                                            .dtype = dtype,
                                            .member = k,
                                            .n_members = n,
                                            .in = c.device_in[k],
                                            .out = c.device_out[k],
                                            .count = s->total,
                                            .outer = s->outer,
                                            .axis_local = s->local,
                                            .axis_total = s->total,
                                            .inner = s->inner,
                                            .deals = deals,
                                            .to_strips = to_strips};
        round_all(dtype, c.expected[k], c.out_count);
    }
    return c;
}

static void free_call(Call *c, bool in_place) {
    for (int k = 0; k < c->n; k++) {
        free(c->in[k]), free(c->expected[k]), free(c->device_out[k]);
        if (!in_place) free(c->device_in[k]);
    }
}

static void compare_call(const Call *c) {
    for (int k = 0; k < c->n; k++) {
        for (int64_t i = 0; i < c->out_count; i++) {
            float got = vec_get(c->device_out[k], c->dtype, i);
            float expected = c->expected[k][i];
            bool same = memcmp(&got, &expected, sizeof(got)) == 0;
            CHECK(same || (got != got && expected != expected),
                  "member %d element %d is %.9g, not %.9g", k, (int)i, (double)got,
                  (double)expected);
        }
    }
}

static void check_virtual(const char *name, CollectiveKind kind, ReduceKind reduce, DType dtype,
                          const Shape *s, int n, bool in_place) {
    Arena *arena = arena_create();
    const CollectiveCommand *members[MOST_MEMBERS];
    LaunchCommand launch;
    check_begin(name);
    Call c = make_call(kind, reduce, dtype, s, n, in_place);
    for (int k = 0; k < n; k++) members[k] = &c.commands[k];
    bool made = cuda_virtual_collective(members, n, arena, &launch);
    CHECK(made, "no launch");
    if (made) {
        emulate_set_order(2);
        bool good = emulate_launch(launch.kernel, launch.grid, launch.threads, launch.shared_bytes,
                                   launch.args);
        emulate_set_order(0);
        CHECK(good, "%s", emulate_error());
        compare_call(&c);
    }
    free_call(&c, in_place);
    check_end();
    arena_destroy(arena);
}

/* NCCL's part among members whose memory is all here; sums in members' order, rounded once. */
static void run_nccl(const NcclCall *calls, int n) {
    const NcclCall *first = &calls[0];
    int64_t count = first->count, element = dtype_bytes(first->dtype);
    int64_t n_out = first->kind == REDUCE_SCATTER ? count * n : count;
    if (first->kind == ALL_TO_ALL) {
        for (int k = 0; k < n * n; k++) {
            const char *from = (const char *)calls[k / n].in + k % n * count * element;
            memcpy((char *)calls[k % n].out + k / n * count * element, from,
                   (size_t)(count * element));
        }
        return;
    }
    if (first->kind == ALL_GATHER) {
        char *all = aligned(count * n * element);
        for (int k = 0; k < n; k++)
            memcpy(all + k * count * element, calls[k].in, (size_t)(count * element));
        for (int k = 0; k < n; k++) memcpy(calls[k].out, all, (size_t)(count * n * element));
        free(all);
        return;
    }
    float *sum = kc_zeros(n_out);
    for (int64_t i = 0; i < n_out; i++) {
        for (int k = 0; k < n; k++) {
            float x = vec_get(calls[k].in, first->dtype, i);
            if (k == 0) {
                sum[i] = x;
            } else if (first->reduce == REDUCE_SUM) {
                sum[i] += x;
            } else {
                sum[i] = x > sum[i] || x != x ? x : sum[i];
            }
        }
    }
    for (int k = 0; k < n; k++) {
        const float *mine = sum + (first->kind == REDUCE_SCATTER ? k * count : 0);
        void *copy = copy_in(mine, count, first->dtype);
        memcpy(calls[k].out, copy, (size_t)(count * element));
        free(copy);
    }
    free(sum);
}

static void check_steps(const char *name, CollectiveKind kind, ReduceKind reduce, DType dtype,
                        const Shape *s, int n, int n_steps) {
    Arena *arena = arena_create();
    CollectiveStep steps[MOST_MEMBERS][MAX_COLLECTIVE_STEPS];
    check_begin(name);
    Call c = make_call(kind, reduce, dtype, s, n, false);
    bool good = true;
    for (int k = 0; k < n; k++) {
        CollectiveCommand *command = &c.commands[k];
        command->workspace_bytes = cuda_collective_workspace_bytes(command);
        if (command->workspace_bytes) {
            CHECK(cuda_collective_steps(command, arena, steps[k]) == 0, "steps without workspace");
            command->workspace = aligned(command->workspace_bytes);
        }
        int count = cuda_collective_steps(command, arena, steps[k]);
        CHECK(count == n_steps, "%d steps, not %d", count, n_steps);
        good &= count == n_steps;
    }
    for (int i = 0; good && i < n_steps; i++) {
        NcclCall calls[MOST_MEMBERS];
        for (int k = 0; k < n; k++) {
            const LaunchCommand *launch = &steps[k][i].launch;
            CHECK(steps[k][i].is_launch == steps[0][i].is_launch, "steps differ among members");
            if (!steps[k][i].is_launch) calls[k] = steps[k][i].nccl;
            if (!steps[k][i].is_launch) continue;
            good = emulate_launch(launch->kernel, launch->grid, launch->threads,
                                  launch->shared_bytes, launch->args);
            CHECK(good, "%s", emulate_error());
        }
        if (!steps[0][i].is_launch) run_nccl(calls, n);
    }
    if (good) compare_call(&c);
    for (int k = 0; k < n; k++) free(c.commands[k].workspace);
    free_call(&c, false);
    check_end();
    arena_destroy(arena);
}

static const char *const KINDS[] = {"all_reduce", "all_gather", "reduce_scatter", "all_to_all"};
static const char *const REDUCES[] = {"sum", "max", "lse"};

/* Whole and padded shards, empty ones, an axis in the middle, odd sizes, whole vectors. */
static const Shape SHAPES[] = {
    {1, 3, 9, 8},  {1, 3, 7, 5},       {4, 2, 6, 16},  {5, 3, 8, 7},
    {7, 1, 3, 1},  {1, 4, 12, 1},      {3, 2, 4, 24},  {2, 16, 48, 4},
    {19, 3, 7, 1}, {1, 1000, 3000, 1}, {1, 7, 15, 64}, {257, 8, 24, 2},
};

static void test_axis(DType dtype, CollectiveKind kind, ReduceKind reduce) {
    for (size_t i = 0; i < sizeof(SHAPES) / sizeof(SHAPES[0]); i++) {
        const Shape *s = &SHAPES[i];
        const int n = 3;
        char name[128];
        int length = snprintf(name, sizeof(name), "%s %s %s [%d, %d of %d, %d]", KINDS[kind],
                              REDUCES[reduce], dtype_name(dtype), (int)s->outer, (int)s->local,
                              (int)s->total, (int)s->inner);
        check_virtual(name, kind, reduce, dtype, s, n, false);
        bool direct = s->outer == 1 && n * s->local == s->total;
        if (kind == ALL_GATHER && direct) {
            snprintf(name + length, sizeof(name) - (size_t)length, " in place");
            check_virtual(name, kind, reduce, dtype, s, n, true);
        }
        snprintf(name + length, sizeof(name) - (size_t)length, " by NCCL");
        check_steps(name, kind, reduce, dtype, s, n, reduce == REDUCE_LSE ? 2 : direct ? 1 : 2);
    }
}

/* Chunks of one element to whole vectors; one outer index and more. */
static void test_dealt(DType dtype) {
    static const Shape DEALT[] = {{1, 2, 6, 1}, {1, 8, 24, 16}, {5, 6, 18, 7}, {3, 4, 12, 32}};
    deals = true;
    for (size_t i = 0; i < sizeof(DEALT) / sizeof(DEALT[0]); i++) {
        for (CollectiveKind kind = ALL_GATHER; kind <= REDUCE_SCATTER; kind++) {
            const Shape *s = &DEALT[i];
            char name[128];
            int length = snprintf(name, sizeof(name), "%s %s [%d, %d of %d, %d], dealt out",
                                  KINDS[kind], dtype_name(dtype), (int)s->outer, (int)s->local,
                                  (int)s->total, (int)s->inner);
            check_virtual(name, kind, REDUCE_SUM, dtype, s, 3, false);
            snprintf(name + length, sizeof(name) - (size_t)length, " by NCCL");
            check_steps(name, kind, REDUCE_SUM, dtype, s, 3, 3);
        }
    }
    deals = false;
}

/* What goes to a member lies together on one side only, or on neither; dealt out, a block's halves
 * lie apart. */
static void test_all_to_all(DType dtype) {
    static const Shape EXCHANGED[] = {{1, 1, 3, 5}, {1, 4, 12, 7}, {1, 6, 18, 16}, {3, 2, 6, 24}};
    for (size_t i = 0; i < 4 * sizeof(EXCHANGED) / sizeof(EXCHANGED[0]); i++) {
        const Shape *s = &EXCHANGED[i / 4];
        char name[128];
        to_strips = i % 2, deals = i / 2 % 2;
        if (deals && s->local % 2) continue;
        int length = snprintf(name, sizeof(name), "all_to_all %s [%d, %d, %d] to %s%s",
                              dtype_name(dtype), (int)s->outer, (int)s->local, (int)s->inner,
                              to_strips ? "strips" : "blocks", deals ? ", dealt out" : "");
        check_virtual(name, ALL_TO_ALL, REDUCE_SUM, dtype, s, 3, false);
        snprintf(name + length, sizeof(name) - (size_t)length, " by NCCL");
        int n_steps = deals ? 4 : s->outer > 1 ? 3 : s->local > 1 ? 2 : 1;
        check_steps(name, ALL_TO_ALL, REDUCE_SUM, dtype, s, 3, n_steps);
    }
    deals = false;
}

static void test_all_reduce(DType dtype, ReduceKind reduce) {
    static const int64_t COUNTS[] = {1, 3, 8, 64, 1031, 4096};
    for (size_t i = 0; i < sizeof(COUNTS) / sizeof(COUNTS[0]); i++) {
        Shape s = {1, 1, COUNTS[i], 1};
        for (int n = 2; n <= MOST_MEMBERS; n += 3) {
            char name[128];
            int length = snprintf(name, sizeof(name), "all_reduce %s %s [%d] of %d",
                                  REDUCES[reduce], dtype_name(dtype), (int)s.total, n);
            check_virtual(name, ALL_REDUCE, reduce, dtype, &s, n, false);
            snprintf(name + length, sizeof(name) - (size_t)length, " in place");
            check_virtual(name, ALL_REDUCE, reduce, dtype, &s, n, true);
            snprintf(name + length, sizeof(name) - (size_t)length, " by NCCL");
            check_steps(name, ALL_REDUCE, reduce, dtype, &s, n, reduce == REDUCE_LSE ? 2 : 1);
        }
    }
}

/* Infinite values, not a number, the empty part of a log-sum-exp. */
static void test_special_values(void) {
    static const float SPECIAL[] = {INFINITY, -INFINITY, NAN, 0, 1, -0.0f, 88, -200};
    enum { COUNT = 64 };
    for (int reduce = REDUCE_SUM; reduce <= REDUCE_LSE; reduce++) {
        Arena *arena = arena_create();
        Shape s = {1, 1, COUNT, 1};
        const CollectiveCommand *members[2];
        LaunchCommand launch;
        check_begin(arena_printf(arena, "all_reduce %s of special values", REDUCES[reduce]));
        Call c = make_call(ALL_REDUCE, (ReduceKind)reduce, DTYPE_F32, &s, 2, false);
        for (int i = 0; i < COUNT; i++) {
            c.in[0][i] = SPECIAL[i / 8];
            c.in[1][i] = SPECIAL[i % 8];
        }
        for (int k = 0; k < 2; k++) {
            memcpy(c.device_in[k], c.in[k], COUNT * sizeof(float));
            members[k] = &c.commands[k];
        }
        CHECK(run_peers(ALL_REDUCE, (ReduceKind)reduce, &s, 2, c.in, c.expected), "comm_inproc");
        CHECK(cuda_virtual_collective(members, 2, arena, &launch), "no launch");
        CHECK(emulate_launch(launch.kernel, launch.grid, launch.threads, 0, launch.args), "%s",
              emulate_error());
        compare_call(&c);
        free_call(&c, false);
        check_end();
        arena_destroy(arena);
    }
}

static void test_refusals(void) {
    Arena *arena = arena_create();
    float memory[32];
    CollectiveCommand a = {
        .kind = ALL_REDUCE, .n_members = 2, .in = memory, .out = memory, .count = 8};
    CollectiveCommand b = a;
    const CollectiveCommand *members[] = {&a, &b};
    LaunchCommand launch;
    check_begin("members whose calls do not match make no launch");
    b.member = 1;
    CHECK(cuda_virtual_collective(members, 2, arena, &launch), "refused though they match");
    b.count = 9;
    CHECK(!cuda_virtual_collective(members, 2, arena, &launch), "counts");
    b = a;
    CHECK(!cuda_virtual_collective(members, 2, arena, &launch), "member 0 twice");
    b.member = 1;
    b.reduce = REDUCE_MAX;
    CHECK(!cuda_virtual_collective(members, 2, arena, &launch), "reductions");
    b.reduce = a.reduce;
    b.kind = ALL_GATHER;
    CHECK(!cuda_virtual_collective(members, 2, arena, &launch), "kinds");
    CHECK(!cuda_virtual_collective(members, MAX_VIRTUAL_MEMBERS + 1, arena, &launch), "members");
    check_end();
    arena_destroy(arena);
}

/* Graphs over a mesh: binders of messages and slices, each run as one launch. */
static bool launch_collective(void *user, const CollectiveCommand *const *members, int n,
                              const char **out_why) {
    LaunchCommand launch;
    *out_why = "no launch";
    if (!cuda_virtual_collective(members, n, user, &launch)) return false;
    *out_why = emulate_error();
    return emulate_launch(launch.kernel, launch.grid, launch.threads, 0, launch.args);
}

static void test_graphs(void) {
    static const struct {
        const char *name, *mesh, *nodes;
    } CASES[] = {
        {"slice and all_gather, each axis", "t=3, d=2, p=1",
         "%0 = input() {name=\"\"} : f32[a=7, b=5, c=11]\n"
         "%1 = slice(%0) {mesh=\"t\", axis=a} : f32[a=7/t, b=5, c=11]\n"
         "%2 = slice(%1) {mesh=\"d\", axis=c} : f32[a=7/t, b=5, c=11/d]\n"
         "%3 = all_gather(%2) {mesh=\"t\", axis=a} : f32[a=7, b=5, c=11/d]\n"
         "%4 = slice(%3) {mesh=\"t\", axis=b} : f32[a=7, b=5/t, c=11/d]\n"
         "%5 = all_gather(%4) {mesh=\"d\", axis=c} : f32[a=7, b=5/t, c=11]\n"
         "%6 = all_gather(%5) {mesh=\"t\", axis=b} : f32[a=7, b=5, c=11]\n"},
        {"slice of a rank beyond the end", "t=4, d=1, p=1",
         "%0 = input() {name=\"\"} : f32[a=5, b=4]\n"
         "%1 = slice(%0) {mesh=\"t\", axis=a} : f32[a=5/t, b=4]\n"},
        {"slice of 16-byte units", "t=2, d=1, p=1",
         "%0 = input() {name=\"\"} : f32[a=3, b=6, c=8]\n"
         "%1 = slice(%0) {mesh=\"t\", axis=b} : f32[a=3, b=6/t, c=8]\n"},
        {"all_reduce over both axes", "t=3, d=2, p=1",
         "%0 = input() {name=\"\"} : f32[a=7, b=5]~sum(t,d)\n"
         "%1 = all_reduce(%0) {mesh=\"d\"} : f32[a=7, b=5]~sum(t)\n"
         "%2 = all_reduce(%1) {mesh=\"t\"} : f32[a=7, b=5]\n"},
        {"all_reduce of maxima", "t=2, d=1, p=1",
         "%0 = input() {name=\"\"} : f32[a=7, b=5]~max(t)\n"
         "%1 = all_reduce(%0) {mesh=\"t\"} : f32[a=7, b=5]\n"},
        {"all_reduce of log-sum-exp", "t=3, d=1, p=1",
         "%0 = input() {name=\"\"} : f32[a=7, b=5]~lse(t)\n"
         "%1 = all_reduce(%0) {mesh=\"t\"} : f32[a=7, b=5]\n"},
        {"reduce_scatter, each axis", "t=3, d=2, p=1",
         "%0 = input() {name=\"\"} : f32[a=7, b=5, c=11]~sum(t,d)\n"
         "%1 = reduce_scatter(%0) {mesh=\"t\", axis=b} : f32[a=7, b=5/t, c=11]~sum(d)\n"
         "%2 = reduce_scatter(%1) {mesh=\"d\", axis=c} : f32[a=7, b=5/t, c=11/d]\n"},
        {"bf16: slice, all_gather, reduce_scatter, all_reduce", "t=3, d=2, p=1",
         "%0 = input() {name=\"\"} : bf16[a=7, b=5, c=6]~sum(t)\n"
         "%1 = reduce_scatter(%0) {mesh=\"t\", axis=b} : bf16[a=7, b=5/t, c=6]\n"
         "%2 = slice(%1) {mesh=\"d\", axis=c} : bf16[a=7, b=5/t, c=6/d]\n"
         "%3 = all_gather(%2) {mesh=\"t\", axis=b} : bf16[a=7, b=5, c=6/d]\n"
         "%4 = all_gather(%3) {mesh=\"d\", axis=c} : bf16[a=7, b=5, c=6]\n"
         "%5 = all_reduce(%0) {mesh=\"t\"} : bf16[a=7, b=5, c=6]\n"},
        {"f16: slice, all_gather, reduce_scatter, all_reduce", "t=3, d=2, p=1",
         "%0 = input() {name=\"\"} : f16[a=7, b=5, c=6]~sum(t)\n"
         "%1 = reduce_scatter(%0) {mesh=\"t\", axis=b} : f16[a=7, b=5/t, c=6]\n"
         "%2 = slice(%1) {mesh=\"d\", axis=c} : f16[a=7, b=5/t, c=6/d]\n"
         "%3 = all_gather(%2) {mesh=\"t\", axis=b} : f16[a=7, b=5, c=6/d]\n"
         "%4 = all_gather(%3) {mesh=\"d\", axis=c} : f16[a=7, b=5, c=6]\n"
         "%5 = all_reduce(%0) {mesh=\"t\"} : f16[a=7, b=5, c=6]\n"},
        {"fp8 and its scales: all_gather", "t=3, d=2, p=1",
         "%0 = input() {name=\"\"} : bf16[a=6/d, b=384/t]\n"
         "%1:2 = quantize(%0) {over=[b]} : fp8[a=6/d, b=384/t], f32[a=6/d, b=3/t]\n"
         "%2 = all_gather(%1) {mesh=\"t\", axis=b} : fp8[a=6/d, b=384]\n"
         "%3 = all_gather(%1.1) {mesh=\"t\", axis=b} : f32[a=6/d, b=3]\n"
         "%4 = all_gather(%2) {mesh=\"d\", axis=a} : fp8[a=6, b=384]\n"
         "%5 = all_gather(%3) {mesh=\"d\", axis=a} : f32[a=6, b=3]\n"
         "%6 = dequantize(%4, %5) : bf16[a=6, b=384]\n"},
        {"weights in blocks: all_gather", "t=3, d=2, p=1",
         "%0 = param() {name=\"\", init=\"zeros\", decay=1, frozen=1} : nf4[a=6/d, b=384/t]\n"
         "%1 = all_gather(%0) {mesh=\"d\", axis=a} : nf4[a=6, b=384/t]\n"
         "%2 = widen(%1) {dtype=\"bf16\"} : bf16[a=6, b=384/t]\n"
         "%3 = all_gather(%0) {mesh=\"t\", axis=b} : nf4[a=6/d, b=384]\n"
         "%4 = widen(%3) {dtype=\"f32\"} : f32[a=6/d, b=384]\n"},
        {"reduce_scatter of log-sum-exp", "t=3, d=1, p=1",
         "%0 = input() {name=\"\"} : f32[a=7, b=5]~lse(t)\n"
         "%1 = reduce_scatter(%0) {mesh=\"t\", axis=a} : f32[a=7/t, b=5]\n"},
        {"all_to_all there and back", "t=2, e=3, d=1, p=1",
         "%0 = input() {name=\"\"} : f32[a=12/t, b=6/e, c=5]\n"
         "%1 = all_to_all(%0) {axis=a, over=[b], mesh=\"e\"} : f32[a=12/te, b=6, c=5]\n"
         "%2 = all_to_all(%1) {axis=b, over=[a], mesh=\"e\"} : f32[a=12/t, b=6/e, c=5]\n"},
        {"all_to_all from a sequence that c deals out to heads, and back", "t=2, c=2, d=1, p=1",
         "%0 = input() {name=\"\"} : f32[a=3, b=12/c, c=8/t, e=5]\n"
         "%1 = all_to_all(%0) {axis=c, over=[b], mesh=\"c\"} : f32[a=3, b=12, c=8/th, e=5]\n"
         "%2 = all_to_all(%1) {axis=b, over=[c], mesh=\"c\"} : f32[a=3, b=12/c, c=8/t, e=5]\n"
         "%3 = all_gather(%1) {mesh=\"h\", axis=c} : f32[a=3, b=12, c=8/t, e=5]\n"},
        {"stage_reduce", "t=1, d=1, p=3",
         "%0 = input() {name=\"\"} : f32[a=7, b=5]~sum(p)\n"
         "%1 = stage_reduce(%0) {comm=\"all\"} : f32[a=7, b=5]\n"},
    };
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        Arena *arena = arena_create();
        CudaRunHooks hooks = {.user = arena, .collective = launch_collective};
        CudaCase c = {.mesh = CASES[i].mesh, .nodes = CASES[i].nodes, .tolerance = 3e-6};
        c.hooks = &hooks;
        check_begin(CASES[i].name);
        cuda_check(&c);
        check_end();
        arena_destroy(arena);
    }
}

int main(void) {
    if (cuda_check_missing()) return 0;
    for (int reduce = REDUCE_SUM; reduce <= REDUCE_LSE; reduce++) {
        test_all_reduce(DTYPE_F32, (ReduceKind)reduce);
        test_axis(DTYPE_F32, REDUCE_SCATTER, (ReduceKind)reduce);
    }
    for (int reduce = REDUCE_SUM; reduce <= REDUCE_MAX; reduce++) {
        test_all_reduce(DTYPE_BF16, (ReduceKind)reduce);
        test_axis(DTYPE_BF16, REDUCE_SCATTER, (ReduceKind)reduce);
        test_all_reduce(DTYPE_F16, (ReduceKind)reduce);
        test_axis(DTYPE_F16, REDUCE_SCATTER, (ReduceKind)reduce);
    }
    test_all_to_all(DTYPE_F32);
    test_all_to_all(DTYPE_BF16);
    test_axis(DTYPE_F32, ALL_GATHER, REDUCE_SUM);
    test_axis(DTYPE_BF16, ALL_GATHER, REDUCE_SUM);
    test_dealt(DTYPE_F32);
    test_dealt(DTYPE_BF16);
    test_special_values();
    test_refusals();
    test_graphs();
    return check_report();
}
