#include "runtime/decoder.h"

#include "ir/base/clock.h"
#include "runtime/engine_internal.h"

enum {
    NOWHERE = -1, /* the place of what is there to fill a chunk up */
    MOST_FEW = 2  /* runs of few positions that cost less than one of many */
};

Decoder *decoder_create(Engine *engine, const Plan *plan, Arena *arena) {
    Decoder *decoder = ARENA_NEW(arena, Decoder);
    *decoder = (Decoder){.engine = engine,
                         .sequences = engine_sequences(engine),
                         .context = plan->context,
                         .chunk = plan->seq,
                         .vocab = plan->vocab,
                         .separator = plan->separator};
    if (plan->n_chunks > DECODE_SCORE) {
        decoder->scored = plan->context < DECODE_SCORED ? plan->context : DECODE_SCORED;
    }
    decoder->lengths = ARENA_ARRAY(arena, int64_t, decoder->sequences);
    decoder->starts = ARENA_ARRAY(arena, int64_t, decoder->sequences);
    const int64_t together = decoder->sequences * (decoder->scored ? decoder->scored : 1);
    const int64_t most = decoder->chunk > together ? decoder->chunk : together;
    for (int i = 0; i < N_DECODE_INPUTS; i++) {
        decoder->inputs[i] = ARENA_ARRAY(arena, int32_t, most);
    }
    return decoder;
}

/* Position i of the chunk's inputs is the sequence's next token. */
static void put_token(Decoder *d, int64_t i, int64_t sequence, int32_t token) {
    int64_t place = d->lengths[sequence]++;
    d->inputs[DECODE_TOKENS][i] = token;
    d->inputs[DECODE_PLACES][i] = (int32_t)place;
    d->inputs[DECODE_STARTS][i] = (int32_t)d->starts[sequence];
    d->inputs[DECODE_DOCUMENT_PLACES][i] = (int32_t)(place - d->starts[sequence]);
    if (token == d->separator) d->starts[sequence] = place + 1;
}

static void put_nothing(Decoder *d, int64_t i) {
    d->inputs[DECODE_TOKENS][i] = d->inputs[DECODE_STARTS][i] = 0;
    d->inputs[DECODE_PLACES][i] = d->inputs[DECODE_DOCUMENT_PLACES][i] = NOWHERE;
}

static bool run(Decoder *d, int chunk, float *out_logits, Diag *diag) {
    return engine_decode(d->engine, chunk, (const int32_t *const *)d->inputs, out_logits, diag);
}

bool decoder_read(Decoder *d, int64_t sequence, const int32_t *tokens, int64_t count,
                  float *out_logits, Diag *diag) {
    if (count < 1 || count > d->context - d->lengths[sequence]) BUG("%d tokens", (int)count);
    double start = clock_now();
    d->inputs[DECODE_ROWS][0] = (int32_t)sequence;
    for (int64_t at = 0, n; at < count; at += n) {
        bool few = count - at <= MOST_FEW * DECODE_FEW;
        int64_t size = few && DECODE_FEW < d->chunk ? DECODE_FEW : d->chunk;
        n = count - at < size ? count - at : size;
        for (int64_t i = 0; i < n; i++) put_token(d, i, sequence, tokens[at + i]);
        for (int64_t i = n; i < size; i++) put_nothing(d, i);
        d->inputs[DECODE_LAST][0] = (int32_t)(n - 1);
        if (!run(d, few ? DECODE_READ_FEW : DECODE_READ, out_logits, diag)) return false;
    }
    d->n_read += count;
    d->read_seconds += clock_now() - start;
    return true;
}

bool decoder_write(Decoder *d, const int32_t *tokens, float *out_logits, Diag *diag) {
    double start = clock_now();
    for (int64_t s = 0; s < d->sequences; s++) {
        d->inputs[DECODE_ROWS][s] = (int32_t)s;
        d->inputs[DECODE_LAST][s] = 0;
        bool idle = tokens[s] < 0 || d->lengths[s] == d->context;
        if (idle) {
            put_nothing(d, s);
        } else {
            put_token(d, s, s, tokens[s]);
            d->n_written++;
        }
    }
    bool fine = run(d, DECODE_WRITE, out_logits, diag);
    d->write_seconds += clock_now() - start;
    return fine;
}

bool decoder_score(Decoder *d, const int32_t *const *tokens, const int64_t *counts,
                   float *out_logits, Diag *diag) {
    for (int64_t s = 0; s < d->sequences; s++) {
        if (counts[s] > d->scored || counts[s] > d->context - d->lengths[s]) {
            BUG("%d tokens", (int)counts[s]);
        }
        d->inputs[DECODE_ROWS][s] = (int32_t)s;
        d->inputs[DECODE_LAST][s] = 0;
        for (int64_t i = 0; i < d->scored; i++) {
            if (i < counts[s]) {
                put_token(d, s * d->scored + i, s, tokens[s][i]);
            } else {
                put_nothing(d, s * d->scored + i);
            }
        }
    }
    return run(d, DECODE_SCORE, out_logits, diag);
}

bool decoder_copy_first(Decoder *d, int64_t from, int64_t to, int64_t count, int64_t start) {
    if (count < d->lengths[from] && engine_keeps_states(d->engine)) return false;
    if (from != to) engine_copy_sequence(d->engine, from, to, count);
    d->lengths[to] = count;
    d->starts[to] = start;
    return true;
}

void decoder_copy(Decoder *d, int64_t from, int64_t to) {
    decoder_copy_first(d, from, to, d->lengths[from], d->starts[from]);
}

void decoder_clear(Decoder *d, int64_t sequence) {
    d->lengths[sequence] = d->starts[sequence] = 0;
}

int64_t decoder_cut(Decoder *d, int64_t sequence, int64_t length) {
    bool behind = length < d->lengths[sequence] && engine_keeps_states(d->engine);
    if (d->starts[sequence] > 0 || behind) decoder_clear(d, sequence);
    if (length < d->lengths[sequence]) d->lengths[sequence] = length;
    return d->lengths[sequence];
}
