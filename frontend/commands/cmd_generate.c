/* perilune generate: text from trained weights, token by token; a token is a byte unless there is a
 * tokenizer.
 *
 * Every token is one forward pass over the last seq of them: the plan's step has no cache to keep
 * what was computed before. The causal mask makes what follows the last token irrelevant, so a
 * short context lies at the beginning of the window.
 */
#include "frontend/commands/engine_args.h"
#include "frontend/commands/generate_text.h"
#include "frontend/commands/plan_args.h"
#include "ir/base/file.h"
#include "ir/op.h"
#include "runtime/engine.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { DEFAULT_LENGTH = 500 };
#define DEFAULT_TEMPERATURE 0.8

typedef struct Candidate {
    double logit;
    int token;
} Candidate;

typedef struct Sampler {
    double temperature;
    int top_k;
    uint64_t state;
    Candidate *candidates; /* room for all tokens */
    double *weights;
} Sampler;

/* In [0, 1): splitmix64 (Steele, Lea & Flood 2014). */
static double sampler_uniform(Sampler *sampler) {
    uint64_t z = sampler->state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (double)((z ^ (z >> 31)) >> 11) * 0x1p-53;
}

/* Likeliest first; the token decides between equals, so that the order is total. */
static int compare_candidates(const void *a, const void *b) {
    const Candidate *x = a, *y = b;
    if (x->logit != y->logit) return x->logit < y->logit ? 1 : -1;
    return x->token - y->token;
}

/* A token drawn from softmax(logits / temperature) over the top_k likeliest of those that there
 * are; -1: a logit is not finite. */
static int sampler_choose(Sampler *sampler, const GenerateText *text, const float *logits) {
    Candidate *candidates = sampler->candidates;
    double *weights = sampler->weights, sum = 0;
    int n = 0;
    for (int i = 0; i < text->n_choices; i++) {
        if (!isfinite(logits[i])) return -1;
        if (generate_text_has(text, i)) candidates[n++] = (Candidate){logits[i], i};
    }
    qsort(candidates, (size_t)n, sizeof(candidates[0]), compare_candidates);
    if (sampler->temperature == 0) return candidates[0].token;
    if (n > sampler->top_k) n = sampler->top_k;
    for (int i = 0; i < n; i++) {
        weights[i] = exp((candidates[i].logit - candidates[0].logit) / sampler->temperature);
        sum += weights[i];
    }
    double left = sampler_uniform(sampler) * sum;
    for (int i = 0; i < n; i++) {
        left -= weights[i];
        if (left < 0) return candidates[i].token;
    }
    return candidates[0].token; /* rounding ate the last of it */
}

/* The text grows in `text`; what is asked of each forward pass is one row of logits. */
typedef struct Generation {
    CliArgs *args;
    Diag *diag;
    Plan *plan;
    EngineOptions options;
    Engine *engine;
    int32_t *tokens; /* [forward_batch, seq]; row 0 is used */
    float *logits;   /* [forward_batch, seq, vocab] */
    Sampler sampler;
    GenerateText text;
    int failure; /* exit code when preparing fails */
} Generation;

/* *out_ended: the token was one that ends a text. */
static bool add_token(Generation *gen, bool *out_ended) {
    size_t seq = (size_t)gen->plan->seq;
    const TokenList *tokens = &gen->text.tokens;
    size_t length = tokens->count < seq ? tokens->count : seq;
    const uint32_t *context = tokens->items + tokens->count - length;
    for (size_t i = 0; i < length; i++) gen->tokens[i] = (int32_t)context[i];
    if (!engine_logits(gen->engine, gen->tokens, gen->logits, gen->diag)) return false;
    int token = sampler_choose(&gen->sampler, &gen->text,
                               gen->logits + (length - 1) * (size_t)gen->plan->vocab);
    if (token < 0) {
        diag_error(gen->diag, NO_LOC, "generate: the model's output is not finite; wrong weights?");
        return false;
    }
    *out_ended = !generate_text_add(&gen->text, token);
    return true;
}

/* What the logits are made from, by id, or what is sent to a stage that may make them of it. */
static bool *find_sources(Arena *arena, const Graph *graph) {
    bool *needed = ARENA_ARRAY(arena, bool, graph->n_nodes + 1);
    for (int n = graph->n_nodes - 1; n >= 0; n--) {
        const Node *node = graph->nodes[n];
        bool logits = node->op == OP_OUTPUT && strcmp(node_string(node, ATTR_name), "logits") == 0;
        if (node->phase != PHASE_FORWARD) continue;
        needed[n] |= logits || node->op == OP_SEND;
        for (int i = 0; needed[n] && i < node->n_inputs; i++) {
            needed[node->inputs[i].node->id] = true;
        }
    }
    return needed;
}

/* A model that looks at what follows cannot write what follows. */
static bool check_causal(Arena *arena, const Plan *plan, Diag *diag) {
    for (int p = 0; p < plan->n_programs; p++) {
        const Graph *graph = plan->programs[p].graph;
        const bool *needed = find_sources(arena, graph);
        for (int n = 0; n < graph->n_nodes; n++) {
            const Node *node = graph->nodes[n];
            bool looks_ahead = node->op == OP_ATTENTION
                                   ? !node_int(node, ATTR_causal, 1)
                                   : node->op == OP_SHIFT && node_int(node, ATTR_by, 0) > 0;
            if (!needed[n] || !looks_ahead) continue;
            diag_error(diag, node->loc, "generate: this %s: it looks at what is not written yet",
                       node->op == OP_SHIFT ? "shift is by more than 0"
                                            : "attention is not causal");
            return false;
        }
    }
    return true;
}

static bool prepare(Generation *gen) {
    const char *weights = cli_text(gen->args, OPT_LOAD, NULL);
    if (!weights) {
        diag_error(gen->diag, NO_LOC, "generate: which weights? give --load FILE");
        return false;
    }
    gen->plan = plan_from_operand(gen->args, gen->diag);
    if (!gen->plan) return false;
    if (!generate_text_begin(gen->args, gen->plan->vocab, &gen->text, gen->diag)) return false;
    if (!check_causal(gen->args->arena, gen->plan, gen->diag)) return false;
    gen->failure = engine_options_from_args(gen->args, gen->plan, &gen->options, gen->diag);
    if (gen->failure != EXIT_DONE) return false;
    gen->failure = EXIT_USAGE;
    const char *lacking = engine_args_missing_gpu(gen->args, gen->plan, &gen->options);
    if (lacking) { /* standard output is for the text */
        fprintf(stderr,
                "note: on the processor, though the plan is for CUDA: no GPU can be used: %s\n",
                lacking);
    }
    if (gen->options.rank == 0 && !cli_try_outputs(gen->args, gen->diag)) return false;
    gen->engine = engine_create(gen->plan, &gen->options, gen->diag);
    if (!gen->engine || !engine_args_load(gen->args, gen->engine, NULL, gen->diag)) return false;
    int64_t n_tokens = engine_forward_batch(gen->engine) * gen->plan->seq;
    gen->tokens = ARENA_ARRAY(gen->args->arena, int32_t, n_tokens);
    gen->logits = ARENA_ARRAY(gen->args->arena, float, n_tokens * gen->plan->vocab);
    gen->sampler =
        (Sampler){.temperature = cli_real(gen->args, OPT_TEMPERATURE, DEFAULT_TEMPERATURE),
                  .top_k = (int)cli_int(gen->args, OPT_TOP_K, gen->text.n_choices),
                  .state = (uint64_t)cli_int(gen->args, OPT_SEED, 1),
                  .candidates = ARENA_ARRAY(gen->args->arena, Candidate, gen->text.n_choices),
                  .weights = ARENA_ARRAY(gen->args->arena, double, gen->text.n_choices)};
    return true;
}

/* What can be shown of the text so far. */
static bool show(Generation *gen, bool all) {
    const char *text;
    size_t length = generate_text_show(&gen->text, all, &text);
    if (fwrite(text, 1, length, stdout) == length && fflush(stdout) == 0) return true;
    diag_error(gen->diag, NO_LOC, "standard output cannot be written");
    return false;
}

/* On standard output the text appears as it comes; a file is written whole at the end. */
static bool generate(Generation *gen) {
    const char *path = cli_text(gen->args, OPT_OUTPUT, "-");
    int64_t length = cli_int(gen->args, OPT_LENGTH, DEFAULT_LENGTH);
    bool first = gen->options.rank == 0; /* the others compute, and say nothing */
    bool live = first && strcmp(path, "-") == 0, ended = false;
    if (live && !show(gen, false)) return false;
    for (int64_t i = 0; i < length && !ended; i++) {
        if (!add_token(gen, &ended)) return false;
        if (live && !show(gen, false)) return false;
    }
    strbuf_put(&gen->text.text, "\n");
    if (live) return show(gen, true);
    return !first || file_write(path, gen->text.text.text, gen->text.text.length, gen->diag);
}

int cmd_generate(CliArgs *args) {
    Generation gen = {.args = args, .diag = diag_create(), .failure = EXIT_USAGE};
    int status = EXIT_DONE;
    if (!prepare(&gen)) {
        status = gen.failure;
    } else if (!generate(&gen)) {
        status = EXIT_FAILED;
    }
    cli_fail(gen.diag, status);
    engine_destroy(gen.engine);
    if (!engine_args_release(&gen.options, status == EXIT_DONE)) status = EXIT_FAILED;
    generate_text_release(&gen.text);
    diag_destroy(gen.diag);
    return status;
}
