/* Binders of biases by relative position (runtime/cpu/relative.h). */
#include "runtime/cpu/bind.h"
#include "runtime/cpu/relative.h"

typedef struct RelativeArgs {
    RelativePlace place;
    const float *scores, *table;
    float *out;
} RelativeArgs;

static bool run_bias(const void *args) {
    const RelativeArgs *a = args;
    relative_bias(&a->place, a->scores, a->table, a->out);
    return true;
}

static bool run_grad(const void *args) {
    const RelativeArgs *a = args;
    relative_bias_grad(&a->place, a->scores, a->out);
    return true;
}

static const RelativeArgs *new_args(Binding *b) {
    RelativeArgs *args = ARENA_NEW(b->arena, RelativeArgs);
    *args = (RelativeArgs){.place = bind_relative_place(b), .scores = b->in[0], .out = b->out[0]};
    if (b->node->n_inputs > 1) args->table = b->in[1];
    return args;
}

bool cpu_bind_relative_bias(Binding *b, CpuCall *out) {
    *out = (CpuCall){run_bias, new_args(b)};
    return true;
}

bool cpu_bind_relative_bias_grad(Binding *b, CpuCall *out) {
    *out = (CpuCall){run_grad, new_args(b)};
    return true;
}
