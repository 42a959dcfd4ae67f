#include "runtime/cuda/member_launch.h"

#include "runtime/cuda/move.h"

#include <string.h>

/* Elements of 16 bytes. */
static int64_t vector_elements(const CollectiveCommand *c) {
    return 16 / dtype_bytes(c->dtype);
}

static bool are_aligned(const Members *m) {
    uintptr_t bits = 0;
    for (int k = 0; k < m->n_members; k++) bits |= (uintptr_t)m->in[k];
    for (int k = 0; k < m->n_outputs; k++) bits |= (uintptr_t)m->out[k];
    return bits % 16 == 0;
}

/* Elements of a member's part that lie together in the whole. */
static int64_t unit_part(const CollectiveCommand *c) {
    int64_t part = c->axis_local * c->inner;
    return c->deals ? part / 2 : part;
}

static bool make_launch(KernelId kernel, int64_t threads, const void *args, LaunchCommand *out) {
    if (threads >= MOVE_MAX_COUNT * COLLECTIVE_THREADS) return false;
    uint32_t blocks = (uint32_t)((threads + COLLECTIVE_THREADS - 1) / COLLECTIVE_THREADS);
    *out = (LaunchCommand){.kernel = kernel,
                           .grid = {blocks, 1, 1},
                           .threads = COLLECTIVE_THREADS,
                           .args = args,
                           .args_bytes = KERNELS[kernel].args_bytes};
    return true;
}

bool launch_all_reduce(const CollectiveCommand *like, const Members *m, Arena *arena,
                       LaunchCommand *out) {
    static const KernelsByDtype KERNELS_OF = KERNELS_BY_DTYPE(all_reduce);
    AllReduceArgs *args = ARENA_NEW(arena, AllReduceArgs);
    *args = (AllReduceArgs){.count = like->count,
                            .kind = (int32_t)like->reduce,
                            .n_members = m->n_members,
                            .n_outputs = m->n_outputs,
                            .vector = are_aligned(m)};
    memcpy(args->in, m->in, sizeof(args->in));
    memcpy(args->out, m->out, sizeof(args->out));
    int64_t width = args->vector ? vector_elements(like) : 1;
    return make_launch(kernel_for_dtype(&KERNELS_OF, like->dtype),
                       like->count / width + like->count % width, args, out);
}

bool launch_reduce_scatter(const CollectiveCommand *like, const Members *m, Arena *arena,
                           LaunchCommand *out) {
    static const KernelsByDtype KERNELS_OF = KERNELS_BY_DTYPE(reduce_scatter);
    int64_t part = like->axis_local * like->inner, total = like->axis_total * like->inner;
    int64_t width = vector_elements(like);
    bool vector = are_aligned(m) && unit_part(like) % width == 0 && total % width == 0;
    if (!vector) width = 1;
    int64_t count = m->n_outputs * like->outer * (part / width);
    if (count >= MOVE_MAX_COUNT) return false;
    ReduceScatterArgs *args = ARENA_NEW(arena, ReduceScatterArgs);
    *args = (ReduceScatterArgs){.total = total / width,
                                .count = (uint32_t)count,
                                .part = fast_divisor(part / width),
                                .rows = fast_divisor(like->outer),
                                .kind = (int32_t)like->reduce,
                                .n_members = m->n_members,
                                .first = m->first,
                                .vector = vector,
                                .deals = like->deals};
    memcpy(args->in, m->in, sizeof(args->in));
    memcpy(args->out, m->out, sizeof(args->out));
    return make_launch(kernel_for_dtype(&KERNELS_OF, like->dtype), count, args, out);
}

bool launch_all_gather(const CollectiveCommand *like, const Members *m, Arena *arena,
                       LaunchCommand *out) {
    static const KernelId KERNELS_BY_UNIT[] = {KERNEL_all_gather_2, KERNEL_all_gather_4,
                                               KERNEL_all_gather_8, KERNEL_all_gather_16};
    int64_t element = dtype_bytes(like->dtype);
    int64_t part = like->axis_local * like->inner * element;
    int64_t total = like->axis_total * like->inner * element;
    int64_t together = unit_part(like) * element;
    int64_t unit = are_aligned(m) ? move_unit((int64_t[]){together, total}, 2) : element;
    int64_t count = m->n_members * like->outer * (part / unit);
    if (count >= MOVE_MAX_COUNT) return false;
    AllGatherArgs *args = ARENA_NEW(arena, AllGatherArgs);
    *args = (AllGatherArgs){.total = total / unit,
                            .count = (uint32_t)count,
                            .part = fast_divisor(part / unit),
                            .rows = fast_divisor(like->outer),
                            .n_members = m->n_members,
                            .deals = like->deals};
    memcpy(args->in, m->in, sizeof(args->in));
    memcpy(args->out, m->out, sizeof(args->out));
    return make_launch(KERNELS_BY_UNIT[move_unit_log((int)unit)], count, args, out);
}

bool launch_all_to_all(const CollectiveCommand *like, const Members *m, Arena *arena,
                       LaunchCommand *out) {
    static const KernelId KERNELS_BY_UNIT[] = {KERNEL_all_to_all_2, KERNEL_all_to_all_4,
                                               KERNEL_all_to_all_8, KERNEL_all_to_all_16};
    int64_t element = dtype_bytes(like->dtype), width = like->inner * element;
    int64_t unit = are_aligned(m) ? move_unit(&width, 1) : element;
    int64_t n = m->n_members, count = n * n * like->outer * like->axis_local * (width / unit);
    if (count >= MOVE_MAX_COUNT) return false;
    AllToAllArgs *args = ARENA_NEW(arena, AllToAllArgs);
    *args = (AllToAllArgs){.count = (uint32_t)count,
                           .width = fast_divisor(width / unit),
                           .rows = fast_divisor(like->axis_local),
                           .outer = fast_divisor(like->outer),
                           .members = fast_divisor(n),
                           .to_strips = like->to_strips,
                           .deals = like->deals};
    memcpy(args->in, m->in, sizeof(args->in));
    memcpy(args->out, m->out, sizeof(args->out));
    return make_launch(KERNELS_BY_UNIT[move_unit_log((int)unit)], count, args, out);
}
