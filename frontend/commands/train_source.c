#include "frontend/commands/train_source.h"

#include "ir/op.h"
#include "runtime/data/dataset.h"

#include <inttypes.h>
#include <stdio.h>

static bool is_token(const Plan *plan, int64_t token) {
    return token >= 0 && token < plan->vocab;
}

static bool open_spans(const Node *share, TrainSource *out, Diag *diag) {
    if (!span_sizes(&out->spans, &out->sizes)) {
        diag_error(diag, share->loc,
                   "an encoder of %" PRId64 " positions has no room for two tokens, a hidden span "
                   "and an end: --set source=",
                   out->spans.source);
        return false;
    }
    if (out->sizes.target > out->spans.seq) {
        diag_error(diag, share->loc,
                   "of %" PRId64 " tokens, %" PRId64 " are hidden in %" PRId64
                   " spans: the decoder says %" PRId64 " tokens and has %" PRId64
                   " positions: plan with --set seq=%" PRId64 ", or a smaller source",
                   out->sizes.window, out->sizes.hidden, out->sizes.spans, out->sizes.target,
                   out->spans.seq, out->sizes.target);
        return false;
    }
    if (out->spans.sentinel - out->sizes.spans + 1 < 0) {
        diag_error(diag, share->loc,
                   "%" PRId64 " spans are hidden, and there are %d tokens from the first that "
                   "stands for one, %d, downwards",
                   out->sizes.spans, out->spans.sentinel + 1, out->spans.sentinel);
        return false;
    }
    out->window = out->sizes.window;
    return true;
}

bool train_source_open(const Plan *plan, const Node *share, TrainSource *out, Arena *arena,
                       Diag *diag) {
    int64_t source = plan_source(plan);
    *out = (TrainSource){.window = plan->seq};
    if (source == 0) return true;
    if (!share || !node_attr(share, ATTR_start)) {
        diag_error(diag, share ? share->loc : NO_LOC,
                   "the plan's model has an encoder, and its loss does not say what that reads: "
                   "from_source = { start, eos } for nn.cross_entropy");
        return false;
    }
    int64_t start = node_int(share, ATTR_start, -1), eos = node_int(share, ATTR_eos, -1);
    int64_t pad = node_int(share, ATTR_pad, start), mask = node_int(share, ATTR_mask, 0);
    out->reads = true;
    out->hides = node_attr(share, ATTR_rate) != NULL;
    out->spans = (Spans){.rate = node_float(share, ATTR_rate, 0.5),
                         .mean = node_float(share, ATTR_span, 1),
                         .sentinel = (int32_t)mask,
                         .start = (int32_t)start,
                         .eos = (int32_t)eos,
                         .pad = (int32_t)pad,
                         .source = source,
                         .seq = plan->seq};
    bool known =
        is_token(plan, start) && is_token(plan, eos) && is_token(plan, pad) && is_token(plan, mask);
    if (!known || !(out->spans.rate > 0 && out->spans.rate < 1) || !(out->spans.mean >= 1)) {
        diag_error(diag, share->loc,
                   "label_share: rate %g, span %g and the tokens %" PRId64 ", %" PRId64 ", %" PRId64
                   " and %" PRId64 ": must be a share, a length and tokens of the %" PRId64,
                   out->spans.rate, out->spans.mean, mask, start, eos, pad, plan->vocab);
        return false;
    }
    out->window = plan_row(plan);
    if (out->hides && !open_spans(share, out, diag)) return false;
    out->tokens = ARENA_ARRAY(arena, int32_t, out->window);
    out->labels = ARENA_ARRAY(arena, int32_t, out->window);
    return true;
}

/* What stands for a span is no token of a text, and T5's own where the tokenizer has them. */
bool train_source_check_tokenizer(const TrainSource *source, const Tokenizer *tokenizer,
                                  Diag *diag) {
    if (!source->hides || !tokenizer) return true;
    const AddedToken *first = added_tokens_by_text(&tokenizer->added, "<extra_id_0>");
    if (first && source->spans.sentinel != (int64_t)first->id) {
        diag_error(diag, NO_LOC,
                   "--tokenizer: the plan puts token %d in the place of the first hidden span, but "
                   "its %s is %u: plan with --set sentinel=%u",
                   source->spans.sentinel, first->text, first->id, first->id);
        return false;
    }
    for (int64_t i = 0; i < source->sizes.spans; i++) {
        uint32_t token = (uint32_t)(source->spans.sentinel - i);
        if (token >= tokenizer->n_ids || tokenizer_is_special(tokenizer, token)) continue;
        diag_error(
            diag, NO_LOC,
            "--tokenizer: token %u, which the plan puts in the place of hidden spans, is one "
            "of texts; plan with --set sentinel=, the last of %" PRId64
            " special tokens or of as many beyond its %u, and --set vocab= for them",
            token, source->sizes.spans, tokenizer->n_ids);
        return false;
    }
    return true;
}

bool train_source_check_end(const TrainSource *source, uint32_t last, Diag *diag) {
    if (last == (uint32_t)source->spans.eos) return true;
    diag_error(diag, NO_LOC,
               "completions end with the token %u by --eot, and in the plan with %d: plan with "
               "--set eos=%u",
               last, source->spans.eos, last);
    return false;
}

PairOptions train_source_pair_options(const TrainSource *source) {
    return (PairOptions){.source = source->spans.source,
                         .seq = source->spans.seq,
                         .eos = (uint32_t)source->spans.eos,
                         .pad = (uint32_t)source->spans.pad};
}

bool train_source_fill(const TrainSource *s, const char *path, uint64_t key, int32_t *tokens,
                       int32_t *labels, Diag *diag) {
    const int64_t n_source = s->spans.source;
    int32_t last = s->spans.sentinel, first = last - (int32_t)s->sizes.spans + 1;
    for (int64_t i = 0; i < n_source && !s->hides; i++) tokens[i] = s->tokens[i];
    if (!s->hides) {
        int64_t n = 0;
        while (n < s->spans.seq && s->labels[n_source - 1 + n] != DATASET_NO_LABEL) n++;
        span_shift(&s->spans, s->labels + n_source - 1, n, tokens + n_source, labels);
        return true;
    }
    for (int64_t i = 0; i < s->window; i++) {
        if (s->tokens[i] < first || s->tokens[i] > last) continue;
        diag_error(diag, (SourceLoc){path, 0},
                   "has the token %d, and those from %d to %d stand for hidden spans: plan with "
                   "--set sentinel=, the last of as many tokens that no text has",
                   s->tokens[i], first, last);
        return false;
    }
    span_corrupt(&s->spans, &s->sizes, key, s->tokens, tokens, tokens + n_source, labels);
    return true;
}

void train_source_print(const TrainSource *s) {
    if (s->hides) {
        printf("spans   %.3g %% of %" PRId64 " tokens are hidden in %" PRId64
               " spans: the encoder reads %" PRId64 ", the decoder says %" PRId64 "\n",
               100 * s->spans.rate, s->sizes.window, s->sizes.spans, s->sizes.source,
               s->sizes.target);
    } else if (s->reads) {
        const PairTotals *p = &s->pairs;
        printf("pairs   %" PRId64 " prompts of %.1f tokens in the mean, completions of %.1f",
               p->n_pairs, (double)p->n_source / (double)p->n_pairs,
               (double)p->n_target / (double)p->n_pairs);
        if (p->n_cut) printf("; %" PRId64 " of them are cut", p->n_cut);
        if (p->n_left_out) printf("; %" PRId64 " documents are none", p->n_left_out);
        printf("\n");
    }
}
