#include "frontend/judge/judge_model.h"

#include "ir/base/memory.h"
#include "ir/class_names.h"
#include "runtime/data/dataset.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

struct ModelJudge {
    Engine *engine;
    int64_t seq, at_once;
    uint32_t pad;
    bool first;               /* is a text told of at its first token? */
    float *numbers;           /* [at_once, seq], the logits; NULL: it tells rewards */
    int32_t *tokens, *labels; /* [at_once, seq] */
    float *rewards;           /* [at_once] */
};

static bool tells_rewards(const Plan *plan) {
    for (int p = 0; p < plan->n_programs; p++) {
        const Graph *graph = plan->programs[p].graph;
        for (int n = 0; n < graph->n_nodes; n++) {
            const Node *node = graph->nodes[n];
            if (node->op != OP_OUTPUT) continue;
            if (strcmp(node_string(node, ATTR_name), OUTPUT_REWARDS) == 0) return true;
        }
    }
    return false;
}

/* The label_share of a model that tells numbers of each text; NULL: it does not. */
static const Node *find_numbers(const Plan *plan) {
    const Node *share = plan_label_share(plan);
    if (!share || !node_attr(share, ATTR_labels)) return NULL;
    const ClassLabels labels = class_labels_find(node_string(share, ATTR_labels));
    return labels == CLASS_NUMBERS ? share : NULL;
}

ModelJudge *model_judge_open(const Plan *plan, Engine *engine, uint32_t pad, Diag *diag) {
    const Node *number = find_numbers(plan);
    if (number && engine_logits_width(engine) != 1) number = NULL; /* several, or in lanes */
    if (!number && !tells_rewards(plan)) {
        diag_error(diag, NO_LOC,
                   "--reward-model: model %s tells no rewards: it was not made with "
                   "--set preference=reward, or class_kind=mse and one number",
                   plan->model);
        engine_destroy(engine);
        return NULL;
    }
    if (plan->seq < 2) {
        diag_error(diag, NO_LOC, "--reward-model: rows of %" PRId64 " have no room for an answer",
                   plan->seq);
        engine_destroy(engine);
        return NULL;
    }
    ModelJudge *judge = memory_alloc(sizeof(*judge));
    *judge = (ModelJudge){.engine = engine,
                          .seq = plan->seq,
                          .at_once = engine_forward_batch(engine),
                          .pad = pad,
                          .first = number && node_int(number, ATTR_first, 0) != 0};
    const size_t n = (size_t)(judge->at_once * judge->seq);
    judge->tokens = memory_alloc(n * sizeof(int32_t));
    judge->labels = memory_alloc(n * sizeof(int32_t));
    judge->rewards = memory_alloc((size_t)judge->at_once * sizeof(float));
    if (number) judge->numbers = memory_alloc(n * sizeof(float));
    return judge;
}

static void put_row(const ModelJudge *judge, int64_t row, const JudgedAnswer *answer) {
    int32_t *tokens = judge->tokens + row * judge->seq, *labels = judge->labels + row * judge->seq;
    int64_t asked = answer->n_asked, answered = answer->n_tokens;
    const int64_t least_asked = asked > 0;
    if (answered > judge->seq - least_asked) answered = judge->seq - least_asked;
    if (asked > judge->seq - answered) asked = judge->seq - answered;
    for (int64_t i = 0; i < judge->seq; i++) {
        tokens[i] = i < asked              ? (int32_t)answer->asked[answer->n_asked - asked + i]
                    : i < asked + answered ? (int32_t)answer->tokens[i - asked]
                                           : (int32_t)judge->pad;
        const int64_t at = judge->first ? 0 : asked + answered - 1;
        labels[i] = i == at ? 0 : DATASET_NO_LABEL;
    }
}

/* Of the rows that were put. */
static bool read_rewards(ModelJudge *judge, Diag *diag) {
    if (!judge->numbers) {
        return engine_row_scores(judge->engine, judge->tokens, judge->labels, judge->rewards, diag);
    }
    if (!engine_logits(judge->engine, judge->tokens, judge->numbers, diag)) return false;
    for (int64_t t = 0; t < judge->at_once * judge->seq; t++) {
        if (judge->labels[t] == DATASET_NO_LABEL) continue;
        judge->rewards[t / judge->seq] = judge->numbers[t];
    }
    return true;
}

/* Rows that are left over are the last answer again. */
bool model_judge_answers(ModelJudge *judge, const JudgedAnswer *answers, int n, float *out_rewards,
                         Diag *diag) {
    for (int64_t first = 0; first < n; first += judge->at_once) {
        for (int64_t row = 0; row < judge->at_once; row++) {
            put_row(judge, row, &answers[first + row < n ? first + row : n - 1]);
        }
        if (!read_rewards(judge, diag)) {
            return false;
        }
        for (int64_t row = 0; row < judge->at_once && first + row < n; row++) {
            out_rewards[first + row] = judge->rewards[row];
            if (isfinite(judge->rewards[row])) continue;
            diag_error(diag, NO_LOC, "--reward-model: a reward is not finite; wrong weights?");
            return false;
        }
    }
    return true;
}

void model_judge_close(ModelJudge *judge) {
    if (!judge) return;
    engine_destroy(judge->engine);
    free(judge->tokens);
    free(judge->labels);
    free(judge->rewards);
    free(judge->numbers);
    free(judge);
}
