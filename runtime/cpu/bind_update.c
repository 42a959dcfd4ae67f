/* Sums of squares, clipping and the optimizers. */
#include "planner/plan/plan.h"
#include "runtime/cpu/bind.h"
#include "runtime/cpu/optimizer.h"
#include "runtime/cpu/reduce.h"

#include <math.h>

typedef struct UpdateArgs {
    int64_t n;
    const float *in[9]; /* f32, but for states and gradients */
    float *out[4];
    uint16_t *copy;                    /* of the parameter, in 16 bits, or NULL */
    DType copy_dtype;                  /* f32: there is none */
    DType state_dtype, gradient_dtype; /* f32 or bf16; states dyn8, too */
    float max_norm;
    int64_t interval;
    AdamwConfig adamw;
    SgdConfig sgd;
    LionConfig lion;
    LambConfig lamb;
    MuonConfig muon;
    double momentum, step, decay;
    BindRescale rescale;
} UpdateArgs;

static UpdateArgs *new_args(Binding *b) {
    UpdateArgs *args = ARENA_NEW(b->arena, UpdateArgs);
    args->n = type_elements(&b->in_local[0]);
    args->state_dtype = node_state_dtype(b->node);
    args->gradient_dtype = node_gradient_dtype(b->node);
    for (int i = 0; i < b->node->n_inputs && i < 9; i++) args->in[i] = b->in[i];
    for (int i = 0; i < b->node->n_outputs; i++) {
        int from = op_alias(b->node, i);
        bool state = from >= 0 && op_operand_precision(b->node->op, from) == OPERAND_STATE;
        if (dtype_is_low(b->out_local[i].dtype) && !state) {
            args->copy = b->out[i];
            args->copy_dtype = b->out_local[i].dtype;
        } else {
            args->out[i] = b->out[i];
        }
    }
    return args;
}

/* What follows an optimizer's step, if it has the operand. */
static bool rescale_parameter(const UpdateArgs *a, const float *clip) {
    const BindRescale *r = &a->rescale;
    if (!r->factors) return true;
    optimizer_rescale(a->n, r->inner, r->count, clip, r->factors, a->out[0], a->copy,
                      a->copy_dtype);
    return true;
}

static bool run_sumsq(const void *args) {
    const UpdateArgs *a = args;
    reduce_sum_squares(a->in[0], a->gradient_dtype, a->n, a->out[0]);
    return true;
}

bool cpu_bind_sumsq(Binding *b, CpuCall *out) {
    UpdateArgs *args = new_args(b);
    args->gradient_dtype = b->in_local[0].dtype;
    *out = (CpuCall){run_sumsq, args};
    return true;
}

/* min(1, max_norm / (norm + 1e-6)), as PyTorch's clip_grad_norm_, over the loss scale; not finite
 * stays not finite, so that the optimizer leaves everything as it is. */
static bool run_clip_scale(const void *args) {
    const UpdateArgs *a = args;
    float loss_scale = a->in[1] ? *a->in[1] : 1;
    float norm = sqrtf(*a->in[0]) / loss_scale;
    float factor = a->max_norm > 0 ? a->max_norm / (norm + 1e-6f) : 1;
    if (factor > 1) factor = 1;
    *a->out[0] = isfinite(norm) ? factor / loss_scale : NAN;
    if (a->out[1]) *a->out[1] = norm * norm;
    return true;
}

bool cpu_bind_clip_scale(Binding *b, CpuCall *out) {
    UpdateArgs *args = new_args(b);
    args->max_norm = (float)node_float(b->node, ATTR_max_norm, 0);
    *out = (CpuCall){run_clip_scale, args};
    return true;
}

static bool run_skip_spike(const void *args) {
    const UpdateArgs *a = args;
    const float norm_squared = *a->in[1], most = *a->in[2];
    const bool spike = most < 0 || (isfinite(norm_squared) && norm_squared > most);
    *a->out[0] = spike ? INFINITY : *a->in[0];
    return true;
}

bool cpu_bind_skip_spike(Binding *b, CpuCall *out) {
    *out = (CpuCall){run_skip_spike, new_args(b)};
    return true;
}

static bool run_loss_scale(const void *args) {
    const UpdateArgs *a = args;
    optimizer_loss_scale(a->interval, (float)LOSS_SCALE_MOST, a->in[0], a->out[0], a->out[1],
                         a->out[2]);
    return true;
}

bool cpu_bind_loss_scale(Binding *b, CpuCall *out) {
    UpdateArgs *args = new_args(b);
    args->interval = node_int(b->node, ATTR_interval, 0);
    *out = (CpuCall){run_loss_scale, args};
    return true;
}

static bool run_adamw(const void *args) {
    const UpdateArgs *a = args;
    optimizer_adamw(&a->adamw, a->n, a->in[5], a->in[6], a->in[4], a->in[1], a->out[0], a->out[1],
                    a->out[2], a->copy);
    return rescale_parameter(a, a->in[4]);
}

bool cpu_bind_adamw(Binding *b, CpuCall *out) {
    UpdateArgs *args = new_args(b);
    args->adamw = (AdamwConfig){.beta1 = node_float(b->node, ATTR_beta1, 0),
                                .beta2 = node_float(b->node, ATTR_beta2, 0),
                                .eps = node_float(b->node, ATTR_eps, 0),
                                .weight_decay = node_float(b->node, ATTR_weight_decay, 0),
                                .lr_scale = node_float(b->node, ATTR_lr_scale, 1),
                                .copy_dtype = args->copy_dtype,
                                .state_dtype = args->state_dtype,
                                .gradient_dtype = args->gradient_dtype};
    *out = (CpuCall){run_adamw, args};
    return bind_rescale(b, &args->rescale);
}

static bool run_sgd(const void *args) {
    const UpdateArgs *a = args;
    optimizer_sgd(&a->sgd, a->n, a->in[4], a->in[3], a->in[1], a->out[0], a->out[1], a->copy);
    return rescale_parameter(a, a->in[3]);
}

bool cpu_bind_sgd(Binding *b, CpuCall *out) {
    UpdateArgs *args = new_args(b);
    args->sgd = (SgdConfig){.momentum = node_float(b->node, ATTR_momentum, 0),
                            .weight_decay = node_float(b->node, ATTR_weight_decay, 0),
                            .lr_scale = node_float(b->node, ATTR_lr_scale, 1),
                            .copy_dtype = args->copy_dtype,
                            .state_dtype = args->state_dtype,
                            .gradient_dtype = args->gradient_dtype};
    *out = (CpuCall){run_sgd, args};
    return bind_rescale(b, &args->rescale);
}

static bool run_lion(const void *args) {
    const UpdateArgs *a = args;
    optimizer_lion(&a->lion, a->n, a->in[4], a->in[3], a->in[1], a->out[0], a->out[1], a->copy);
    return rescale_parameter(a, a->in[3]);
}

bool cpu_bind_lion(Binding *b, CpuCall *out) {
    UpdateArgs *args = new_args(b);
    args->lion = (LionConfig){.beta1 = node_float(b->node, ATTR_beta1, 0),
                              .beta2 = node_float(b->node, ATTR_beta2, 0),
                              .weight_decay = node_float(b->node, ATTR_weight_decay, 0),
                              .lr_scale = node_float(b->node, ATTR_lr_scale, 1),
                              .copy_dtype = args->copy_dtype,
                              .state_dtype = args->state_dtype,
                              .gradient_dtype = args->gradient_dtype};
    *out = (CpuCall){run_lion, args};
    return bind_rescale(b, &args->rescale);
}

static LambConfig lamb_config(const Binding *b, const UpdateArgs *args) {
    return (LambConfig){.beta1 = node_float(b->node, ATTR_beta1, 0),
                        .beta2 = node_float(b->node, ATTR_beta2, 0),
                        .eps = node_float(b->node, ATTR_eps, 0),
                        .weight_decay = node_float(b->node, ATTR_weight_decay, 0),
                        .lr_scale = node_float(b->node, ATTR_lr_scale, 1),
                        .trust_max = node_float(b->node, ATTR_trust_max, 0),
                        .copy_dtype = args->copy_dtype,
                        .state_dtype = args->state_dtype,
                        .gradient_dtype = args->gradient_dtype};
}

static bool run_lamb_moments(const void *args) {
    const UpdateArgs *a = args;
    optimizer_lamb_moments(&a->lamb, a->n, a->in[4], a->in[3], a->in[5], a->in[0], a->out[0],
                           a->out[1], a->out[2], a->out[3]);
    return true;
}

bool cpu_bind_lamb_moments(Binding *b, CpuCall *out) {
    UpdateArgs *args = new_args(b);
    args->lamb = lamb_config(b, args);
    *out = (CpuCall){run_lamb_moments, args};
    return true;
}

static bool run_lamb(const void *args) {
    const UpdateArgs *a = args;
    optimizer_lamb(&a->lamb, a->n, a->in[4], a->in[5], a->in[3], a->in[6], a->in[7], a->in[1],
                   a->in[2], a->out[0], a->copy);
    return rescale_parameter(a, a->in[3]);
}

bool cpu_bind_lamb(Binding *b, CpuCall *out) {
    UpdateArgs *args = new_args(b);
    args->lamb = lamb_config(b, args);
    *out = (CpuCall){run_lamb, args};
    return bind_rescale(b, &args->rescale);
}

static bool run_muon_momentum(const void *args) {
    const UpdateArgs *a = args;
    optimizer_muon_momentum(a->momentum, a->state_dtype, a->gradient_dtype, a->n, a->in[1],
                            a->in[2], a->out[0], a->out[1]);
    return true;
}

bool cpu_bind_muon_momentum(Binding *b, CpuCall *out) {
    UpdateArgs *args = new_args(b);
    args->momentum = node_float(b->node, ATTR_momentum, 0);
    *out = (CpuCall){run_muon_momentum, args};
    return true;
}

static bool run_muon(const void *args) {
    const UpdateArgs *a = args;
    optimizer_muon(&a->muon, a->n, a->in[3], a->in[2], a->in[1], a->out[0], a->copy);
    return rescale_parameter(a, a->in[2]);
}

bool cpu_bind_muon(Binding *b, CpuCall *out) {
    UpdateArgs *args = new_args(b);
    args->muon = (MuonConfig){.scale = node_float(b->node, ATTR_scale, 0),
                              .weight_decay = node_float(b->node, ATTR_weight_decay, 0),
                              .lr_scale = node_float(b->node, ATTR_lr_scale, 1),
                              .direction_dtype = b->in_local[1].dtype,
                              .copy_dtype = args->copy_dtype};
    *out = (CpuCall){run_muon, args};
    return bind_rescale(b, &args->rescale);
}

static bool run_balance(const void *args) {
    const UpdateArgs *a = args;
    optimizer_balance(a->step, a->n, a->in[2], a->in[1], a->out[0]);
    return true;
}

bool cpu_bind_balance(Binding *b, CpuCall *out) {
    UpdateArgs *args = new_args(b);
    args->step = node_float(b->node, ATTR_balance, 0);
    *out = (CpuCall){run_balance, args};
    return true;
}

static bool run_ema(const void *args) {
    const UpdateArgs *a = args;
    optimizer_ema(a->decay, a->n, a->in[3], a->in[2], a->in[1], a->out[0]);
    return true;
}

bool cpu_bind_ema(Binding *b, CpuCall *out) {
    UpdateArgs *args = new_args(b);
    args->decay = node_float(b->node, ATTR_decay, 0);
    *out = (CpuCall){run_ema, args};
    return true;
}

typedef struct LargestArgs {
    int64_t n_rows, width;
    const float *rows;
    bool accumulate;
    float *out;
} LargestArgs;

static bool run_largest(const void *args) {
    const LargestArgs *a = args;
    reduce_largest(a->n_rows, a->width, a->rows, a->accumulate, a->out);
    return true;
}

bool cpu_bind_largest(Binding *b, CpuCall *out) {
    LargestArgs *args = ARENA_NEW(b->arena, LargestArgs);
    int64_t width = type_elements(&b->out_local[0]);
    *args = (LargestArgs){.n_rows = type_elements(&b->in_local[1]) / (width ? width : 1),
                          .width = width,
                          .rows = b->in[1],
                          .accumulate = !b->overwrite,
                          .out = b->out[0]};
    *out = (CpuCall){run_largest, args};
    return true;
}

typedef struct MaxArgs {
    int n;
    const float **in;
    int64_t *counts;
    float *out;
} MaxArgs;

static bool run_max_n(const void *args) {
    const MaxArgs *a = args;
    for (int i = 0; i < a->n; i++) reduce_largest(a->counts[i], 1, a->in[i], i > 0, a->out);
    return true;
}

bool cpu_bind_max_n(Binding *b, CpuCall *out) {
    MaxArgs *args = ARENA_NEW(b->arena, MaxArgs);
    args->n = b->node->n_inputs;
    args->in = ARENA_ARRAY(b->arena, const float *, args->n);
    args->counts = ARENA_ARRAY(b->arena, int64_t, args->n);
    args->out = b->out[0];
    for (int i = 0; i < args->n; i++) {
        args->in[i] = b->in[i];
        args->counts[i] = type_elements(&b->in_local[i]);
    }
    *out = (CpuCall){run_max_n, args};
    return true;
}
