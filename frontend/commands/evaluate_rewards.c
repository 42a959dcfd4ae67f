#include "frontend/commands/evaluate_rewards.h"

#include "ir/base/json.h"
#include "ir/base/memory.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

static bool evaluate_source(RewardEvaluation *e, int source, Diag *diag) {
    const TrainPart *part = &e->data->val[source];
    const int64_t n = dataset_count_windows(part->data);
    SourceRewards *to = &e->sources[source];
    float *rewards = memory_alloc((size_t)n * sizeof(*rewards));
    PairScoring how = {
        .engine = e->engine, .plan = e->data->plan, .line = e->line, .all = n, .rewards = true};
    bool good = train_pairs_rewards(&how, part->data, rewards, diag);
    *to = (SourceRewards){.n = n, .least = INFINITY, .most = -INFINITY};
    for (int64_t i = 0; good && i < n; i++) {
        double reward = (double)rewards[i];
        if (!isfinite(reward)) {
            diag_error(diag, NO_LOC, "evaluate: a reward is not finite; wrong weights?");
            good = false;
            break;
        }
        to->mean += reward / (double)n;
        to->least = fmin(to->least, reward);
        to->most = fmax(to->most, reward);
        strbuf_printf(&e->predictions, "{\"reward\": %.7g", reward);
        if (e->data->n_val > 1) {
            strbuf_put(&e->predictions, ", \"path\": ");
            json_put_text(&e->predictions, part->path);
        }
        strbuf_put(&e->predictions, "}\n");
    }
    free(rewards);
    return good;
}

bool evaluate_rewards(RewardEvaluation *e, Diag *diag) {
    e->predictions = strbuf_create();
    e->sources = ARENA_ARRAY(e->data->args->arena, SourceRewards, e->data->n_val);
    for (int i = 0; i < e->data->n_val; i++) {
        if (!evaluate_source(e, i, diag)) return false;
    }
    return true;
}

void evaluate_rewards_put(const RewardEvaluation *e, StrBuf *out) {
    int64_t n = 0;
    for (int i = 0; i < e->data->n_val; i++) {
        const SourceRewards *r = &e->sources[i];
        strbuf_printf(out, "rewards %.4f in the mean, from %.4f to %.4f; %s: %" PRId64 " answers\n",
                      r->mean, r->least, r->most, e->data->val[i].name, r->n);
        n += r->n;
    }
    strbuf_printf(out, "wrote   %s: of %" PRId64 " answers\n",
                  cli_text(e->data->args, OPT_PREDICTIONS, ""), n);
}

void evaluate_rewards_put_json(const RewardEvaluation *e, StrBuf *out) {
    strbuf_put(out, "\"rewards\": [");
    for (int i = 0; i < e->data->n_val; i++) {
        const SourceRewards *r = &e->sources[i];
        strbuf_put(out, i ? ", {\"path\": " : "{\"path\": ");
        json_put_text(out, e->data->val[i].path);
        strbuf_printf(out,
                      ", \"answers\": %" PRId64 ", \"mean\": %.9g, \"least\": %.9g, "
                      "\"most\": %.9g}",
                      r->n, r->mean, r->least, r->most);
    }
    strbuf_put(out, "]");
}

void evaluate_rewards_release(RewardEvaluation *e) {
    strbuf_destroy(&e->predictions);
}
