/* Sizes beyond what 32 bits hold, bound but not run: each node makes launches that a device takes,
 * or is refused with one clear line.
 *
 * Would catch: a grid that wraps around; a count that is cut off to 32 bits; a size that stops the
 * program where it should be refused; a real size that is refused without need.
 */
#include "runtime/cuda/codegen.h"
#include "tests/unit/bind_node.h"
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
        bool bound = bind_last_node(graph, &emitter, arena, diag);
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

int main(void) {
    for (size_t i = 0; i < sizeof(LIMITS) / sizeof(LIMITS[0]); i++) check_limit(&LIMITS[i]);
    return check_report();
}
