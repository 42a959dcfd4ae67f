/* narrow, pad, concat, shift, rename, regroup, of_pairs: rows copied between pitches; stack:
 * operands one after another. */
#include "ir/ops/parts.h"
#include "runtime/cpu/bind.h"

#include <string.h>

#define PARALLEL_BYTES 65536 /* fewer are copied before other threads have woken */

typedef struct PartsArgs {
    int n_moves;
    size_t element_bytes;
    PartMove moves[MAX_PARTS];
    const char *in[MAX_PARTS];
    char *out;
} PartsArgs;

/* `count` elements of 4 bytes, or as many bytes of zeros: nothing else has a fill. */
static void fill_elements(char *out, size_t bytes, int32_t fill) {
    if (fill == 0) {
        memset(out, 0, bytes);
        return;
    }
    for (size_t i = 0; i < bytes; i += sizeof(fill)) memcpy(out + i, &fill, sizeof(fill));
}

static void run_move(const PartMove *m, const char *in, char *out, size_t element_bytes) {
    size_t unit = (size_t)m->inner * element_bytes;
    size_t row_in = (size_t)m->n_in * unit, row_out = (size_t)m->n_out * unit;
    size_t from = (size_t)m->from * unit, to = (size_t)m->to * unit;
    size_t bytes = (size_t)m->count * unit;
#pragma omp parallel for schedule(static) if ((size_t)m->outer * bytes > PARALLEL_BYTES)
    for (int64_t o = 0; o < m->outer; o++) {
        char *row = out + (size_t)o * row_out;
        memcpy(row + to, in + (size_t)o * row_in + from, bytes);
        if (!m->fills) continue;
        fill_elements(row, to, m->fill);
        fill_elements(row + to + bytes, row_out - to - bytes, m->fill);
    }
}

static bool run_parts(const void *args) {
    const PartsArgs *a = args;
    for (int i = 0; i < a->n_moves; i++) {
        run_move(&a->moves[i], a->in[i], a->out, a->element_bytes);
    }
    return true;
}

static bool bind_parts(Binding *b, CpuCall *out) {
    PartsArgs *args = ARENA_NEW(b->arena, PartsArgs);
    args->n_moves = parts_moves(b->node, b->in_local, &b->out_local[0], args->moves);
    args->element_bytes = (size_t)dtype_bytes(b->out_local[0].dtype);
    for (int i = 0; i < b->node->n_inputs; i++) args->in[i] = b->in[i];
    args->out = b->out[0];
    *out = (CpuCall){run_parts, args};
    return true;
}

/* All of it in pieces, from one place to another. */
static bool bind_whole(Binding *b, CpuCall *out) {
    enum { PIECE_BYTES = 256 << 10 };
    PartsArgs *args = ARENA_NEW(b->arena, PartsArgs);
    int64_t bytes = type_bytes(&b->out_local[0]), whole = bytes / PIECE_BYTES;
    int64_t rest = bytes - whole * PIECE_BYTES;
    args->element_bytes = 1;
    if (whole > 0) {
        args->moves[args->n_moves++] =
            (PartMove){.outer = whole, .inner = PIECE_BYTES, .n_in = 1, .n_out = 1, .count = 1};
    }
    if (rest > 0) {
        args->moves[args->n_moves++] = (PartMove){.outer = 1,
                                                  .inner = 1,
                                                  .n_in = bytes,
                                                  .n_out = bytes,
                                                  .from = bytes - rest,
                                                  .to = bytes - rest,
                                                  .count = rest};
    }
    for (int i = 0; i < args->n_moves; i++) args->in[i] = b->in[0];
    args->out = b->out[0];
    *out = (CpuCall){run_parts, args};
    return true;
}

bool cpu_bind_offload(Binding *b, CpuCall *out) {
    return bind_whole(b, out);
}

bool cpu_bind_fetch(Binding *b, CpuCall *out) {
    return bind_whole(b, out);
}

bool cpu_bind_narrow(Binding *b, CpuCall *out) {
    return bind_parts(b, out);
}

bool cpu_bind_pad(Binding *b, CpuCall *out) {
    return bind_parts(b, out);
}

bool cpu_bind_concat(Binding *b, CpuCall *out) {
    return bind_parts(b, out);
}

bool cpu_bind_shift(Binding *b, CpuCall *out) {
    return bind_parts(b, out);
}

typedef struct StackArgs {
    int n_inputs;
    size_t bytes, rest; /* of an operand, and of what none fills */
    const char *const *in;
    char *out;
} StackArgs;

static bool run_stack(const void *args) {
    const StackArgs *a = args;
#pragma omp parallel for schedule(static) if ((size_t)a->n_inputs * a->bytes > PARALLEL_BYTES)
    for (int k = 0; k < a->n_inputs; k++) memcpy(a->out + (size_t)k * a->bytes, a->in[k], a->bytes);
    memset(a->out + (size_t)a->n_inputs * a->bytes, 0, a->rest);
    return true;
}

bool cpu_bind_stack(Binding *b, CpuCall *out) {
    StackArgs *args = ARENA_NEW(b->arena, StackArgs);
    const char **in = ARENA_ARRAY(b->arena, const char *, b->node->n_inputs);
    size_t element = (size_t)dtype_bytes(b->out_local[0].dtype);
    for (int i = 0; i < b->node->n_inputs; i++) in[i] = b->in[i];
    args->n_inputs = b->node->n_inputs;
    args->bytes = (size_t)type_elements(&b->in_local[0]) * element;
    args->rest =
        (size_t)type_elements(&b->out_local[0]) * element - (size_t)args->n_inputs * args->bytes;
    args->in = in;
    args->out = b->out[0];
    *out = (CpuCall){run_stack, args};
    return true;
}

bool cpu_bind_rename(Binding *b, CpuCall *out) {
    return bind_parts(b, out);
}

bool cpu_bind_regroup(Binding *b, CpuCall *out) {
    return bind_parts(b, out);
}

bool cpu_bind_of_pairs(Binding *b, CpuCall *out) {
    const Type *in = &b->in_local[0];
    if (in->dims[type_find_axis(in, node_axis(b->node, ATTR_axis))] % 2 != 0) {
        return bind_fail(b, "needs whole pairs: the micro-batch must be even");
    }
    return bind_parts(b, out);
}
