#include "frontend/commands/train_diffusion.h"

#include "frontend/commands/train_documents.h"
#include "ir/op.h"
#include "runtime/data/mix.h"

#include <inttypes.h>
#include <stdio.h>

const Node *diffusion_of_plan(const Plan *plan) {
    for (int p = 0; p < plan->n_programs; p++) {
        const Graph *graph = plan->programs[p].graph;
        for (int n = 0; n < graph->n_nodes; n++) {
            if (node_diffuses(graph->nodes[n])) return graph->nodes[n];
        }
    }
    return NULL;
}

/* Models of one's own: weights come where tokens are hidden, and what is hidden has weights. */
static bool check_weights(const Plan *plan, const Node *node, Diag *diag) {
    const bool reads = plan_reads_numbers(plan, TOKEN_WEIGHTS);
    if (reads == (node != NULL)) return true;
    diag_error(diag, node ? node->loc : NO_LOC,
               node ? "label_share: tokens are hidden by shares, and the loss does not read "
                      "m:numbers(\"weights\"), which say where (nn.cross_entropy's diffusion does)"
                    : "the plan's loss reads m:numbers(\"weights\"), which come where tokens are "
                      "hidden by shares: diffusion = { mask } for nn.cross_entropy");
    return false;
}

bool train_diffusion_of(const Plan *plan, Arena *arena, TrainDiffusion *out, Diag *diag) {
    const Node *node = diffusion_of_plan(plan);
    *out = (TrainDiffusion){.n_draws = 1};
    if (!check_weights(plan, node, diag)) return false;
    if (!node) return true;
    const int64_t mask = node_int(node, ATTR_mask, -1), rows = plan->global_batch;
    if (mask < 0 || mask >= plan->vocab || plan_source(plan)) {
        diag_error(diag, node->loc,
                   "label_share: mask %" PRId64 ": must be a token of the %" PRId64
                   ", in a model without an encoder",
                   mask, plan->vocab);
        return false;
    }
    if (mask == train_documents_separator(plan)) {
        diag_error(diag, node->loc,
                   "token %" PRId64 " hides others, and documents end with it: they need one each "
                   "(--set mask_token=, --set documents=)",
                   mask);
        return false;
    }
    *out =
        (TrainDiffusion){.hides = true,
                         .how = {.mask = (int32_t)mask, .shifted = node_int(node, ATTR_by, 0) != 0},
                         .by_row = node_int(node, ATTR_each, 0) != 0,
                         .seed = (uint64_t)plan->seed,
                         .seq = plan->seq,
                         .weights = ARENA_ARRAY(arena, float, rows * plan->seq),
                         .n_labels = ARENA_ARRAY(arena, int64_t, rows),
                         .n_draws = 1};
    return true;
}

void train_diffusion_fill(TrainDiffusion *d, int64_t number, uint64_t key, bool first_counts,
                          int64_t at, int32_t *tokens, int32_t *labels) {
    const int draw = number < 0 ? d->draw : 0, n_draws = number < 0 ? d->n_draws : 1;
    const double share = diffusion_share(d->seed, number, draw, n_draws);
    for (int64_t i = d->seq - 1; d->packed && i > 0 && labels[i - 1] < 0; i--) {
        labels[i - 1] = tokens[i];
    }
    if (draw) key = mix_bits(key) + (uint64_t)draw;
    d->n_labels[at] = diffusion_apply(&d->how, key, share, first_counts, tokens, labels,
                                      d->weights + at * d->seq, d->seq);
}

/* The loss is a mean over all labels of the batch: so that each row with labels has the same part
 * of it, however many they are  (Nie et al. 2025, equation 5, of answers by themselves). */
static void balance_rows(TrainDiffusion *d, int64_t rows) {
    int64_t n_labels = 0, n_filled = 0;
    for (int64_t r = 0; r < rows; r++) {
        n_labels += d->n_labels[r];
        n_filled += d->n_labels[r] > 0;
    }
    for (int64_t r = 0; r < rows; r++) {
        if (d->n_labels[r] == 0) continue;
        const double factor = (double)n_labels / ((double)n_filled * (double)d->n_labels[r]);
        float *weights = d->weights + r * d->seq;
        for (int64_t i = 0; i < d->seq; i++) weights[i] = (float)(weights[i] * factor);
    }
}

void train_diffusion_give(TrainDiffusion *d, Engine *engine, int64_t rows, bool trains) {
    if (!d->hides) return;
    if (trains && d->by_row) balance_rows(d, rows);
    engine_set_numbers(engine, TOKEN_WEIGHTS, d->weights);
}

void train_diffusion_print(const TrainDiffusion *d) {
    if (!d->hides) return;
    printf("hidden  a random share of each row is to be said, behind token %d%s\n", d->how.mask,
           d->how.shifted ? "; each position says the next token" : "");
}
