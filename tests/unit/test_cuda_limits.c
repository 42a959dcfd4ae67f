/* Sizes beyond what 32 bits hold, bound but not run: each node makes launches that a device takes,
 * or is refused with one clear line.
 *
 * Would catch: a grid that wraps around; a count that is cut off to 32 bits; a size that stops the
 * program where it should be refused; a real size that is refused without need.
 */
#include "runtime/cuda/bind.h"
#include "runtime/cuda/codegen.h"
#include "runtime/cuda/kernels/args.h"
#include "tests/unit/check.h"

#include <string.h>

/* One node, the last of the text; its operands come before. */
typedef struct Limit {
    const char *name, *nodes;
    const char *refusal; /* part of the line; NULL: it is bound */
} Limit;

#define INPUT(id, type) "%" #id " = input() {name=\"\"} : " type "\n"
#define LOGITS          "[batch=64, seq=8192, vocab=128256]"
#define ROWS            "[batch=64, seq=8192]"

static const Limit LIMITS[] = {
    {"log-sum-exps of the largest logits",
     INPUT(0, "bf16" LOGITS) "%1 = logsumexp(%0) {axis=vocab} : f32" ROWS "\n", NULL},
    {"picking from the largest logits",
     INPUT(0, "bf16" LOGITS) INPUT(1, "i32" ROWS) "%2 = pick(%0, %1) {axis=vocab} : f32" ROWS "\n",
     NULL},
    {"the gradient of the largest logits",
     INPUT(0, "bf16" LOGITS) INPUT(1, "i32" ROWS) INPUT(2, "f32" ROWS) INPUT(
         3, "f32" ROWS) "%4 = cross_entropy_grad(%0, %1, %2, %3) {axis=vocab} : bf16" LOGITS "\n",
     NULL},
    {"a sum of the largest logits",
     INPUT(0, "bf16" LOGITS) INPUT(1, "bf16" LOGITS) "%2 = add(%0, %1) : bf16" LOGITS "\n", NULL},
    {"the sum of the largest logits' columns",
     INPUT(0, "bf16" LOGITS) "%1 = reduce_sum(%0) {over=[batch, seq], dtype=\"f32\"} : "
                             "f32[vocab=128256]\n",
     NULL},
    {"the sum of the largest logits' rows",
     INPUT(0, "bf16" LOGITS) "%1 = reduce_sum(%0) {over=[vocab], dtype=\"f32\"} : f32" ROWS "\n",
     NULL},
    {"the sum of all of the largest logits",
     INPUT(0, "bf16" LOGITS) "%1 = reduce_sum(%0) {over=[batch, seq, vocab], dtype=\"f32\"} : "
                             "f32[]\n",
     "is too large"},
    {"a sum over one of 2^32 columns",
     INPUT(0, "f32[a=1, b=4294967296]") "%1 = reduce_sum(%0) {over=[a], dtype=\"f32\"} : "
                                        "f32[b=4294967296]\n",
     "is too large"},
    {"the other order of the largest logits",
     INPUT(0, "bf16" LOGITS) "%1 = transpose(%0) {to=[vocab, batch, seq]} : bf16[vocab=128256, "
                             "batch=64, seq=8192]\n",
     NULL},
    {"rows of odd elements in another order",
     INPUT(0, "bf16[a=65537, b=65537, c=3]") "%1 = transpose(%0) {to=[b, a, c]} : bf16[b=65537, "
                                             "a=65537, c=3]\n",
     "is too large"},
    {"more tiles than can be counted",
     INPUT(0, "f32[a=8589934592, b=2, c=33]") "%1 = transpose(%0) {to=[a, c, b]} : "
                                              "f32[a=8589934592, c=33, b=2]\n",
     "is too large"},
    {"a norm of wide rows",
     INPUT(0, "bf16[rows=524288, cols=28672]") INPUT(1, "f32[cols=28672]") INPUT(2,
                                                                                 "f32[rows=524288]")
         INPUT(3, "bf16[rows=524288, cols=28672]") "%4:2 = rmsnorm_grad(%0, %1, %2, %3) "
                                                   "{axis=cols} : bf16[rows=524288, cols=28672], "
                                                   "f32[cols=28672]\n",
     NULL},
    {"a norm of more rows than a grid has blocks",
     INPUT(0, "f32[rows=4294967297, cols=3]")
         INPUT(1, "f32[cols=3]") "%2:2 = rmsnorm(%0, %1) {axis=cols, eps=0.1} : "
                                 "f32[rows=4294967297, cols=3], "
                                 "f32[rows=4294967297]\n",
     "needs a larger grid than a device has"},
    {"a norm of rows of 2^31",
     INPUT(0, "f32[rows=2, cols=2147483648]")
         INPUT(1, "f32[cols=2147483648]") "%2:2 = rmsnorm(%0, %1) {axis=cols, eps=0.1} : "
                                          "f32[rows=2, cols=2147483648], f32[rows=2]\n",
     "has rows too wide for its CUDA kernel"},
    {"logits of 2^31 columns",
     INPUT(0, "bf16[rows=2, vocab=2147483648]") "%1 = logsumexp(%0) {axis=vocab} : f32[rows=2]\n",
     "has rows too wide for its CUDA kernel"},
    {"the squares of ten thousand million weights",
     INPUT(0, "f32[a=100000, b=100001]") "%1 = sumsq(%0) : f32[]\n", NULL},
    {"attention of a hundred thousand heads",
     INPUT(0, "bf16[batch=12500, seq=4096, kv=8, head=64]")
         INPUT(1, "bf16[batch=12500, seq=4096, kv=8, head=64]") INPUT(
             2,
             "bf16[batch=12500, seq=4096, kv=8, head=64]") "%3:2 = attention(%0, %1, %2) {seq=seq, "
                                                           "head=head, causal=1, scale=0.125} : "
                                                           "bf16[batch=12500, seq=4096, kv=8, "
                                                           "head=64], f32[batch=12500, seq=4096, "
                                                           "kv=8]\n",
     NULL},
    {"attention over 131072 positions",
     INPUT(0, "bf16[batch=1, seq=131072, kv=8, group=8, head=128]")
         INPUT(1, "bf16[batch=1, seq=131072, kv=8, head=128]") INPUT(
             2,
             "bf16[batch=1, seq=131072, kv=8, head=128]") "%3:2 = attention(%0, %1, %2) {seq=seq, "
                                                          "head=head, causal=1, scale=0.125} : "
                                                          "bf16[batch=1, seq=131072, kv=8, "
                                                          "group=8, head=128], "
                                                          "f32[batch=1, seq=131072, kv=8, "
                                                          "group=8]\n",
     NULL},
    {"attention over 131072 positions of 128 heads",
     INPUT(0, "bf16[batch=1, seq=131072, kv=8, group=16, head=128]")
         INPUT(1, "bf16[batch=1, seq=131072, kv=8, head=128]") INPUT(
             2,
             "bf16[batch=1, seq=131072, kv=8, head=128]") "%3:2 = attention(%0, %1, %2) {seq=seq, "
                                                          "head=head, causal=1, scale=0.125} : "
                                                          "bf16[batch=1, seq=131072, kv=8, "
                                                          "group=16, head=128], "
                                                          "f32[batch=1, seq=131072, kv=8, "
                                                          "group=16]\n",
     "has 2^31 elements or more in a batch row, too many on CUDA"},
    {"attention of 2^31 heads",
     INPUT(0, "bf16[batch=268435456, seq=1, kv=8, head=8]")
         INPUT(1, "bf16[batch=268435456, seq=1, kv=8, head=8]") INPUT(
             2,
             "bf16[batch=268435456, seq=1, kv=8, head=8]") "%3:2 = attention(%0, %1, %2) {seq=seq, "
                                                           "head=head, causal=1, scale=0.125} : "
                                                           "bf16[batch=268435456, seq=1, kv=8, "
                                                           "head=8], f32[batch=268435456, seq=1, "
                                                           "kv=8]\n",
     "has 2^31 heads or more in a batch, too many on CUDA"},
};

/* Addresses of operands and results: far apart, never followed. */
static char *place(int i) {
    return (char *)((uintptr_t)(i + 1) << 44);
}

static bool bind_last(const Graph *graph, CudaEmitter *emitter, Arena *arena, Diag *diag) {
    Node *node = graph->nodes[graph->n_nodes - 1];
    Binding b = {.graph = graph,
                 .node = node,
                 .arena = arena,
                 .diag = diag,
                 .n_micro = 1,
                 .in = ARENA_ARRAY(arena, void *, node->n_inputs + 1),
                 .in_local = ARENA_ARRAY(arena, Type, node->n_inputs + 1),
                 .backend = emitter};
    for (int i = 0; i < node->n_inputs; i++) {
        b.in[i] = place(i);
        b.in_local[i] = *value_type(node->inputs[i]);
    }
    for (int o = 0; o < node->n_outputs; o++) {
        b.out[o] = place(node->n_inputs + o);
        b.out_local[o] = node->types[o];
    }
    b.workspace = place(node->n_inputs + node->n_outputs);
    b.workspace_bytes = cuda_workspace_bytes(node, b.in_local, b.out_local);
    return cuda_bind(&b);
}

static void check_launches(const CommandList *list) {
    CHECK(list->count > 0, "no launches");
    for (int i = 0; i < list->count; i++) {
        const Grid *grid = &list->items[i].launch.grid;
        CHECK(grid->x > 0 && grid->x <= INT32_MAX && grid->y > 0 && grid->y <= 65535,
              "a grid of %u x %u", grid->x, grid->y);
    }
}

static void check_limit(const Limit *limit) {
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    CommandList list = {0};
    CudaEmitter emitter = {.list = &list, .generated = kernel_cache_create(arena)};
    const char *text =
        arena_printf(arena, "graph \"\" mesh(t=1, d=1, p=1) {\nforward:\n%s}\n", limit->nodes);
    int line = 1;
    check_begin(limit->name);
    const Graph *graph = graph_parse(arena, "case", &text, &line, diag);
    bool good = graph && graph_verify(graph, diag);
    CHECK(good, "%s", diag_text(diag));
    if (good) {
        bool bound = bind_last(graph, &emitter, arena, diag);
        CHECK(bound == !limit->refusal, "%s: %s", bound ? "bound" : "refused", diag_text(diag));
        if (bound) check_launches(&list);
        if (!bound && limit->refusal) {
            CHECK(strstr(diag_text(diag), limit->refusal), "it says: %s", diag_text(diag));
        }
    }
    check_end();
    command_list_release(&list);
    diag_destroy(diag);
    arena_destroy(arena);
}

static AttentionKernels always_wgmma(void *user, const AttentionCommand *attention) {
    (void)user;
    return cuda_attention_has_wgmma(&attention->shape) ? ATTENTION_WGMMA : ATTENTION_MMA;
}

typedef struct WgmmaCase {
    const char *dtype;
    int head;
    float scale;
    const char *forward, *keys, *queries;            /* kernels */
    int forward_shared, keys_shared, queries_shared; /* bytes */
} WgmmaCase;

/* The launches of one attention, or of its gradient, where those on wgmma are wanted. */
static void check_wgmma_node(const WgmmaCase *c, bool backward) {
    static const AttentionCheck CHECK_WGMMA = {always_wgmma, NULL};
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    CommandList list = {0};
    CudaEmitter emitter = {.list = &list, .attention = &CHECK_WGMMA};
    const char *q = arena_printf(arena, "%s[batch=2, seq=300, kv=3, head=%d]", c->dtype, c->head);
    const char *lse = "f32[batch=2, seq=300, kv=3]";
    const char *leaf = "%%%d = input() {name=\"\"} : %s\n";
    const char *attrs =
        arena_printf(arena, "{seq=seq, head=head, causal=1, scale=%g}", (double)c->scale);
    const char *text = arena_printf(
        arena, "graph \"\" mesh(t=1, d=1, p=1) {\nforward:\n%s%s%s}\n",
        arena_printf(arena, leaf, 0, q), arena_printf(arena, leaf, 1, lse),
        backward
            ? arena_printf(arena,
                           "%%2:3 = attention_grad(%%0, %%0, %%0, %%0, %%1, %%0) %s : "
                           "%s, %s, %s\n",
                           attrs, q, q, q)
            : arena_printf(arena, "%%2:2 = attention(%%0, %%0, %%0) %s : %s, %s\n", attrs, q, lse));
    int line = 1;
    const Graph *graph = graph_parse(arena, "case", &text, &line, diag);
    bool good = graph && bind_last(graph, &emitter, arena, diag);
    CHECK(good && list.count == (backward ? 3 : 1), "%d launches: %s", list.count, diag_text(diag));
    for (int i = backward; good && i < list.count; i++) { /* attention_delta_* is as it was */
        const LaunchCommand *launch = &list.items[i].launch;
        const char *name = !backward ? c->forward : i == 1 ? c->keys : c->queries;
        int shared = !backward ? c->forward_shared : i == 1 ? c->keys_shared : c->queries_shared;
        CHECK(strcmp(KERNELS[launch->kernel].name, name) == 0, "%s, not %s",
              KERNELS[launch->kernel].name, name);
        if (!shared) continue; /* not one on wgmma */
        CHECK(launch->shared_bytes == shared, "%s: %d bytes of shared memory", name,
              launch->shared_bytes);
        CHECK(launch->threads == 256 && launch->grid.x == 2 * 3 * 3, "%s: %u blocks of %d", name,
              launch->grid.x, launch->threads);
    }
    command_list_release(&list);
    diag_destroy(diag);
    arena_destroy(arena);
}

/* By hand: tiles of 128 rows, and four of 64 or 128, of 128 or 256 bytes; statistics besides. */
static void test_wgmma(void) {
    static const WgmmaCase CASES[] = {
        {"bf16", 40, 0.1f, "attention_forward_64_wgmma_bf16", "attention_keys_64_wgmma_bf16",
         "attention_queries_64_wgmma_bf16", 49152, 66560, 65536},
        {"f16", 64, 0.1f, "attention_forward_64_wgmma_f16", "attention_keys_64_wgmma_f16",
         "attention_queries_64_wgmma_f16", 49152, 66560, 65536},
        {"bf16", 72, 0.1f, "attention_forward_128_wgmma_bf16", "attention_keys_128_wgmma_bf16",
         "attention_queries_128_wgmma_bf16", 163840, 132096, 196608},
        {"f16", 128, 0.1f, "attention_forward_128_wgmma_f16", "attention_keys_128_wgmma_f16",
         "attention_queries_128_wgmma_f16", 163840, 132096, 196608},
        /* short heads, odd heads, long heads, a scale that is not positive, f32 */
        {"bf16", 32, 0.1f, "attention_forward_32_bf16", "attention_keys_32_bf16",
         "attention_queries_32_bf16", 0, 0, 0},
        {"bf16", 44, 0.1f, "attention_any_bf16", "attention_any_keys_bf16",
         "attention_any_queries_bf16", 0, 0, 0},
        {"bf16", 136, 0.1f, "attention_any_bf16", "attention_any_keys_bf16",
         "attention_any_queries_bf16", 0, 0, 0},
        {"f16", 64, -0.1f, "attention_any_f16", "attention_any_keys_f16",
         "attention_any_queries_f16", 0, 0, 0},
        {"f32", 64, 0.1f, "attention_any_f32", "attention_any_keys_f32",
         "attention_any_queries_f32", 0, 0, 0},
    };
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        char name[80];
        snprintf(name, sizeof(name), "launches on wgmma: %s, heads of %d, scale %g", CASES[i].dtype,
                 CASES[i].head, (double)CASES[i].scale);
        check_begin(name);
        check_wgmma_node(&CASES[i], false);
        check_wgmma_node(&CASES[i], true);
        check_end();
    }
}

int main(void) {
    test_wgmma();
    for (size_t i = 0; i < sizeof(LIMITS) / sizeof(LIMITS[0]); i++) check_limit(&LIMITS[i]);
    return check_report();
}
