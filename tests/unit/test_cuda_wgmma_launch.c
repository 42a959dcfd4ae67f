/* Which kernels attention launches where those on wgmma are wanted, and with how much shared
 * memory.
 *
 * Would catch: a shape that they cannot do sent to them; one that they can left to mma's; a kernel
 * for another head or dtype; less shared memory than its tiles take.
 */
#include "tests/unit/bind_node.h"
#include "tests/unit/check.h"

#include <string.h>

/* `user`: ATTENTION_JOINT: in one pass if it can be; else not. */
static AttentionKernels always_wgmma(void *user, const AttentionCommand *attention) {
    const AttentionShape *shape = &attention->shape;
    const AttentionKernels *wanted = user;
    if (*wanted == ATTENTION_JOINT && cuda_attention_has_joint(shape, attention->workspace_bytes))
        return ATTENTION_JOINT;
    return cuda_attention_has_wgmma(shape) ? ATTENTION_WGMMA : ATTENTION_MMA;
}

/* By hand: tiles of 128 rows, and four of 64 or 128, of 128 or 256 bytes; statistics besides;
 * forward of 128 six of 128. In one pass two of 128 and six of 64, statistics three times, 128 x 64
 * scores' gradients; of 128, from the next 128 bytes on, a tile's sums besides. */
typedef struct WgmmaShared {
    int forward, keys, queries, joint; /* bytes; 0: there is none */
    bool in_turns;
} WgmmaShared;
static const WgmmaShared SHARED_64 = {49152, 66560, 65536, 132624, false};
static const WgmmaShared SHARED_128 = {196608, 132096, 196608, 214656, true};
/* Of 384 and 256 bytes. */
static const WgmmaShared SHARED_192 = {212992, 164864, 163840, 0, false};

typedef struct WgmmaCase {
    const char *dtype;
    int head, values;
    float scale;
    const char *kernels;       /* "64_wgmma": of attention_forward_64_wgmma_bf16 */
    const WgmmaShared *shared; /* NULL: not one on wgmma */
} WgmmaCase;

static const WgmmaCase CASES[] = {
    {"bf16", 40, 40, 0.1f, "64_wgmma", &SHARED_64},
    {"f16", 64, 64, 0.1f, "64_wgmma", &SHARED_64},
    {"bf16", 72, 72, 0.1f, "128_wgmma", &SHARED_128},
    {"f16", 128, 128, 0.1f, "128_wgmma", &SHARED_128},
    {"bf16", 192, 128, 0.1f, "192_wgmma", &SHARED_192},
    {"f16", 96, 64, 0.1f, "192_wgmma", &SHARED_192},
    /* short heads, odd heads, long heads (no wgmma), long values, a scale that is not positive, f32
     */
    {"bf16", 32, 32, 0.1f, "32", NULL},
    {"bf16", 44, 44, 0.1f, "any", NULL},
    {"bf16", 136, 136, 0.1f, "256", NULL},
    {"bf16", 64, 136, 0.1f, "256", NULL},
    {"f16", 64, 64, -0.1f, "any", NULL},
    {"f32", 64, 64, 0.1f, "any", NULL},
};

/* attention_PART_64_bf16; but the kernels for any head: attention_any_PART_bf16, forward without
 * its name. */
static const char *kernel_name(Arena *arena, const WgmmaCase *c, const char *part) {
    if (strcmp(c->kernels, "any") != 0)
        return arena_printf(arena, "attention_%s_%s_%s", part, c->kernels, c->dtype);
    return strcmp(part, "forward") == 0
               ? arena_printf(arena, "attention_any_%s", c->dtype)
               : arena_printf(arena, "attention_any_%s_%s", part, c->dtype);
}

static void check_launch(const LaunchCommand *launch, const char *name, int shared_bytes) {
    CHECK(strcmp(KERNELS[launch->kernel].name, name) == 0, "%s, not %s",
          KERNELS[launch->kernel].name, name);
    if (shared_bytes == 0) return;
    CHECK(launch->shared_bytes == shared_bytes, "%s: %d bytes of shared memory", name,
          launch->shared_bytes);
    bool helped = strstr(name, "_joint_") || strstr(name, "_paired_");
    CHECK(launch->threads == (helped ? 384 : 256) && launch->grid.x == 2 * 3 * 3,
          "%s: %u blocks of %d", name, launch->grid.x, launch->threads);
}

/* Attention of 300 positions, 3 heads, 2 sequences; or its gradient. */
static const char *attention_text(Arena *arena, const WgmmaCase *c, bool backward, bool causal) {
    const char *q = arena_printf(arena, "%s[batch=2, seq=300, kv=3, head=%d]", c->dtype, c->head);
    const char *v =
        arena_printf(arena, "%s[batch=2, seq=300, kv=3, value=%d]", c->dtype, c->values);
    const char *lse = "f32[batch=2, seq=300, kv=3]";
    const char *attrs =
        arena_printf(arena, "{seq=seq, head=head, causal=%d, scale=%g}", causal, (double)c->scale);
    const char *node =
        backward
            ? arena_printf(arena,
                           "%%3:3 = attention_grad(%%0, %%0, %%2, %%2, %%1, %%2) %s : "
                           "%s, %s, %s",
                           attrs, q, q, v)
            : arena_printf(arena, "%%3:2 = attention(%%0, %%0, %%2) %s : %s, %s", attrs, v, lse);
    return arena_printf(arena,
                        "graph \"\" mesh(t=1, d=1, p=1) {\nforward:\n"
                        "%%0 = input() {name=\"\"} : %s\n%%1 = input() {name=\"\"} : %s\n"
                        "%%2 = input() {name=\"\"} : %s\n%s\n}\n",
                        q, lse, v, node);
}

static void check_case(const WgmmaCase *c, bool backward, bool causal, AttentionKernels wanted) {
    const AttentionCheck where_possible = {.choose = always_wgmma, .user = &wanted};
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    CommandList list = {0};
    CudaEmitter emitter = {.list = &list, .attention = &where_possible};
    const char *text = attention_text(arena, c, backward, causal);
    bool once = wanted == ATTENTION_JOINT && backward && causal && c->shared && c->shared->joint;
    int line = 1, expected = once ? 2 : backward ? 3 : 1;
    const Graph *graph = graph_parse(arena, "case", &text, &line, diag);
    bool bound = graph && bind_last_node(graph, &emitter, arena, diag);
    CHECK(bound && list.count == expected, "%d launches: %s", list.count, diag_text(diag));
    if (bound && once && list.count == 2) { /* the first is attention_delta */
        check_launch(&list.items[1].launch, kernel_name(arena, c, "joint"), c->shared->joint);
    } else if (bound && list.count == 1) {
        bool in_turns = c->shared && c->shared->in_turns;
        check_launch(&list.items[0].launch, kernel_name(arena, c, in_turns ? "paired" : "forward"),
                     c->shared ? c->shared->forward : 0);
    } else if (bound && list.count == 3) { /* the first, attention_delta, is as it was */
        check_launch(&list.items[1].launch, kernel_name(arena, c, "keys"),
                     c->shared ? c->shared->keys : 0);
        check_launch(&list.items[2].launch, kernel_name(arena, c, "queries"),
                     c->shared ? c->shared->queries : 0);
    }
    command_list_release(&list);
    diag_destroy(diag);
    arena_destroy(arena);
}

int main(void) {
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        char name[80];
        snprintf(name, sizeof(name), "launches on wgmma: %s, heads of %d and %d, scale %g",
                 CASES[i].dtype, CASES[i].head, CASES[i].values, (double)CASES[i].scale);
        check_begin(name);
        check_case(&CASES[i], false, true, ATTENTION_JOINT);
        for (int k = ATTENTION_WGMMA; k < N_ATTENTION_KERNELS; k++) {
            check_case(&CASES[i], true, false, (AttentionKernels)k);
            check_case(&CASES[i], true, true, (AttentionKernels)k);
        }
        check_end();
    }
    return check_report();
}
