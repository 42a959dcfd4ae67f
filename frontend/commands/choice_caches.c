#include "frontend/commands/choice_caches.h"

#include "frontend/commands/choice_scores.h"

#include <string.h>

struct ChoiceCaches {
    Decoder *decoder;
    HeldTokens *held; /* [sequences]: all that each has */
    float *logits;    /* [sequences, scored, vocab] */
    float *after;     /* [sequences, vocab]: behind where each text's beginning was read to */
    const int32_t **tokens;
    int64_t *counts, *done; /* [sequences]: of a round, and of all before */
};

ChoiceCaches *choice_caches_create(Decoder *decoder, Arena *arena) {
    ChoiceCaches *c = ARENA_NEW(arena, ChoiceCaches);
    const int64_t n = decoder->sequences, vocab = decoder->vocab;
    *c = (ChoiceCaches){.decoder = decoder,
                        .held = ARENA_ARRAY(arena, HeldTokens, n),
                        .logits = ARENA_ARRAY(arena, float, n * decoder->scored * vocab),
                        .after = ARENA_ARRAY(arena, float, n *vocab),
                        .tokens = ARENA_ARRAY(arena, const int32_t *, n),
                        .counts = ARENA_ARRAY(arena, int64_t, n),
                        .done = ARENA_ARRAY(arena, int64_t, n)};
    for (int64_t i = 0; i < n; i++) {
        c->held[i].tokens = ARENA_ARRAY(arena, int32_t, decoder->context);
    }
    return c;
}

void choice_caches_clear(ChoiceCaches *c) {
    for (int64_t i = 0; i < c->decoder->sequences; i++) {
        decoder_clear(c->decoder, i);
        c->held[i].count = 0;
    }
}

int64_t choice_caches_bytes(const Decoder *d) {
    const int64_t of_each =
        (d->scored + 1) * d->vocab * (int64_t)sizeof(float) + d->context * (int64_t)sizeof(int32_t);
    return d->sequences * of_each;
}

/* Sequence i begins as the text does, up to as many of its first `n` tokens as any has; returns
 * how many. A layer with a state has all that was read, or nothing. */
static int64_t take_common(ChoiceCaches *c, int64_t i, const int32_t *tokens, int64_t n) {
    Decoder *d = c->decoder;
    int64_t from = i, most = 0;
    for (int64_t k = 0; k < d->sequences; k++) {
        const int64_t common = held_tokens_common(&c->held[k], tokens, n);
        if (common > most || (common == most && k == i)) from = k, most = common;
    }
    if (most == 0 || !decoder_copy_first(d, from, i, most, decoder_find_start(d, tokens, most))) {
        decoder_clear(d, i);
        most = 0;
    }
    memmove(c->held[i].tokens, tokens, (size_t)most * sizeof(*tokens));
    return c->held[i].count = most;
}

/* The text's beginning, and what follows it: from a text of this call that begins alike, or read.
 */
static bool read_beginning(ChoiceCaches *c, int64_t i, const ScoredText *text, Diag *diag) {
    Decoder *d = c->decoder;
    const int64_t n = text->first + 1;
    const size_t row = (size_t)d->vocab;
    for (int64_t k = 0; k < i; k++) {
        const HeldTokens *held = &c->held[k];
        if (held->count != n || held_tokens_common(held, text->tokens, n) < n ||
            !decoder_copy_first(d, k, i, n, d->starts[k])) {
            continue;
        }
        memcpy(c->after + (size_t)i * row, c->after + (size_t)k * row, row * sizeof(float));
        memcpy(c->held[i].tokens, text->tokens, (size_t)n * sizeof(int32_t));
        c->held[i].count = n;
        return true;
    }
    const int64_t common = take_common(c, i, text->tokens, n - 1);
    memcpy(c->held[i].tokens, text->tokens, (size_t)n * sizeof(int32_t));
    c->held[i].count = n;
    return decoder_read(d, i, text->tokens + common, n - common, c->after + (size_t)i * row, diag);
}

static void add_label(ScoredText *text, int64_t label, const float *logits, int64_t vocab) {
    const int32_t token = text->labels[label];
    text->score += log_probability(logits, vocab, token);
    text->greedy = text->greedy && is_likeliest(logits, vocab, token);
}

/* A round of the ends: as many tokens of each as are scored at once. *out_any: there were some. */
static bool score_round(ChoiceCaches *c, ScoredText *texts, int n, bool *out_any, Diag *diag) {
    Decoder *d = c->decoder;
    *out_any = false;
    for (int64_t i = 0; i < d->sequences; i++) {
        const int64_t left = i < n ? texts[i].n - 1 - texts[i].first - c->done[i] : 0;
        c->counts[i] = left < d->scored ? left : d->scored;
        if (c->counts[i]) c->tokens[i] = texts[i].tokens + texts[i].first + 1 + c->done[i];
        *out_any |= c->counts[i] > 0;
    }
    if (!*out_any) return true;
    if (!decoder_score(d, c->tokens, c->counts, c->logits, diag)) return false;
    for (int i = 0; i < n; i++) {
        HeldTokens *held = &c->held[i];
        for (int64_t k = 0; k < c->counts[i]; k++) {
            held->tokens[held->count++] = c->tokens[i][k];
            add_label(&texts[i], ++c->done[i], c->logits + (size_t)((i * d->scored + k) * d->vocab),
                      d->vocab);
        }
    }
    return true;
}

bool choice_caches_score(ChoiceCaches *c, ScoredText *texts, int n, Diag *diag) {
    const int64_t vocab = c->decoder->vocab;
    for (int i = 0; i < n; i++) {
        if (!read_beginning(c, i, &texts[i], diag)) return false;
        texts[i].score = 0;
        texts[i].greedy = true;
        c->done[i] = 0;
        add_label(&texts[i], 0, c->after + (size_t)i * (size_t)vocab, vocab);
    }
    for (bool any = true; any;) {
        if (!score_round(c, texts, n, &any, diag)) return false;
    }
    return true;
}
