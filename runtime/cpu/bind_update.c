/* Sums of squares, clipping and the optimizers. */
#include "planner/plan/plan.h"
#include "runtime/cpu/bind.h"
#include "runtime/cpu/optimizer.h"
#include "runtime/cpu/reduce.h"

#include <math.h>

typedef struct UpdateArgs {
    int64_t n;
    const float *in[8]; /* f32, but for states and gradients */
    float *out[4];
    uint16_t *copy;                    /* of the parameter, in 16 bits, or NULL */
    DType copy_dtype;                  /* f32: there is none */
    DType state_dtype, gradient_dtype; /* f32 or bf16 */
    float max_norm;
    int64_t interval;
    AdamwConfig adamw;
    SgdConfig sgd;
    LionConfig lion;
    LambConfig lamb;
    MuonConfig muon;
    double momentum, step, decay;
} UpdateArgs;

static UpdateArgs *new_args(Binding *b) {
    UpdateArgs *args = ARENA_NEW(b->arena, UpdateArgs);
    args->n = type_elements(&b->in_local[0]);
    args->state_dtype = node_state_dtype(b->node);
    args->gradient_dtype = node_gradient_dtype(b->node);
    for (int i = 0; i < b->node->n_inputs && i < 8; i++) args->in[i] = b->in[i];
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
    bool spike = isfinite(*a->in[1]) && *a->in[1] > *a->in[2];
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
    return true;
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
    return true;
}

static bool run_sgd(const void *args) {
    const UpdateArgs *a = args;
    optimizer_sgd(&a->sgd, a->n, a->in[4], a->in[3], a->in[1], a->out[0], a->out[1], a->copy);
    return true;
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
    return true;
}

static bool run_lion(const void *args) {
    const UpdateArgs *a = args;
    optimizer_lion(&a->lion, a->n, a->in[4], a->in[3], a->in[1], a->out[0], a->out[1], a->copy);
    return true;
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
    return true;
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
    return true;
}

bool cpu_bind_lamb(Binding *b, CpuCall *out) {
    UpdateArgs *args = new_args(b);
    args->lamb = lamb_config(b, args);
    *out = (CpuCall){run_lamb, args};
    return true;
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
    return true;
}

bool cpu_bind_muon(Binding *b, CpuCall *out) {
    UpdateArgs *args = new_args(b);
    args->muon = (MuonConfig){.scale = node_float(b->node, ATTR_scale, 0),
                              .weight_decay = node_float(b->node, ATTR_weight_decay, 0),
                              .lr_scale = node_float(b->node, ATTR_lr_scale, 1),
                              .direction_dtype = b->in_local[1].dtype,
                              .copy_dtype = args->copy_dtype};
    *out = (CpuCall){run_muon, args};
    return true;
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
