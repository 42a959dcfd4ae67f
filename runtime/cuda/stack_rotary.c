#include "runtime/cuda/stack_rotary.h"

const RotaryArgs *cuda_find_rotary(const Command *command, DType dtype) {
    static const KernelsByDtype ROTARY = KERNELS_BY_DTYPE(rotary);
    if (command->kind != COMMAND_LAUNCH || command->launch.generated ||
        command->launch.kernel != kernel_for_dtype(&ROTARY, dtype)) {
        return NULL;
    }
    const RotaryArgs *args = command->launch.args;
    return args->x == args->y && args->row == args->inner * args->head ? args : NULL;
}

void cuda_lay_out_rotary(Command *command, void *at, int64_t row, Arena *arena) {
    RotaryArgs *args = ARENA_NEW(arena, RotaryArgs);
    *args = *(const RotaryArgs *)command->launch.args;
    args->x = args->y = at;
    args->row = row;
    command->launch.args = args;
}

/* In everything but which heads of a row they turn. */
static bool is_alike(const RotaryArgs *a, const RotaryArgs *b) {
    for (int i = 0; i < a->n_factors && i < b->n_factors; i++) {
        if (a->factors[i] != b->factors[i]) return false;
    }
    return a->batch == b->batch && a->seq == b->seq && a->row == b->row && a->split == b->split &&
           a->first == b->first && a->second == b->second && a->head == b->head &&
           a->turned == b->turned && a->ramp == b->ramp && a->direction == b->direction &&
           a->log2_step == b->log2_step && a->factor == b->factor && a->few == b->few &&
           a->many == b->many && a->context == b->context && a->places == b->places &&
           a->scale == b->scale && a->n_factors == b->n_factors;
}

bool cuda_join_rotaries(Command *first, const Command *second, DType dtype, Arena *arena) {
    const RotaryArgs *a = first->launch.args, *b = second->launch.args;
    const RotaryArgs *left = a->x < b->x ? a : b, *right = a->x < b->x ? b : a;
    int64_t bytes = left->inner * left->head * dtype_bytes(dtype);
    LaunchCommand launch;
    if (!is_alike(a, b) || (const char *)left->x + bytes != right->x) return false;
    RotaryArgs *args = ARENA_NEW(arena, RotaryArgs);
    *args = *left;
    args->inner += right->inner;
    if (!cuda_rotary_launch(args, dtype, &launch)) return false;
    CommandInfo *others = ARENA_ARRAY(arena, CommandInfo, first->n_others + 1);
    for (int i = 0; i < first->n_others; i++) others[i] = first->others[i];
    others[first->n_others++] = second->info;
    first->others = others;
    first->launch = launch;
    return true;
}
