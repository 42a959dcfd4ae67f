/* A run's model: which of the shipped ones, its settings, what it takes in FLOPs; and how experts
 * of published software lie on Perilune's mesh. */
#include "frontend/validate/validate.h"

#include <inttypes.h>
#include <string.h>

/* Stated, and more than none; fields of a Run made by hand may be 0. */
static bool has(int64_t value) {
    return value > 0;
}

const char *run_model(const Run *run) {
    if (has(run->more.kv_rank)) return "deepseek";
    if (has(run->more.experts)) return "moe";
    return run->kv_heads < run->heads || run->ffn != 4 * run->hidden ? "llama" : "gpt";
}

const char *run_shape_problem(Arena *arena, const Run *run) {
    const LayerShape *more = &run->more;
    const struct {
        const char *name, *of;
        int64_t value;
        bool wanted;
    } parts[] = {
        {"top_k", "experts", more->top_k, has(more->experts)},
        {"expert_ffn", "experts", more->expert_ffn, has(more->experts)},
        {"experts", "kv_rank", more->experts, has(more->kv_rank)},
        {"nope", "kv_rank", more->nope, has(more->kv_rank)},
        {"rope", "kv_rank", more->rope, has(more->kv_rank)},
        {"value", "kv_rank", more->value, has(more->kv_rank)},
    };
    const struct {
        const char *name, *of;
        int64_t value;
        bool allowed;
    } extras[] = {
        {"top_k", "experts", more->top_k, has(more->experts)},
        {"expert_ffn", "experts", more->expert_ffn, has(more->experts)},
        {"shared_ffn", "experts", more->shared_ffn, has(more->experts)},
        {"dense_layers", "experts", more->dense_layers, has(more->experts)},
        {"ep", "experts", run->ep > 1 ? run->ep : 0, has(more->experts)},
        {"etp", "experts", run->etp > 1 ? run->etp : 0, has(more->experts)},
        {"q_rank", "kv_rank", more->q_rank, has(more->kv_rank)},
        {"nope", "kv_rank", more->nope, has(more->kv_rank)},
        {"rope", "kv_rank", more->rope, has(more->kv_rank)},
        {"value", "kv_rank", more->value, has(more->kv_rank)},
        {"mtp", "kv_rank", more->mtp, has(more->kv_rank)},
    };
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        if (!parts[i].wanted || has(parts[i].value)) continue;
        return arena_printf(arena, "column %s is needed beside %s, and it is empty", parts[i].name,
                            parts[i].of);
    }
    for (size_t i = 0; i < sizeof(extras) / sizeof(extras[0]); i++) {
        if (extras[i].allowed || !has(extras[i].value)) continue;
        return arena_printf(arena, "column %s is %" PRId64 ", but column %s is empty",
                            extras[i].name, extras[i].value, extras[i].of);
    }
    if (has(more->experts) && more->top_k > more->experts) {
        return arena_printf(arena, "top_k %" PRId64 " is more than the experts, %" PRId64,
                            more->top_k, more->experts);
    }
    if (more->dense_layers > run->layers) {
        return arena_printf(arena, "dense_layers %" PRId64 " is more than the layers, %" PRId64,
                            more->dense_layers, run->layers);
    }
    if (has(more->kv_rank)) {
        return has(more->head) ? "column head has no meaning beside kv_rank" : NULL;
    }
    if (has(more->head) && strcmp(run_model(run), "gpt") == 0 &&
        more->head * run->heads != run->hidden) {
        return arena_printf(arena,
                            "head %" PRId64 " x heads %" PRId64 " is not hidden %" PRId64
                            ", as a model without kv_heads has it",
                            more->head, run->heads, run->hidden);
    }
    if (!has(more->head) && run->hidden % run->heads != 0) {
        return arena_printf(arena, "hidden %" PRId64 " is not a multiple of heads %" PRId64,
                            run->hidden, run->heads);
    }
    if (run->heads % run->kv_heads == 0) return NULL;
    return arena_printf(arena, "heads %" PRId64 " is not a multiple of kv_heads %" PRId64,
                        run->heads, run->kv_heads);
}

int run_model_settings(Arena *arena, const Run *run, ModelSetting out[MAX_RUN_SETTINGS]) {
    const LayerShape *more = &run->more;
    const char *model = run_model(run);
    bool latent = strcmp(model, "deepseek") == 0, mixed = latent || strcmp(model, "moe") == 0;
    bool grouped = !latent && strcmp(model, "gpt") != 0;
    bool ffn = strcmp(model, "llama") == 0 || (mixed && has(more->dense_layers));
    const struct {
        const char *key;
        int64_t value;
        bool given;
    } settings[] = {
        {"layers", run->layers, true},
        {"model", run->hidden, true},
        {"heads", run->heads, true},
        {"seq", run->seq, true},
        {"vocab", run->vocab, true},
        {"kv_heads", run->kv_heads, grouped},
        {"head", more->head, grouped && has(more->head)},
        {"ffn", run->ffn, ffn},
        {"experts", more->experts, mixed},
        {"top_k", more->top_k, mixed},
        {"expert_ffn", more->expert_ffn, mixed},
        /* What published runs did with what finds no room differs; most were balanced, and dropped
         * nothing. */
        {"capacity", 1, mixed},
        {"dense_layers", has(more->dense_layers) ? more->dense_layers : 0, mixed},
        {"shared_ffn", more->shared_ffn, mixed && has(more->shared_ffn)},
        {"q_rank", has(more->q_rank) ? more->q_rank : 0, latent},
        {"kv_rank", more->kv_rank, latent},
        {"nope", more->nope, latent},
        {"rope", more->rope, latent},
        {"value", more->value, latent},
        {"mtp", has(more->mtp), latent},
    };
    int count = 0;
    for (size_t i = 0; i < sizeof(settings) / sizeof(settings[0]); i++) {
        if (!settings[i].given) continue;
        out[count].key = settings[i].key;
        out[count++].value = arena_printf(arena, "%" PRId64, settings[i].value);
    }
    if (mixed) {
        out[count++] = (ModelSetting){"shared", has(more->shared_ffn) ? "true" : "false"};
    }
    if (latent) out[count++] = (ModelSetting){"routing", "greedy"};
    return count;
}

int run_expert_degree(Arena *arena, const Run *run, const char **out_why) {
    int64_t together = run->ep * run->etp, e = together / run->t;
    *out_why = NULL;
    if (!has(run->more.experts)) return 1;
    if (together % run->t != 0) {
        *out_why = arena_printf(arena,
                                "experts on ep %" PRId64 " x etp %" PRId64
                                " ranks: with t they lie on a multiple of t %" PRId64,
                                run->ep, run->etp, run->t);
        return 0;
    }
    if (run->d % e == 0) return (int)e;
    *out_why = arena_printf(arena,
                            "experts on %" PRId64 " ranks beside t: d %" PRId64
                            " is no multiple of it, and experts over cp are not modelled",
                            e, run->d);
    return 0;
}

/* A layer's weights that a token meets, and what attention's two products take of a token, which
 * meets the whole sequence. */
typedef struct LayerFlops {
    double weights, attention;
} LayerFlops;

static LayerFlops layer_flops(const Run *run, bool dense) {
    const LayerShape *more = &run->more;
    double h = (double)run->hidden, heads = (double)run->heads, s = (double)run->seq;
    double head = has(more->head) ? (double)more->head : h / heads;
    double keys = (double)run->kv_heads * head, queries = heads * head;
    LayerFlops flops = {h * (2 * queries + 2 * keys), 4 * s * queries};
    if (has(more->kv_rank)) {
        double rank = (double)more->kv_rank, nope = (double)more->nope, rope = (double)more->rope;
        double value = (double)more->value, wide = heads * (nope + rope);
        double of_queries = h * wide;
        if (has(more->q_rank)) of_queries = (double)more->q_rank * (h + wide);
        flops.weights =
            of_queries + h * (rank + rope) + rank * heads * (nope + value) + heads * value * h;
        flops.attention = 2 * s * heads * (nope + rope + value);
    }
    double shared = has(more->shared_ffn) ? (double)more->shared_ffn : 0;
    if (has(more->experts) && !dense) {
        flops.weights += 3 * h * ((double)(more->top_k * more->expert_ffn) + shared);
    } else {
        flops.weights += (strcmp(run_model(run), "gpt") == 0 ? 2 : 3) * h * (double)run->ffn;
    }
    return flops;
}

/* Per token: products are 2 FLOPs for each weight that it meets, times 3 with the backward pass.
 * For ffn = 4h and kv_heads = heads this is 2104.04473's eq. 3 and 2205.05198's eq. 7 and 8.
 * Routers count nothing, as in Megatron-Core. */
double run_flops(const Run *run, FlopsConvention convention) {
    const LayerShape *more = &run->more;
    double h = (double)run->hidden, vocab = (double)run->vocab, per_token = 0;
    double n_dense = has(more->dense_layers) ? (double)more->dense_layers : 0;
    double n_second = has(more->mtp) ? 1 : 0; /* 2412.19437, section 2.2 */
    const double counts[] = {(double)run->layers - n_dense + n_second, n_dense};
    for (int dense = 0; dense < 2; dense++) {
        if (counts[dense] <= 0) continue;
        LayerFlops layer = layer_flops(run, dense);
        if (convention == STATES_CAUSAL) layer.attention /= 2;
        double block = 2 * layer.weights + layer.attention, extra = 0;
        if (convention == STATES_HARDWARE && run->recompute == RECOMPUTE_FULL) extra = block;
        if (convention == STATES_HARDWARE && run->recompute == RECOMPUTE_SELECTIVE) {
            extra = layer.attention;
        }
        per_token += counts[dense] * (3 * block + extra);
    }
    per_token += 6 * h * vocab * (1 + n_second) + n_second * 12 * h * h;
    return per_token * (double)run->seq * (double)run->global_batch;
}
