#include "frontend/commands/train_pairs.h"

#include "ir/op.h"
#include "ir/ops/parts.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool has_named(const Graph *graph, OpKind op, const char *name) {
    for (int n = 0; n < graph->n_nodes; n++) {
        const Node *node = graph->nodes[n];
        if (node->op == op && strcmp(node_string(node, ATTR_name), name) == 0) return true;
    }
    return false;
}

TrainPairs train_pairs_of(const Plan *plan, Arena *arena) {
    TrainPairs pairs = {.how = {.seq = (size_t)plan->seq}};
    for (int p = 0; p < plan->n_programs; p++) {
        pairs.reads |= graph_has_pairs(plan->programs[p].graph);
        pairs.asks_reference |= has_named(plan->programs[p].graph, OP_INPUT, INPUT_REFERENCE);
        pairs.rewards |= has_named(plan->programs[p].graph, OP_OUTPUT, OUTPUT_REWARDS);
    }
    if (!pairs.reads) return pairs;
    pairs.tokens = ARENA_ARRAY(arena, int32_t, 2 * plan->seq);
    pairs.labels = ARENA_ARRAY(arena, int32_t, 2 * plan->seq);
    return pairs;
}

void train_pairs_mark_ends(int32_t *labels, int64_t seq, int n_rows) {
    for (int row = 0; row < n_rows; row++, labels += seq) {
        /* Whose label is the answer's last token, which is behind it; -1: it is the row's first. */
        int64_t last = seq - 2;
        while (last >= 0 && labels[last] == DATASET_NO_LABEL) last--;
        for (int64_t i = 0; i < seq; i++) labels[i] = i == last + 1 ? 0 : DATASET_NO_LABEL;
    }
}

void train_pairs_print(const PreferenceTotals *totals) {
    int64_t n = totals->n_pairs;
    if (n == 0) return;
    printf("pairs   %" PRId64 ", prompts of %.1f tokens in the mean, answers of %.1f\n", n,
           (double)totals->n_prompt / (double)n, (double)totals->n_answer / (double)(2 * n));
    if (totals->n_prompts || totals->n_answers) {
        printf("        %" PRId64 " prompts lose their beginning, %" PRId64
               " pairs the end of an answer: they are longer than a row\n",
               totals->n_prompts, totals->n_answers);
    }
    if (totals->n_equal) {
        printf("        %" PRId64 " more are twice the same answer: left out\n", totals->n_equal);
    }
}

/* Windows of so many rows each. Where the engine takes more than are left, the last one is
 * repeated.
 */
static bool score(const PairScoring *how, const Dataset *data, int64_t n_rows, float *out_scores,
                  Diag *diag) {
    const int64_t row = n_rows * how->plan->seq, n = dataset_count_windows(data);
    const int64_t at_once = engine_forward_batch(how->engine) / n_rows;
    Arena *arena = arena_create();
    int32_t *tokens = ARENA_ARRAY(arena, int32_t, at_once * row);
    int32_t *labels = ARENA_ARRAY(arena, int32_t, at_once * row);
    float *scores = ARENA_ARRAY(arena, float, at_once *n_rows);
    bool good = true;
    for (int64_t first = 0; good && first < n; first += at_once) {
        int64_t count = n - first < at_once ? n - first : at_once;
        for (int64_t i = 0; good && i < at_once; i++) {
            good = dataset_window(data, first + (i < count ? i : count - 1), tokens + i * row,
                                  labels + i * row, diag);
            if (how->rewards) train_pairs_mark_ends(labels + i * row, how->plan->seq, (int)n_rows);
        }
        good = good && engine_row_scores(how->engine, tokens, labels, scores, diag);
        if (!good) break;
        memcpy(out_scores + first * n_rows, scores, (size_t)(count * n_rows) * sizeof(*scores));
        if (!how->line) continue;
        progress_line_show(how->line, (int)(how->done + first + count), (int)how->all, "");
    }
    arena_destroy(arena);
    return good;
}

bool train_pairs_score(const PairScoring *how, const Dataset *data, float *out_scores, Diag *diag) {
    return score(how, data, 2, out_scores, diag);
}

bool train_pairs_rewards(const PairScoring *how, const Dataset *data, float *out_rewards,
                         Diag *diag) {
    return score(how, data, 1, out_rewards, diag);
}

static double likelier(double chosen, double rejected) {
    return chosen > rejected ? 1 : chosen == rejected ? 0.5 : 0;
}

static int64_t count_answer(const int32_t *labels, int64_t seq) {
    int64_t count = 0;
    for (int64_t i = 0; i < seq; i++) count += labels[i] != DATASET_NO_LABEL;
    return count;
}

bool train_pairs_evaluate(const PairScoring *how, const Dataset *data, PairsResult *out,
                          Diag *diag) {
    const int64_t seq = how->plan->seq, n = dataset_count_windows(data);
    Arena *arena = arena_create();
    int32_t *tokens = ARENA_ARRAY(arena, int32_t, 2 * seq);
    int32_t *labels = ARENA_ARRAY(arena, int32_t, 2 * seq);
    float *scores = malloc((size_t)n * 2 * sizeof(*scores));
    if (!scores) BUG("out of memory");
    bool good = train_pairs_score(how, data, scores, diag);
    *out = (PairsResult){.n_pairs = n, .rewards = how->rewards};
    for (int64_t i = 0; good && i < n; i++) {
        double chosen = (double)scores[2 * i], rejected = (double)scores[2 * i + 1];
        good = dataset_window(data, i, tokens, labels, diag);
        out->n_likelier += likelier(chosen, rejected);
        out->n_likelier_by_token += likelier(chosen / (double)count_answer(labels, seq),
                                             rejected / (double)count_answer(labels + seq, seq));
        out->chosen += chosen / (double)n;
        out->rejected += rejected / (double)n;
    }
    free(scores);
    arena_destroy(arena);
    return good;
}
