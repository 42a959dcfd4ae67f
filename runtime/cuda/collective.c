#include "runtime/cuda/collective.h"

#include "runtime/cuda/member_launch.h"
#include "runtime/cuda/move.h"

/* The members' parts lie one after the other in the whole tensor. */
static bool is_direct(const CollectiveCommand *c) {
    return c->outer == 1 && c->n_members * c->axis_local == c->axis_total && !c->deals;
}

static bool is_lse(const CollectiveCommand *c) {
    return (c->kind == ALL_REDUCE || c->kind == REDUCE_SCATTER) && c->reduce == REDUCE_LSE;
}

/* Bytes of one member's part, and of the whole along the axis, for one outer index. */
static int64_t part_bytes(const CollectiveCommand *c) {
    return c->axis_local * c->inner * dtype_bytes(c->dtype);
}
static int64_t total_bytes(const CollectiveCommand *c) {
    return c->axis_total * c->inner * dtype_bytes(c->dtype);
}

/* Elements that every member brings. */
static int64_t input_count(const CollectiveCommand *c) {
    if (c->kind == ALL_REDUCE) return c->count;
    return c->outer * c->inner * (c->kind == ALL_GATHER ? c->axis_local : c->axis_total);
}

/* What an all-to-all has to unpack, or pack, on its side of strips; and, with several outer
 * indices or where blocks lie in two halves, on that of blocks. */
static bool strips_move(const CollectiveCommand *c) {
    return c->outer > 1 || c->axis_local > 1;
}
static bool blocks_move(const CollectiveCommand *c) {
    return c->outer > 1 || c->deals;
}

int64_t cuda_collective_workspace_bytes(const CollectiveCommand *c) {
    if (c->kind == ALL_TO_ALL) {
        return (strips_move(c) + blocks_move(c)) * c->outer * total_bytes(c);
    }
    if (is_lse(c)) return c->n_members * input_count(c) * dtype_bytes(c->dtype);
    if (c->kind == ALL_REDUCE || is_direct(c)) return 0;
    return c->n_members * c->outer * part_bytes(c);
}

static CollectiveStep nccl_step(const CollectiveCommand *c, CollectiveKind kind, const void *in,
                                void *out, int64_t count) {
    return (CollectiveStep){.nccl = {kind, c->reduce, c->dtype, in, out, count, c->n_members}};
}

/* Log-sum-exp: all members' inputs are gathered, then each reduces what it needs of them. */
static int lse_steps(const CollectiveCommand *c, Arena *arena, CollectiveStep *out) {
    int64_t count = input_count(c);
    Members m = {.n_members = c->n_members, .first = c->member, .n_outputs = 1, .out = {c->out}};
    if (c->n_members > COLLECTIVE_MEMBERS) return 0;
    for (int k = 0; k < c->n_members; k++) {
        m.in[k] = (const char *)c->workspace + k * count * dtype_bytes(c->dtype);
    }
    out[0] = nccl_step(c, ALL_GATHER, c->in, c->workspace, count);
    out[0].nccl.reduce = REDUCE_SUM; /* not used */
    out[1] = (CollectiveStep){.is_launch = true};
    bool fits = c->kind == ALL_REDUCE ? launch_all_reduce(c, &m, arena, &out[1].launch)
                                      : launch_reduce_scatter(c, &m, arena, &out[1].launch);
    return fits ? 2 : 0;
}

/* Steps that move members' parts to their places in the whole (`gathers`), or from these, from step
 * `at` on; 0: too large. Dealt out, the second chunks lie in the whole in the opposite order. */
static int add_moves(const CollectiveCommand *c, const MoveRows *move, bool gathers, Arena *arena,
                     CollectiveStep *out, int at) {
    int64_t half = move->width / 2, back = (2 * c->n_members - 1) * half;
    for (int k = 0; k < (c->deals ? 2 : 1); k++, at++) {
        MoveRows part = *move;
        if (c->deals) {
            part.width = half;
            part.limit = c->n_members * half;
            *(gathers ? &part.out_part : &part.in_part) = k == 0 ? half : -half;
            part.in = (const char *)move->in + (k == 0 ? 0 : gathers ? half : back);
            part.out = (char *)move->out + (k == 0 ? 0 : gathers ? back : half);
        }
        out[at] = (CollectiveStep){.is_launch = true};
        if (!move_rows_launch(&part, arena, &out[at].launch)) return 0;
    }
    return at;
}

/* workspace [member, outer, axis_local, inner] -> out [outer, axis_total, inner] */
static int gather_steps(const CollectiveCommand *c, Arena *arena, CollectiveStep *out) {
    MoveRows unpack = {.in = c->workspace,
                       .out = c->out,
                       .n_parts = c->n_members,
                       .n_rows = c->outer,
                       .width = part_bytes(c),
                       .limit = total_bytes(c),
                       .in_part = c->outer * part_bytes(c),
                       .in_row = part_bytes(c),
                       .out_part = part_bytes(c),
                       .out_row = total_bytes(c),
                       .cut = true};
    out[0] = nccl_step(c, ALL_GATHER, c->in, c->workspace, input_count(c));
    return add_moves(c, &unpack, true, arena, out, 1);
}

/* in [outer, axis_total, inner] -> workspace [member, outer, axis_local, inner] */
static int scatter_steps(const CollectiveCommand *c, Arena *arena, CollectiveStep *out) {
    MoveRows pack = {.in = c->in,
                     .out = c->workspace,
                     .n_parts = c->n_members,
                     .n_rows = c->outer,
                     .width = part_bytes(c),
                     .limit = total_bytes(c),
                     .in_part = part_bytes(c),
                     .in_row = total_bytes(c),
                     .out_part = c->outer * part_bytes(c),
                     .out_row = part_bytes(c)};
    int count = add_moves(c, &pack, false, arena, out, 0);
    if (count == 0) return 0;
    out[count] =
        nccl_step(c, REDUCE_SCATTER, c->workspace, c->out, c->outer * c->axis_local * c->inner);
    return count + 1;
}

/* Between a tensor and what goes to or comes from members 0, 1, ..: [member, outer, rows, width] */
static MoveRows exchange_move(const CollectiveCommand *c, bool strips, const void *tensor,
                              void *parts, bool packs) {
    int64_t row = c->inner * dtype_bytes(c->dtype), block = part_bytes(c), n = c->n_members;
    int64_t part = strips ? row : block, step = strips ? n * row : n * block;
    MoveRows move = {.n_parts = n,
                     .n_rows = strips ? c->outer * c->axis_local : c->outer,
                     .width = strips ? row : block};
    move.limit = n * move.width;
    move.in = packs ? tensor : parts;
    move.out = packs ? parts : (void *)(uintptr_t)tensor;
    *(packs ? &move.in_part : &move.out_part) = part;
    *(packs ? &move.in_row : &move.out_row) = step;
    *(packs ? &move.out_part : &move.in_part) = c->outer * block;
    *(packs ? &move.out_row : &move.in_row) = move.width;
    return move;
}

/* One or two moves of an exchange, from step `at` on; 0: too large. */
static int add_exchange_moves(const CollectiveCommand *c, bool strips, const void *tensor,
                              void *parts, bool packs, Arena *arena, CollectiveStep *out, int at) {
    MoveRows move = exchange_move(c, strips, tensor, parts, packs);
    if (!strips) return add_moves(c, &move, !packs, arena, out, at);
    out[at] = (CollectiveStep){.is_launch = true};
    return move_rows_launch(&move, arena, &out[at].launch) ? at + 1 : 0;
}

/* NCCL sends parts that lie together: what does not is packed first, and unpacked last. */
static int exchange_steps(const CollectiveCommand *c, Arena *arena, CollectiveStep *out) {
    bool packs = c->to_strips ? blocks_move(c) : strips_move(c);
    bool unpacks = c->to_strips ? strips_move(c) : blocks_move(c);
    char *from = packs ? c->workspace : (void *)(uintptr_t)c->in;
    char *to = !unpacks ? c->out : (char *)c->workspace + (packs ? c->outer * total_bytes(c) : 0);
    int count = 0;
    if (packs) {
        count = add_exchange_moves(c, !c->to_strips, c->in, from, true, arena, out, 0);
        if (count == 0) return 0;
    }
    out[count++] = nccl_step(c, ALL_TO_ALL, from, to, c->outer * c->axis_local * c->inner);
    if (!unpacks) return count;
    return add_exchange_moves(c, c->to_strips, c->out, to, false, arena, out, count);
}

int cuda_collective_steps(const CollectiveCommand *c, Arena *arena,
                          CollectiveStep out[MAX_COLLECTIVE_STEPS]) {
    int64_t bytes = cuda_collective_workspace_bytes(c);
    if (bytes > 0 && (!c->workspace || c->workspace_bytes < bytes)) return 0;
    if (is_lse(c)) return lse_steps(c, arena, out);
    if (c->kind == ALL_TO_ALL) return exchange_steps(c, arena, out);
    if (c->kind == ALL_REDUCE) {
        out[0] = nccl_step(c, ALL_REDUCE, c->in, c->out, c->count);
        return 1;
    }
    if (!is_direct(c)) {
        return c->kind == ALL_GATHER ? gather_steps(c, arena, out) : scatter_steps(c, arena, out);
    }
    out[0] = nccl_step(c, c->kind, c->in, c->out, c->outer * c->axis_local * c->inner);
    return 1;
}

static const CollectiveCommand *member_at(const CollectiveCommand *command, int k) {
    return k == 0 ? command : &command->more[k - 1];
}

int cuda_group_steps(const CollectiveCommand *command, Arena *arena, CollectiveStep **out) {
    enum { PACK, SEND, UNPACK, N_PARTS };
    int n_members = command->n_more + 1, count = 0;
    CollectiveStep(*steps)[MAX_COLLECTIVE_STEPS] =
        arena_alloc(arena, (size_t)n_members * sizeof(*steps));
    int *n_steps = ARENA_ARRAY(arena, int, n_members);
    *out = ARENA_ARRAY(arena, CollectiveStep, n_members * MAX_COLLECTIVE_STEPS);
    for (int k = 0; k < n_members; k++) {
        n_steps[k] = cuda_collective_steps(member_at(command, k), arena, steps[k]);
        if (n_steps[k] == 0) return 0;
    }
    for (int part = PACK; part < N_PARTS; part++) {
        for (int k = 0; k < n_members; k++) {
            for (int i = 0, now = PACK; i < n_steps[k]; i++) {
                now = !steps[k][i].is_launch ? SEND : now == PACK ? PACK : UNPACK;
                if (now == part) (*out)[count++] = steps[k][i];
            }
        }
    }
    return count;
}

int cuda_group_nodes(const CollectiveStep *steps, int n_steps) {
    int count = 0;
    for (int i = 0; i < n_steps; i++) {
        count += steps[i].is_launch || i == 0 || steps[i - 1].is_launch;
    }
    return count;
}
