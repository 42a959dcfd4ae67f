#include "runtime/cuda/command.h"

#include "runtime/cuda/collective.h"
#include "runtime/cuda/kernels/args.h"

#include <stdlib.h>

const KernelInfo KERNELS[N_KERNELS] = {
#define KERNEL(name, args) {#name, sizeof(args)},
#include "runtime/cuda/kernels.def"
#undef KERNEL
};

KernelId kernel_for_dtype(const KernelsByDtype *kernels, DType dtype) {
    if (!dtype_is_float(dtype)) BUG("no kernel for operands of %s", dtype_name(dtype));
    return kernels->of[dtype];
}

bool kernel_is_of(const KernelsByDtype *kernels, KernelId kernel) {
    return kernel == kernels->of[DTYPE_F32] || kernel == kernels->of[DTYPE_BF16] ||
           kernel == kernels->of[DTYPE_F16];
}

/* Any device and driver takes so much by value. */
enum { MOST_ARGS_BYTES = 4096 };
#define KERNEL(name, args)                                                                         \
    _Static_assert(sizeof(args) <= (size_t)MOST_ARGS_BYTES, #name ": too many arguments");
#include "runtime/cuda/kernels.def"
#undef KERNEL

const char *stream_kind_name(StreamKind kind) {
    static const char *const NAMES[] = {"compute",
                                        "tensor",
                                        "expert",
                                        "data",
                                        "pipeline",
                                        "send forward",
                                        "receive forward",
                                        "send backward",
                                        "receive backward",
                                        "send forward, back up",
                                        "receive forward, back up",
                                        "send backward, back up",
                                        "receive backward, back up",
                                        "offload",
                                        "fetch"};
    return NAMES[kind];
}

bool stream_sends(StreamKind kind) {
    return kind == STREAM_SEND_FORWARD || kind == STREAM_SEND_BACKWARD ||
           kind == STREAM_BACK_SEND_FORWARD || kind == STREAM_BACK_SEND_BACKWARD;
}

const char *command_kind_name(CommandKind kind) {
    static const char *const NAMES[] = {"kernel", "matrix product", "attention", "copy",
                                        "fill",   "collective",     "send",      "receive"};
    return NAMES[kind];
}

void command_list_push(CommandList *list, const Command *command) {
    if (list->count == list->capacity) {
        list->capacity = list->capacity ? 2 * list->capacity : 256;
        list->items = realloc(list->items, (size_t)list->capacity * sizeof(*list->items));
        if (!list->items) BUG("out of memory for %d commands", list->capacity);
    }
    list->items[list->count++] = *command;
}

void command_list_compact(CommandList *list) {
    int n_kept = 0;
    for (int i = 0; i < list->count; i++) {
        if (list->items[i].kind != COMMAND_GONE) list->items[n_kept++] = list->items[i];
    }
    list->count = n_kept;
}

void command_list_release(CommandList *list) {
    free(list->items);
    *list = (CommandList){0};
}

/* A product may stand for a sum, too. */
static bool is_of(const Command *command, const Node *node, const CommandInfo *info) {
    bool sums = command->kind == COMMAND_GEMM && command->gemm.summed == node;
    return (sums || command->info.node == node) && command_same_task(&command->info, info);
}

bool command_list_find_node(const CommandList *list, const Node *node, int before, int *out_first,
                            int *out_end) {
    enum { MOST_BETWEEN = 64 };
    const CommandInfo *info = &list->items[before].info;
    int end = before;
    while (end > 0 && before - end < MOST_BETWEEN && !is_of(&list->items[end - 1], node, info)) {
        end--;
    }
    int first = end;
    while (first > 0 && is_of(&list->items[first - 1], node, info)) first--;
    *out_first = first;
    *out_end = end;
    return first < end;
}

bool command_list_leaves_alone(const CommandList *list, int first, int end, const Access *memory,
                               bool written) {
    for (int i = first; i < end; i++) {
        const Command *command = &list->items[i];
        if (command->kind == COMMAND_GONE) continue;
        if (command->kind == COMMAND_SEND || command->kind == COMMAND_RECV) return false;
        for (int k = 0; k < command->n_accesses; k++) {
            const Access *access = &command->accesses[k];
            if ((access->write || !written) && access_overlaps(access, memory)) return false;
        }
    }
    return true;
}

int gemm_reads(const GemmCommand *g, Access out[GEMM_MOST_READS]) {
    const MatmulLayout *l = &g->layout;
    int n = 0;
    out[n++] = gemm_range(g->a, l->m, l->k, g->in_dtype, false);
    out[n++] = gemm_range(g->b, l->k, l->n, g->in_dtype, false);
    const GemmScales *scales[2] = {&g->scales_a, &g->scales_b};
    for (int i = 0; i < 2; i++) {
        if (!scales[i]->at) continue;
        out[n++] = gemm_range(scales[i]->at, 1, gemm_count_scales(g, scales[i]), DTYPE_F32, false);
    }
    if (g->bias) out[n++] = gemm_range(g->bias, 1, l->n, g->out_dtype, false);
    return n;
}

PlanAlgo gemm_product(const GemmCommand *gemm) {
    const MatmulLayout *l = &gemm->layout;
    return (PlanAlgo){.layout = {.batch = l->batch,
                                 .m = l->m,
                                 .n = l->n,
                                 .k = l->k,
                                 .transpose_a = l->transpose_a,
                                 .transpose_b = l->transpose_b},
                      .shared = gemm->apart.d != 0,
                      .in_dtype = gemm->in_dtype,
                      .out_dtype = gemm->out_dtype,
                      .tiles = gemm->scales_a.form + 2 * gemm->scales_b.form,
                      .accumulate = gemm->beta != 0,
                      .epilogue =
                          4 * (int)gemm->epilogue + 2 * (gemm->bias != NULL) + (gemm->aux != NULL)};
}

PlanAttention attention_kind(const AttentionShape *s) {
    return (PlanAttention){.backward = s->backward,
                           .causal = s->causal,
                           .dtype = s->dtype,
                           .batch = s->batch,
                           .seq = s->seq,
                           .kv_heads = s->kv_heads,
                           .group = s->group,
                           .head = s->head,
                           .values = attention_values(s),
                           .window = s->window,
                           .keys = attention_keys(s),
                           .documents = s->documents};
}

bool gemm_device_joins(const PlanDevice *tuned, const GemmCommand *one, const GemmCommand *joined) {
    PlanAlgo apart = gemm_product(one), together = gemm_product(joined);
    return !tuned || !plan_find_algo(tuned, &apart) || plan_find_algo(tuned, &together);
}

GemmCommand gemm_without_gelu(const GemmCommand *gemm) {
    GemmCommand simple = *gemm;
    simple.epilogue = EPILOGUE_SUM;
    simple.bias = NULL;
    simple.aux = NULL;
    return simple;
}

bool gemm_device_folds(const PlanDevice *tuned, const GemmCommand *gemm) {
    GemmCommand simple = gemm_without_gelu(gemm);
    if (!gemm_has_gelu(gemm)) return true;
    PlanAlgo with = gemm_product(gemm), without = gemm_product(&simple);
    return !tuned || !plan_find_algo(tuned, &without) || plan_find_algo(tuned, &with);
}

int64_t command_count_nodes(const CommandList *list) {
    Arena *arena = arena_create();
    int64_t count = 0;
    for (int i = 0; i < list->count; i++) {
        const Command *command = &list->items[i];
        CollectiveStep *steps;
        int n = 1;
        if (command->kind == COMMAND_COLLECTIVE) {
            int n_steps = cuda_group_steps(&command->collective, arena, &steps);
            n = cuda_group_nodes(steps, n_steps);
        }
        count += n ? n : 1; /* too large: issuing it reports */
    }
    arena_destroy(arena);
    return count;
}

/* Do all parts begin at whole 16 bytes of lse, which has the least of a position? */
static bool is_aligned(const AttentionShape *s, AttentionPart part) {
    enum { FLOATS = 4 };
    int64_t heads = s->kv_heads * s->group;
    return (part.kv_heads == s->kv_heads || part.kv_heads * s->group % FLOATS == 0) &&
           (part.batch == s->batch || part.batch * s->seq * heads % FLOATS == 0);
}

/* The next smaller part of which all are alike, or `part` itself. */
static AttentionPart smaller_part(const AttentionShape *s, AttentionPart part) {
    AttentionPart next = part;
    if (next.batch > 1) {
        do next.batch--;
        while (s->batch % next.batch);
    } else if (next.kv_heads > 1) {
        do next.kv_heads--;
        while (s->kv_heads % next.kv_heads);
    }
    return next;
}

AttentionPart attention_part(const AttentionShape *shape, int64_t bytes) {
    AttentionPart part = {shape->batch, shape->kv_heads}, least = part;
    while (attention_library_bytes(shape, least) > bytes) {
        AttentionPart next = smaller_part(shape, part);
        if (next.batch == part.batch && next.kv_heads == part.kv_heads) break;
        part = next;
        if (is_aligned(shape, part)) least = part;
    }
    return least;
}
