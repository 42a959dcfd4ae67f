#include "runtime/decoder.h"

#include "ir/base/clock.h"
#include "runtime/engine_internal.h"

#include <string.h>

enum {
    NOWHERE = -1, /* the place of what is there to fill a chunk up */
    MOST_FEW = 2  /* runs of few positions that cost less than one of many */
};

static void prepare_images(Decoder *d, const Plan *plan, Arena *arena) {
    const Graph *graph = plan->programs[0].graph;
    const Node *pixels = decode_input_of(graph, DECODE_LOOK, DECODE_PIXELS);
    const Node *places = decode_input_of(graph, DECODE_LOOK, DECODE_PLACES);
    if (!pixels || !places) BUG("a plan that looks at nothing");
    d->pixels = type_elements(&pixels->types[0]);
    d->slots = type_elements(&places->types[0]);
    d->placed = ARENA_ARRAY(arena, int32_t, d->sequences * (d->context + 1));
    d->seen = ARENA_ARRAY(arena, float, engine_decoded_numbers(d->engine, DECODE_LOOK));
    d->looked = ARENA_ARRAY(arena, bool, d->sequences);
    d->looks = ARENA_ARRAY(arena, bool, d->sequences);
}

Decoder *decoder_create(Engine *engine, const Plan *plan, Arena *arena) {
    Decoder *decoder = ARENA_NEW(arena, Decoder);
    *decoder = (Decoder){.engine = engine,
                         .sequences = engine_sequences(engine),
                         .context = plan->context,
                         .chunk = plan->seq,
                         .vocab = plan->vocab,
                         .separator = plan->separator,
                         .image_token = plan->image_token};
    if (plan->n_chunks > DECODE_SCORE) {
        decoder->scored = plan->context < DECODE_SCORED ? plan->context : DECODE_SCORED;
    }
    decoder->states = engine_keeps_states(engine);
    decoder->piece = decoder->chunk < DECODE_PIECE ? decoder->chunk : DECODE_PIECE;
    if (plan->n_chunks > DECODE_READ_TOGETHER && !decoder->states) {
        decoder->pieces = decoder->chunk / decoder->piece;
        decoder->logits = ARENA_ARRAY(arena, float, decoder->pieces * plan->vocab);
        decoder->behind = ARENA_ARRAY(arena, float *, decoder->pieces);
    }
    decoder->lengths = ARENA_ARRAY(arena, int64_t, decoder->sequences);
    decoder->starts = ARENA_ARRAY(arena, int64_t, decoder->sequences);
    const int64_t together = decoder->sequences * (decoder->scored ? decoder->scored : 1);
    int64_t most = decoder->chunk > together ? decoder->chunk : together;
    if (decoder->image_token >= 0) {
        prepare_images(decoder, plan, arena);
        if (decoder->slots > most) most = decoder->slots;
    }
    for (int i = 0; i < N_DECODE_INPUTS; i++) {
        decoder->inputs[i] = ARENA_ARRAY(arena, int32_t, most);
    }
    return decoder;
}

int64_t held_tokens_common(const HeldTokens *held, const int32_t *tokens, int64_t n) {
    int64_t at = 0;
    while (at < held->count && at < n && held->tokens[at] == tokens[at]) at++;
    return at;
}

int64_t decoder_find_start(const Decoder *d, const int32_t *tokens, int64_t n) {
    while (n > 0 && tokens[n - 1] != d->separator) n--;
    return n;
}

/* Position i of the chunk's inputs is the sequence's next token. */
static void put_token(Decoder *d, int64_t i, int64_t sequence, int32_t token) {
    int64_t place = d->lengths[sequence]++;
    d->inputs[DECODE_TOKENS][i] = token;
    d->inputs[DECODE_PLACES][i] = (int32_t)place;
    d->inputs[DECODE_STARTS][i] = (int32_t)d->starts[sequence];
    d->inputs[DECODE_DOCUMENT_PLACES][i] = (int32_t)(place - d->starts[sequence]);
    d->inputs[DECODE_OCCURRENCES][i] = NOWHERE;
    if (d->image_token >= 0) {
        int32_t *placed = d->placed + sequence * (d->context + 1) + place;
        const bool stands = token == d->image_token;
        if (place == 0) d->looked[sequence] = d->looks[sequence];
        placed[1] = placed[0] + stands;
        if (stands && d->looked[sequence]) d->inputs[DECODE_OCCURRENCES][i] = placed[0];
    }
    if (token == d->separator) d->starts[sequence] = place + 1;
}

static void put_nothing(Decoder *d, int64_t i) {
    d->inputs[DECODE_TOKENS][i] = d->inputs[DECODE_STARTS][i] = 0;
    d->inputs[DECODE_PLACES][i] = d->inputs[DECODE_DOCUMENT_PLACES][i] = NOWHERE;
    d->inputs[DECODE_OCCURRENCES][i] = NOWHERE;
}

static bool run(Decoder *d, int chunk, float *out_logits, Diag *diag) {
    return engine_decode(d->engine, chunk, (const int32_t *const *)d->inputs, out_logits, diag);
}

bool decoder_look(Decoder *d, int64_t sequence, const int32_t *pixels, Diag *diag) {
    const double start = clock_now();
    const int32_t *inputs[N_DECODE_INPUTS];
    memcpy(inputs, d->inputs, sizeof(inputs));
    inputs[DECODE_PIXELS] = pixels;
    for (int64_t i = 0; i < d->slots; i++) d->inputs[DECODE_PLACES][i] = (int32_t)i;
    d->inputs[DECODE_ROWS][0] = (int32_t)sequence;
    d->inputs[DECODE_OCCURRENCES][0] = 0;
    const bool good = engine_decode(d->engine, DECODE_LOOK, inputs, d->seen, diag);
    d->looks[sequence] = d->looked[sequence] = good;
    d->look_seconds += clock_now() - start;
    d->n_looked++;
    return good;
}

int64_t decoder_count_few(const Decoder *d, int64_t count) {
    const int64_t most = MOST_FEW * DECODE_FEW;
    if (count <= most) return count;
    const int64_t left = count - (count - most + d->chunk - 1) / d->chunk * d->chunk;
    return left > 0 ? left : 0;
}

/* Tokens [from, end) of one read, in runs of a chunk that has `size` positions. */
static bool read_alone(Decoder *d, int chunk, int64_t size, const DecoderRead *read, int64_t from,
                       int64_t end, Diag *diag) {
    for (int64_t at = from, n; at < end; at += n) {
        n = end - at < size ? end - at : size;
        for (int64_t i = 0; i < n; i++) put_token(d, i, read->sequence, read->tokens[at + i]);
        for (int64_t i = n; i < size; i++) put_nothing(d, i);
        d->inputs[DECODE_ROWS][0] = (int32_t)read->sequence;
        d->inputs[DECODE_LAST][0] = (int32_t)(n - 1);
        if (!run(d, chunk, read->logits, diag)) return false;
    }
    return true;
}

/* What is read many at a time ends here, and how much of it whole chunks have. */
static int64_t many_end(const DecoderRead *read) {
    return read->count - read->few;
}

static int64_t whole_end(const Decoder *d, const DecoderRead *read) {
    return many_end(read) / d->chunk * d->chunk;
}

/* Fills a row with what comes next behind token *at of read *r. False: nothing is left. */
static bool fill_row(Decoder *d, int64_t row, const DecoderRead *reads, int64_t n, int64_t *r,
                     int64_t *at) {
    while (*r < n && *at == many_end(&reads[*r])) {
        if (++*r < n) *at = whole_end(d, &reads[*r]);
    }
    if (*r == n) return false;
    const DecoderRead *read = &reads[*r];
    const int64_t left = many_end(read) - *at, size = left < d->piece ? left : d->piece;
    for (int64_t i = 0; i < d->piece; i++) {
        if (i < size) {
            put_token(d, row * d->piece + i, read->sequence, read->tokens[*at + i]);
        } else {
            put_nothing(d, row * d->piece + i);
        }
    }
    d->inputs[DECODE_ROWS][row] = (int32_t)read->sequence;
    d->inputs[DECODE_LAST][row] = (int32_t)(size - 1);
    *at += size;
    d->behind[row] = *at == read->count ? read->logits : NULL;
    return true;
}

/* What whole chunks leave of the reads shares chunks. */
static bool read_pieces(Decoder *d, const DecoderRead *reads, int64_t n, Diag *diag) {
    const size_t vocab = (size_t)d->vocab;
    for (int64_t r = 0, at = whole_end(d, &reads[0]);;) {
        int64_t rows = 0;
        while (rows < d->pieces && fill_row(d, rows, reads, n, &r, &at)) rows++;
        if (rows == 0) return true;
        for (int64_t row = rows; row < d->pieces; row++) {
            d->inputs[DECODE_ROWS][row] = d->inputs[DECODE_LAST][row] = 0;
            for (int64_t i = 0; i < d->piece; i++) put_nothing(d, row * d->piece + i);
        }
        if (!run(d, DECODE_READ_TOGETHER, d->logits, diag)) return false;
        for (int64_t row = 0; row < rows; row++) {
            if (!d->behind[row]) continue;
            memcpy(d->behind[row], d->logits + (size_t)row * vocab, vocab * sizeof(float));
        }
    }
}

static bool read_all(Decoder *d, const DecoderRead *reads, int64_t n, Diag *diag) {
    const int64_t few = DECODE_FEW < d->chunk ? DECODE_FEW : d->chunk;
    int64_t n_rests = 0;
    for (int64_t i = 0; i < n; i++) n_rests += many_end(&reads[i]) > whole_end(d, &reads[i]);
    const bool together = d->pieces > 1 && n_rests > 1;
    bool fine = true;
    for (int64_t i = 0; i < n && fine; i++) {
        const int64_t end = together ? whole_end(d, &reads[i]) : many_end(&reads[i]);
        fine = read_alone(d, DECODE_READ, d->chunk, &reads[i], 0, end, diag);
    }
    if (fine && together) fine = read_pieces(d, reads, n, diag);
    for (int64_t i = 0; i < n && fine; i++) {
        fine = read_alone(d, DECODE_READ_FEW, few, &reads[i], many_end(&reads[i]), reads[i].count,
                          diag);
    }
    return fine;
}

bool decoder_read_all(Decoder *d, const DecoderRead *reads, int64_t n, Diag *diag) {
    double start = clock_now();
    for (int64_t i = 0; i < n; i++) {
        const int64_t count = reads[i].count;
        if (count < 1 || count > d->context - d->lengths[reads[i].sequence] || reads[i].few < 0 ||
            reads[i].few > count) {
            BUG("%d tokens", (int)count);
        }
        d->n_read += count;
    }
    const bool fine = read_all(d, reads, n, diag);
    d->read_seconds += clock_now() - start;
    return fine;
}

bool decoder_read(Decoder *d, int64_t sequence, const int32_t *tokens, int64_t count,
                  float *out_logits, Diag *diag) {
    const DecoderRead read = {sequence, tokens, count, decoder_count_few(d, count), out_logits};
    return decoder_read_all(d, &read, 1, diag);
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
    if (count < d->lengths[from] && d->states) return false;
    if (from != to) engine_copy_sequence(d->engine, from, to, count);
    if (from != to && d->placed) {
        const int64_t pitch = d->context + 1;
        memcpy(d->placed + to * pitch, d->placed + from * pitch,
               (size_t)(count + 1) * sizeof(*d->placed));
        d->looked[to] = d->looked[from]; /* also where that was cleared: its caches are there */
        d->looks[to] = d->looks[from];
    }
    d->lengths[to] = count;
    d->starts[to] = start;
    return true;
}

void decoder_copy(Decoder *d, int64_t from, int64_t to) {
    decoder_copy_first(d, from, to, d->lengths[from], d->starts[from]);
}

void decoder_clear(Decoder *d, int64_t sequence) {
    d->lengths[sequence] = d->starts[sequence] = 0;
    if (d->looks) d->looks[sequence] = false;
}

int64_t decoder_cut(Decoder *d, int64_t sequence, int64_t length) {
    bool behind = length < d->lengths[sequence] && d->states;
    if (d->starts[sequence] > 0 || behind) decoder_clear(d, sequence);
    if (length < d->lengths[sequence]) d->lengths[sequence] = length;
    return d->lengths[sequence];
}
