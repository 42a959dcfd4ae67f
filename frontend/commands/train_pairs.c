#include "frontend/commands/train_pairs.h"

#include "ir/op.h"
#include "ir/ops/parts.h"
#include "runtime/data/token_buffer.h"

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

bool train_pairs_compare(const Plan *plan) {
    bool compares = false;
    for (int p = 0; p < plan->n_programs; p++) {
        compares |= has_named(plan->programs[p].graph, OP_INPUT, INPUT_REFERENCE);
    }
    return compares;
}

TrainPairs train_pairs_of(const Plan *plan, Arena *arena) {
    TrainPairs pairs = {.how = {.seq = (size_t)plan->seq}};
    pairs.reads = pairs.unpaired = plan_reads_numbers(plan, TOKEN_DESIRABLE);
    pairs.how.needs_others = plan_reads_numbers(plan, TOKEN_DIVERGENCE);
    for (int p = 0; p < plan->n_programs; p++) {
        pairs.reads |= graph_has_pairs(plan->programs[p].graph);
        pairs.rewards |= has_named(plan->programs[p].graph, OP_OUTPUT, OUTPUT_REWARDS);
    }
    pairs.asks_reference = train_pairs_compare(plan);
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

PairScoring train_pairs_scoring(const TrainPairs *pairs, Engine *engine, const Plan *plan) {
    return (PairScoring){.engine = engine,
                         .plan = plan,
                         .rewards = pairs->rewards,
                         .unpaired = pairs->unpaired,
                         .diverges = pairs->how.needs_others};
}

Dataset *train_pairs_unpair(TrainPairs *pairs, Dataset *dataset, const char *path, int vocab,
                            Diag *diag) {
    const int64_t seq = (int64_t)pairs->how.seq;
    TokenBuffer buffer = {.token_bytes = 4};
    PreferenceTotals totals;
    bool good = unpaired_documents(dataset, seq, pairs->tokens, pairs->labels, &buffer, diag) &&
                unpaired_rows(&buffer, &pairs->how, &totals, diag);
    dataset_close(dataset);
    if (!good) {
        diag_note(diag, (SourceLoc){path, 0}, "of these");
        token_buffer_release(&buffer);
        return NULL;
    }
    preference_add_totals(&pairs->totals, &totals);
    DatasetTokens tokens = {.tokens = buffer.tokens,
                            .token_bytes = (int)buffer.token_bytes,
                            .n_tokens = (int64_t)buffer.n_tokens,
                            .counts = token_buffer_take_mask(&buffer)};
    return dataset_from_tokens(path, tokens, (int)(2 * seq), vocab, diag);
}

void train_pairs_print(const TrainPairs *pairs) {
    const PreferenceTotals *totals = &pairs->totals;
    const bool unpaired = pairs->unpaired;
    int64_t n = totals->n_pairs;
    if (n == 0) return;
    printf(unpaired ? "answers %" PRId64 ", " : "pairs   %" PRId64 ", ", n);
    if (unpaired) printf("%" PRId64 " of them desirable; ", totals->n_wanted);
    printf("prompts of %.1f tokens in the mean, answers of %.1f\n",
           (double)totals->n_prompt / (double)n,
           (double)totals->n_answer / (double)(unpaired ? n : 2 * n));
    if (totals->n_prompts || totals->n_answers) {
        printf("        %" PRId64 " prompts lose their beginning, %" PRId64
               " %s: they are longer than a row\n",
               totals->n_prompts, totals->n_answers,
               unpaired ? "answers their end" : "pairs the end of an answer");
    }
    if (totals->n_equal) {
        printf("        %" PRId64 " more are twice the same answer: left out\n", totals->n_equal);
    }
}

/* Windows of so many rows, of which one is had at a time. */
typedef struct RowReader {
    const PairScoring *how;
    const Dataset *data;
    int64_t n_rows, window; /* -1: none yet */
    int32_t *tokens, *labels;
    bool wanted; /* of unpaired ones */
} RowReader;

static RowReader open_rows(const PairScoring *how, const Dataset *data, int64_t n_rows,
                           Arena *arena) {
    RowReader rows = {.how = how, .data = data, .n_rows = n_rows, .window = -1};
    rows.tokens = ARENA_ARRAY(arena, int32_t, n_rows * how->plan->seq);
    rows.labels = ARENA_ARRAY(arena, int32_t, n_rows * how->plan->seq);
    return rows;
}

static bool read_window(RowReader *rows, int64_t window, Diag *diag) {
    const int64_t seq = rows->how->plan->seq;
    if (window == rows->window) return true;
    rows->window = window;
    if (!dataset_window(rows->data, window, rows->tokens, rows->labels, diag)) return false;
    if (rows->how->unpaired) rows->wanted = unpaired_take_kind(rows->labels, seq);
    if (rows->how->rewards) train_pairs_mark_ends(rows->labels, seq, (int)rows->n_rows);
    return true;
}

static bool read_row(RowReader *rows, int64_t row, int32_t *tokens, int32_t *labels, Diag *diag) {
    const int64_t seq = rows->how->plan->seq, at = row % rows->n_rows * seq;
    if (!read_window(rows, row / rows->n_rows, diag)) return false;
    memcpy(tokens, rows->tokens + at, (size_t)seq * sizeof(*tokens));
    memcpy(labels, rows->labels + at, (size_t)seq * sizeof(*labels));
    return true;
}

/* Windows of so many rows each. Where the engine takes more than are left, the last one is
 * repeated.
 */
static bool score(const PairScoring *how, const Dataset *data, int64_t n_rows, float *out_scores,
                  Diag *diag) {
    const int64_t seq = how->plan->seq, n = dataset_count_windows(data) * n_rows;
    const int64_t at_once = engine_forward_batch(how->engine);
    Arena *arena = arena_create();
    RowReader rows = open_rows(how, data, n_rows, arena);
    int32_t *tokens = ARENA_ARRAY(arena, int32_t, at_once * seq);
    int32_t *labels = ARENA_ARRAY(arena, int32_t, at_once * seq);
    float *scores = ARENA_ARRAY(arena, float, at_once);
    bool good = true;
    for (int64_t first = 0; good && first < n; first += at_once) {
        int64_t count = n - first < at_once ? n - first : at_once;
        for (int64_t i = 0; good && i < at_once; i++) {
            good = read_row(&rows, first + (i < count ? i : count - 1), tokens + i * seq,
                            labels + i * seq, diag);
        }
        good = good && engine_row_scores(how->engine, tokens, labels, scores, diag);
        if (!good) break;
        memcpy(out_scores + first, scores, (size_t)count * sizeof(*scores));
        if (!how->line) continue;
        progress_line_show(how->line, (int)(how->done + (first + count) / n_rows), (int)how->all,
                           "");
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

/* A pair, whose sums these become; means are of `out->n_pairs`. */
static void add_pair(const RowReader *rows, const float *scores, const float *reference,
                     PairsResult *out) {
    const double n = (double)out->n_pairs, chosen = (double)scores[0];
    const double rejected = (double)scores[1];
    const int64_t seq = rows->how->plan->seq;
    out->n_likelier += likelier(chosen, rejected);
    out->n_likelier_by_token += likelier(chosen / (double)count_answer(rows->labels, seq),
                                         rejected / (double)count_answer(rows->labels + seq, seq));
    out->chosen += chosen / n;
    out->rejected += rejected / n;
    if (!reference) return;
    const double a = chosen - (double)reference[0], b = rejected - (double)reference[1];
    out->chosen_gain += a / n;
    out->rejected_gain += b / n;
    out->n_right += likelier(a, b);
}

static void add_unpaired(const float *scores, const float *reference, bool wanted,
                         PairsResult *out) {
    const double of_kind = (double)(wanted ? out->n_wanted : out->n_pairs - out->n_wanted);
    *(wanted ? &out->chosen : &out->rejected) += (double)scores[0] / of_kind;
    if (!reference) return;
    const double gain = (double)scores[0] - (double)reference[0];
    *(wanted ? &out->chosen_gain : &out->rejected_gain) += gain / of_kind;
    out->n_right += wanted ? likelier(gain, out->divergence) : likelier(out->divergence, gain);
}

/* How many are desirable, and the divergence, from which the others count. */
static bool look_at_kinds(RowReader *rows, const float *scores, const float *reference,
                          PairsResult *out, Diag *diag) {
    for (int64_t i = 0; i < out->n_pairs; i++) {
        if (!read_window(rows, i, diag)) return false;
        out->n_wanted += rows->wanted;
        if (!reference) continue;
        const double gain = (double)scores[2 * i + 1] - (double)reference[2 * i + 1];
        out->divergence += gain / (double)out->n_pairs;
    }
    if (out->divergence < 0 || !rows->how->diverges) out->divergence = 0;
    return true;
}

bool train_pairs_evaluate(const PairScoring *how, const Dataset *data, const float *reference,
                          PairsResult *out, Diag *diag) {
    const int64_t n = dataset_count_windows(data);
    Arena *arena = arena_create();
    RowReader rows = open_rows(how, data, 2, arena);
    float *scores = malloc((size_t)n * 2 * sizeof(*scores));
    if (!scores) BUG("out of memory");
    bool good = train_pairs_score(how, data, scores, diag);
    *out = (PairsResult){.n_pairs = n,
                         .rewards = how->rewards,
                         .unpaired = how->unpaired,
                         .compares = reference != NULL};
    if (how->unpaired) good = good && look_at_kinds(&rows, scores, reference, out, diag);
    for (int64_t i = 0; good && i < n; i++) {
        const float *theirs = reference ? reference + 2 * i : NULL;
        good = read_window(&rows, i, diag);
        if (how->unpaired) {
            add_unpaired(scores + 2 * i, theirs, rows.wanted, out);
        } else {
            add_pair(&rows, scores + 2 * i, theirs, out);
        }
    }
    free(scores);
    arena_destroy(arena);
    return good;
}
