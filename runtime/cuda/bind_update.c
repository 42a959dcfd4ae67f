/* The clipping norm and the optimizers. Single launches here; merge.c joins neighbours. */
#include "planner/plan/plan.h"
#include "runtime/cuda/bind_rescale.h"
#include "runtime/cuda/kernels/args.h"
#include "runtime/cuda/workspace.h"

static int64_t sumsq_chunk(int64_t n) {
    int64_t most = (int64_t)SUMSQ_CHUNK * SUMSQ_PARTIALS;
    return SUMSQ_CHUNK * (n > most ? (n + most - 1) / most : 1);
}

/* Room for all partial sums of any launch, so that merged launches have it too. */
int64_t cuda_sumsq_workspace_bytes(const Node *node, const Type *inputs, const Type *outputs) {
    (void)node, (void)outputs;
    bool one_block = type_elements(&inputs[0]) <= SUMSQ_CHUNK;
    return one_block ? 0 : SUMSQ_PARTIALS * (int64_t)sizeof(float);
}

bool cuda_bind_sumsq(Binding *b) {
    int64_t n = type_elements(&b->in_local[0]);
    SumsqArgs args = {.x = b->in[0], .n = n, .chunk = sumsq_chunk(n), .out = b->out[0]};
    args.n_blocks = cuda_blocks(n, args.chunk);
    if (args.n_blocks > 1) args.partial = b->workspace;
    if (b->workspace_bytes < cuda_sumsq_workspace_bytes(b->node, b->in_local, b->out_local)) {
        return bind_fail(b, "has too little workspace in this plan");
    }
    KernelId kernel = b->in_local[0].dtype == DTYPE_BF16 ? KERNEL_sumsq_low : KERNEL_sumsq;
    if (!cuda_push_launch(b, kernel, (Grid){args.n_blocks, 1, 1}, UPDATE_THREADS, 0, &args,
                          sizeof(args))) {
        return false;
    }
    if (args.n_blocks == 1) return true;
    return cuda_push_launch(b, KERNEL_sumsq_finish, (Grid){1, 1, 1}, UPDATE_THREADS, 0, &args,
                            sizeof(args));
}

bool cuda_bind_clip_scale(Binding *b) {
    bool scaled = b->node->n_inputs > 1;
    ClipScaleArgs args = {.sumsq = b->in[0],
                          .loss_scale = scaled ? b->in[1] : NULL,
                          .factor = b->out[0],
                          .norm_squared = scaled ? b->out[1] : NULL,
                          .max_norm = (float)node_float(b->node, ATTR_max_norm, 0)};
    return cuda_push_launch(b, KERNEL_clip_scale, (Grid){1, 1, 1}, 1, 0, &args, sizeof(args));
}

bool cuda_bind_skip_spike(Binding *b) {
    SkipSpikeArgs args = {
        .factor = b->in[0], .norm_squared = b->in[1], .most = b->in[2], .out = b->out[0]};
    return cuda_push_launch(b, KERNEL_skip_spike, (Grid){1, 1, 1}, 1, 0, &args, sizeof(args));
}

bool cuda_bind_loss_scale(Binding *b) {
    LossScaleArgs args = {.factor = b->in[0],
                          .scale = b->out[0],
                          .finite_steps = b->out[1],
                          .updates = b->out[2],
                          .interval = node_int(b->node, ATTR_interval, 0),
                          .most = (float)LOSS_SCALE_MOST};
    return cuda_push_launch(b, KERNEL_loss_scale, (Grid){1, 1, 1}, 1, 0, &args, sizeof(args));
}

/* The optimizers' optional last result: the parameter in 16 bits. */
static void *copy_of(const Binding *b, int output) {
    return b->node->n_outputs > output ? b->out[output] : NULL;
}
static int32_t copy_dtype(const Binding *b, int output) {
    return b->node->n_outputs > output ? (int32_t)b->out_local[output].dtype : 0;
}

/* The optimizers' own launches stay as they are, of as many tensors as there is room for. */
bool cuda_push_rescale(Binding *b, int copy_output, const float *clip) {
    BindRescale r;
    if (!bind_rescale(b, &r)) return false;
    if (!r.factors) return true;
    RescaleArgs args = {.p = b->out[0],
                        .copy = copy_of(b, copy_output),
                        .factors = r.factors,
                        .clip = clip,
                        .n = type_elements(&b->in_local[0]),
                        .inner = r.inner,
                        .count = r.count,
                        .copy_dtype = copy_dtype(b, copy_output)};
    Grid grid = {cuda_blocks(args.n, UPDATE_CHUNK), 1, 1};
    return cuda_push_launch(b, KERNEL_rescale, grid, UPDATE_THREADS, 0, &args, sizeof(args));
}

bool cuda_bind_adamw(Binding *b) {
    AdamwArgs args = {
        .scalars = {.clip = b->in[4],
                    .lr = b->in[5],
                    .step = b->in[6],
                    .lr_scale = node_float(b->node, ATTR_lr_scale, 1),
                    .beta1 = node_float(b->node, ATTR_beta1, 0),
                    .beta2 = node_float(b->node, ATTR_beta2, 0),
                    .eps = (float)node_float(b->node, ATTR_eps, 0),
                    .copy_dtype = copy_dtype(b, 3),
                    .state_dtype = (int32_t)node_state_dtype(b->node),
                    .low_gradients = node_gradient_dtype(b->node) == DTYPE_BF16},
        .tensor = {.p = b->out[0],
                   .m = b->out[1],
                   .v = b->out[2],
                   .g = b->in[1],
                   .copy = copy_of(b, 3),
                   .n = type_elements(&b->in_local[0]),
                   .weight_decay = node_float(b->node, ATTR_weight_decay, 0)},
    };
    Grid grid = {cuda_blocks(args.tensor.n, UPDATE_CHUNK), 1, 1};
    bool halves = (void *)args.tensor.p == args.tensor.copy;
    KernelId kernel = args.scalars.state_dtype == DTYPE_DYN8 ? KERNEL_adamw_moments
                      : halves                               ? KERNEL_adamw_halves
                                                             : KERNEL_adamw;
    return cuda_push_launch(b, kernel, grid, UPDATE_THREADS, 0, &args, sizeof(args)) &&
           cuda_push_rescale(b, 3, b->in[4]);
}

bool cuda_bind_sgd(Binding *b) {
    SgdArgs args = {
        .scalars = {.clip = b->in[3],
                    .lr = b->in[4],
                    .lr_scale = node_float(b->node, ATTR_lr_scale, 1),
                    .momentum = (float)node_float(b->node, ATTR_momentum, 0),
                    .copy_dtype = copy_dtype(b, 2),
                    .state_dtype = (int32_t)node_state_dtype(b->node),
                    .low_gradients = node_gradient_dtype(b->node) == DTYPE_BF16},
        .tensor = {.p = b->out[0],
                   .buf = b->out[1],
                   .g = b->in[1],
                   .copy = copy_of(b, 2),
                   .n = type_elements(&b->in_local[0]),
                   .weight_decay = (float)node_float(b->node, ATTR_weight_decay, 0)},
    };
    Grid grid = {cuda_blocks(args.tensor.n, UPDATE_CHUNK), 1, 1};
    KernelId kernel = args.scalars.state_dtype == DTYPE_DYN8 ? KERNEL_sgd_moments : KERNEL_sgd;
    return cuda_push_launch(b, kernel, grid, UPDATE_THREADS, 0, &args, sizeof(args)) &&
           cuda_push_rescale(b, 2, b->in[3]);
}

bool cuda_bind_lion(Binding *b) {
    LionArgs args = {
        .scalars = {.clip = b->in[3],
                    .lr = b->in[4],
                    .lr_scale = node_float(b->node, ATTR_lr_scale, 1),
                    .beta1 = node_float(b->node, ATTR_beta1, 0),
                    .beta2 = node_float(b->node, ATTR_beta2, 0),
                    .copy_dtype = copy_dtype(b, 2),
                    .state_dtype = (int32_t)node_state_dtype(b->node),
                    .low_gradients = node_gradient_dtype(b->node) == DTYPE_BF16},
        .tensor = {.p = b->out[0],
                   .m = b->out[1],
                   .g = b->in[1],
                   .copy = copy_of(b, 2),
                   .n = type_elements(&b->in_local[0]),
                   .weight_decay = node_float(b->node, ATTR_weight_decay, 0)},
    };
    Grid grid = {cuda_blocks(args.tensor.n, UPDATE_CHUNK), 1, 1};
    KernelId kernel = args.scalars.state_dtype == DTYPE_DYN8 ? KERNEL_lion_moments : KERNEL_lion;
    return cuda_push_launch(b, kernel, grid, UPDATE_THREADS, 0, &args, sizeof(args)) &&
           cuda_push_rescale(b, 2, b->in[3]);
}

static int64_t lamb_chunk(int64_t n) {
    int64_t most = (int64_t)LAMB_CHUNK * LAMB_PARTIALS;
    return LAMB_CHUNK * (n > most ? (n + most - 1) / most : 1);
}

/* As sumsq's: of two sums each. */
int64_t cuda_lamb_workspace_bytes(const Node *node, const Type *inputs, const Type *outputs) {
    (void)node, (void)outputs;
    bool one_block = type_elements(&inputs[0]) <= LAMB_CHUNK;
    return one_block ? 0 : 2 * LAMB_PARTIALS * (int64_t)sizeof(float);
}

static LambArgs lamb_args(const Binding *b) {
    return (LambArgs){
        .scalars = {.clip = b->in[3],
                    .lr_scale = node_float(b->node, ATTR_lr_scale, 1),
                    .beta1 = node_float(b->node, ATTR_beta1, 0),
                    .beta2 = node_float(b->node, ATTR_beta2, 0),
                    .trust_max = node_float(b->node, ATTR_trust_max, 0),
                    .eps = (float)node_float(b->node, ATTR_eps, 0),
                    .state_dtype = (int32_t)node_state_dtype(b->node),
                    .low_gradients = node_gradient_dtype(b->node) == DTYPE_BF16},
        .tensor = {.n = type_elements(&b->in_local[0]),
                   .weight_decay = (float)node_float(b->node, ATTR_weight_decay, 0)},
    };
}

bool cuda_bind_lamb_moments(Binding *b) {
    LambArgs args = lamb_args(b);
    args.scalars.step = b->in[4];
    args.tensor.p = b->in[0];
    args.tensor.g = b->in[5];
    args.tensor.m = b->out[0];
    args.tensor.v = b->out[1];
    args.tensor.p_squared = b->out[2];
    args.tensor.r_squared = b->out[3];
    args.chunk = lamb_chunk(args.tensor.n);
    args.n_blocks = cuda_blocks(args.tensor.n, args.chunk);
    if (args.n_blocks > 1) args.partial = b->workspace;
    if (b->workspace_bytes < cuda_lamb_workspace_bytes(b->node, b->in_local, b->out_local)) {
        return bind_fail(b, "has too little workspace in this plan");
    }
    if (!cuda_push_launch(b, KERNEL_lamb_moments, (Grid){args.n_blocks, 1, 1}, UPDATE_THREADS, 0,
                          &args, sizeof(args))) {
        return false;
    }
    if (args.n_blocks == 1) return true;
    return cuda_push_launch(b, KERNEL_lamb_norms_finish, (Grid){1, 1, 1}, UPDATE_THREADS, 0, &args,
                            sizeof(args));
}

bool cuda_bind_lamb(Binding *b) {
    LambArgs args = lamb_args(b);
    args.scalars.lr = b->in[4];
    args.scalars.step = b->in[5];
    args.scalars.copy_dtype = copy_dtype(b, 1);
    args.tensor.p = b->out[0];
    args.tensor.m = b->in[1];
    args.tensor.v = b->in[2];
    args.tensor.p_squared = b->in[6];
    args.tensor.r_squared = b->in[7];
    args.tensor.copy = copy_of(b, 1);
    Grid grid = {cuda_blocks(args.tensor.n, UPDATE_CHUNK), 1, 1};
    return cuda_push_launch(b, KERNEL_lamb, grid, UPDATE_THREADS, 0, &args, sizeof(args)) &&
           cuda_push_rescale(b, 1, b->in[3]);
}

bool cuda_bind_muon_momentum(Binding *b) {
    MuonMomentumArgs args = {.m = b->out[0],
                             .direction = b->out[1],
                             .g = b->in[2],
                             .clip = b->in[1],
                             .n = type_elements(&b->in_local[0]),
                             .momentum = (float)node_float(b->node, ATTR_momentum, 0),
                             .state_dtype = (int32_t)node_state_dtype(b->node),
                             .gradient_dtype = (int32_t)node_gradient_dtype(b->node)};
    Grid grid = {cuda_blocks(args.n, UPDATE_CHUNK), 1, 1};
    return cuda_push_launch(b, KERNEL_muon_momentum, grid, UPDATE_THREADS, 0, &args, sizeof(args));
}

bool cuda_bind_muon(Binding *b) {
    MuonArgs args = {.p = b->out[0],
                     .direction = b->in[1],
                     .copy = copy_of(b, 1),
                     .clip = b->in[2],
                     .lr = b->in[3],
                     .n = type_elements(&b->in_local[0]),
                     .lr_scale = node_float(b->node, ATTR_lr_scale, 1),
                     .scale = node_float(b->node, ATTR_scale, 0),
                     .weight_decay = node_float(b->node, ATTR_weight_decay, 0),
                     .direction_dtype = (int32_t)b->in_local[1].dtype,
                     .copy_dtype = copy_dtype(b, 1)};
    Grid grid = {cuda_blocks(args.n, UPDATE_CHUNK), 1, 1};
    return cuda_push_launch(b, KERNEL_muon, grid, UPDATE_THREADS, 0, &args, sizeof(args)) &&
           cuda_push_rescale(b, 1, b->in[2]);
}

/* One block: a parameter has as many elements as there are experts. */
bool cuda_bind_balance(Binding *b) {
    BalanceArgs args = {.p = b->out[0],
                        .tally = b->in[1],
                        .clip = b->in[2],
                        .n = type_elements(&b->in_local[0]),
                        .step = (float)node_float(b->node, ATTR_balance, 0)};
    Grid grid = {1, 1, 1};
    return cuda_push_launch(b, KERNEL_balance, grid, UPDATE_THREADS, 0, &args, sizeof(args));
}

bool cuda_bind_ema(Binding *b) {
    EmaArgs args = {
        .scalars = {.clip = b->in[2],
                    .step = b->in[3],
                    .decay = node_float(b->node, ATTR_decay, 0)},
        .tensor = {.average = b->out[0], .p = b->in[1], .n = type_elements(&b->in_local[0])}};
    Grid grid = {cuda_blocks(args.tensor.n, UPDATE_CHUNK), 1, 1};
    return cuda_push_launch(b, KERNEL_ema, grid, UPDATE_THREADS, 0, &args, sizeof(args));
}

bool cuda_bind_largest(Binding *b) {
    int64_t width = type_elements(&b->out_local[0]);
    LargestArgs args = {.x = b->in[1],
                        .out = b->out[0],
                        .n_rows = type_elements(&b->in_local[1]) / (width ? width : 1),
                        .width = width,
                        .accumulate = !b->overwrite};
    Grid grid = {cuda_blocks(width, LARGEST_COLUMNS), 1, 1};
    return cuda_push_launch(b, KERNEL_largest, grid, LARGEST_THREADS, 0, &args, sizeof(args));
}

bool cuda_bind_max_n(Binding *b) {
    MaxNArgs args = {.out = b->out[0]};
    for (int k = 0; k < b->node->n_inputs;) {
        args.accumulate = k > 0;
        args.n_operands = 0;
        while (k < b->node->n_inputs && args.n_operands < MAX_N_OPERANDS) {
            args.count[args.n_operands] = type_elements(&b->in_local[k]);
            args.in[args.n_operands++] = b->in[k++];
        }
        if (!cuda_push_launch(b, KERNEL_max_n, (Grid){1, 1, 1}, UPDATE_THREADS, 0, &args,
                              sizeof(args))) {
            return false;
        }
    }
    return true;
}
