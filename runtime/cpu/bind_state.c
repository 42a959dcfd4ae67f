/* Layers that carry a state along a sequence: linear attention and convolutions. */
#include "runtime/cpu/bind.h"
#include "runtime/cpu/convolve.h"
#include "runtime/cpu/linear_attention.h"

_Static_assert((int)CONVOLVE_MAX_TAPS >= (int)CONVOLVE_MOST_TAPS &&
                   (int)LINEAR_ATTENTION_MAX_KEYS >= (int)ATTENTION_LONGEST_HEAD,
               "what the kernels have room for");

typedef struct LinearAttentionArgs {
    LinearAttentionShape shape;
    LinearAttentionInputs in;
    const void *d_o;
    void *out[4], *workspace;
} LinearAttentionArgs;

static LinearAttentionArgs *new_linear_attention(Binding *b) {
    LinearAttentionArgs *args = ARENA_NEW(b->arena, LinearAttentionArgs);
    const Type *q = &b->in_local[0], *v = &b->in_local[2];
    int decay = linear_attention_decay(b->node->op), write = linear_attention_write(b->node);
    args->shape = (LinearAttentionShape){.batch = q->dims[0],
                                         .seq = q->dims[1],
                                         .groups = q->rank == 4 ? q->dims[2] : 1,
                                         .heads = v->rank > q->rank ? v->dims[v->rank - 2] : 1,
                                         .keys = q->dims[q->rank - 1],
                                         .values = v->dims[v->rank - 1],
                                         .scale = (float)node_float(b->node, ATTR_scale, 1),
                                         .dtype = q->dtype,
                                         .by_keys = linear_attention_by_keys(b->node, b->in_local)};
    args->in = (LinearAttentionInputs){.q = b->in[0],
                                       .k = b->in[1],
                                       .v = b->in[2],
                                       .decay = b->in[decay],
                                       .write = write >= 0 ? b->in[write] : NULL};
    args->d_o = b->in[3];
    args->workspace = b->workspace;
    for (int i = 0; i < b->node->n_outputs; i++) args->out[i] = b->out[i];
    return args;
}

static bool run_linear_attention(const void *args) {
    const LinearAttentionArgs *a = args;
    linear_attention_forward(&a->shape, &a->in, a->out[0], a->out[1]);
    return true;
}

bool cpu_bind_linear_attention(Binding *b, CpuCall *out) {
    *out = (CpuCall){run_linear_attention, new_linear_attention(b)};
    return true;
}

static bool run_linear_attention_grad(const void *args) {
    const LinearAttentionArgs *a = args;
    linear_attention_backward(&a->shape, &a->in, a->d_o, a->out[0], a->out[1], a->out[2], a->out[3],
                              a->workspace);
    return true;
}

bool cpu_bind_linear_attention_grad(Binding *b, CpuCall *out) {
    LinearAttentionArgs *args = new_linear_attention(b);
    *out = (CpuCall){run_linear_attention_grad, args};
    if (linear_attention_workspace_bytes(&args->shape) >
        (size_t)op_workspace_bytes(b->node, b->in_local)) {
        BUG("the plan reserves too little workspace for linear_attention_grad");
    }
    return true;
}

typedef struct CachedStateArgs {
    LinearAttentionArgs of;
    LinearAttentionStates states;
} CachedStateArgs;

static bool run_cache_linear_attention(const void *args) {
    const CachedStateArgs *a = args;
    linear_attention_forward(&a->of.shape, &a->of.in, a->of.out[0], NULL);
    return true;
}

bool cpu_bind_cache_linear_attention(Binding *b, CpuCall *out) {
    enum { STATES = 3, ROWS, PLACES };
    CachedStateArgs *args = ARENA_NEW(b->arena, CachedStateArgs);
    args->of = *new_linear_attention(b);
    args->states = (LinearAttentionStates){.states = b->out[1],
                                           .sequences = b->in_local[STATES].dims[0],
                                           .rows = b->in[ROWS],
                                           .places = b->in[PLACES]};
    args->of.in.states = &args->states;
    *out = (CpuCall){run_cache_linear_attention, args};
    return true;
}

typedef struct ConvolveArgs {
    ConvolveShape shape;
    const void *in[3];
    void *out[2];
} ConvolveArgs;

static ConvolveArgs *new_convolve(Binding *b, int weights) {
    ConvolveArgs *args = ARENA_NEW(b->arena, ConvolveArgs);
    const Type *x = &b->in_local[0];
    int places = convolve_places(b->node);
    args->shape = (ConvolveShape){.batch = x->dims[0],
                                  .seq = x->dims[1],
                                  .channels = type_elements(x) / (x->dims[0] * x->dims[1]),
                                  .taps = (int)b->in_local[weights].dims[0],
                                  .dtype = x->dtype,
                                  .places = places >= 0 ? b->in[places] : NULL};
    for (int i = 0; i < 3 && i < b->node->n_inputs; i++) args->in[i] = b->in[i];
    for (int i = 0; i < b->node->n_outputs; i++) args->out[i] = b->out[i];
    return args;
}

static bool run_convolve(const void *args) {
    const ConvolveArgs *a = args;
    convolve_forward(&a->shape, a->in[0], a->in[1], a->out[0]);
    return true;
}

bool cpu_bind_convolve(Binding *b, CpuCall *out) {
    *out = (CpuCall){run_convolve, new_convolve(b, 1)};
    return true;
}

static bool run_convolve_grad(const void *args) {
    const ConvolveArgs *a = args;
    convolve_backward(&a->shape, a->in[0], a->in[1], a->in[2], a->out[0], a->out[1]);
    return true;
}

bool cpu_bind_convolve_grad(Binding *b, CpuCall *out) {
    *out = (CpuCall){run_convolve_grad, new_convolve(b, 1)};
    return true;
}

typedef struct CachedConvolveArgs {
    ConvolveShape shape;
    const void *x;
    const float *w;
    int64_t sequences;
    const int32_t *rows, *positions;
    void *cache, *y;
} CachedConvolveArgs;

static bool run_cache_convolve(const void *args) {
    const CachedConvolveArgs *a = args;
    convolve_cached(&a->shape, a->x, a->w, a->sequences, a->rows, a->positions, a->cache, a->y);
    return true;
}

bool cpu_bind_cache_convolve(Binding *b, CpuCall *out) {
    enum { X, CACHE, WEIGHTS, ROWS, PLACES };
    CachedConvolveArgs *args = ARENA_NEW(b->arena, CachedConvolveArgs);
    *args = (CachedConvolveArgs){.shape = new_convolve(b, WEIGHTS)->shape,
                                 .x = b->in[X],
                                 .w = b->in[WEIGHTS],
                                 .sequences = b->in_local[CACHE].dims[0],
                                 .rows = b->in[ROWS],
                                 .positions = b->in[PLACES],
                                 .cache = b->out[1],
                                 .y = b->out[0]};
    *out = (CpuCall){run_cache_convolve, args};
    return true;
}
