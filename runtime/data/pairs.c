#include "runtime/data/pairs.h"

#include "runtime/data/token_mask.h"

#include <inttypes.h>

typedef struct Document {
    size_t begin, answer, end; /* prompt, completion; what follows that counts for nothing */
} Document;

static bool counts(const TokenBuffer *buffer, size_t i) {
    return buffer->marks[i] & TOKEN_COUNTS;
}

/* From token `begin` on; gives where the next one begins. */
static size_t find_document(const TokenBuffer *buffer, size_t begin, Document *out) {
    size_t next = begin + 1;
    while (next < buffer->n_tokens && !(buffer->marks[next] & TOKEN_BEGINS)) next++;
    *out = (Document){begin, next, next};
    while (out->end > begin && !counts(buffer, out->end - 1)) out->end--;
    out->answer = out->end;
    while (out->answer > begin && counts(buffer, out->answer - 1)) out->answer--;
    return next;
}

static bool is_pair(const Document *document) {
    return document->begin < document->answer && document->answer < document->end;
}

/* A text into `room` tokens of the window at `at`, ended by eos; false: its end is lost. */
static bool put_text(TokenBuffer *to, size_t at, size_t room, const TokenBuffer *from, size_t begin,
                     size_t end, const PairOptions *options, unsigned char mark, int64_t *n_put) {
    size_t n = end - begin;
    if (n > 0 && token_buffer_at(from, end - 1) == options->eos) n--;
    bool fits = n < room;
    if (!fits) n = room - 1;
    for (size_t i = 0; i < room; i++) {
        uint32_t token = i < n    ? token_buffer_at(from, begin + i)
                         : i == n ? options->eos
                                  : options->pad;
        token_buffer_set(to, at + i, token);
        to->marks[at + i] = i <= n ? mark : 0;
    }
    *n_put += (int64_t)n + 1;
    return fits;
}

static void put_pair(TokenBuffer *to, size_t at, const TokenBuffer *from, const Document *document,
                     const PairOptions *options, PairTotals *totals) {
    size_t source = (size_t)options->source;
    bool whole = put_text(to, at, source, from, document->begin, document->answer, options, 0,
                          &totals->n_source);
    whole &= put_text(to, at + source, (size_t)options->seq, from, document->answer, document->end,
                      options, TOKEN_COUNTS, &totals->n_target);
    to->marks[at] |= TOKEN_BEGINS;
    totals->n_cut += !whole;
}

void pair_add_totals(PairTotals *sum, const PairTotals *more) {
    sum->n_pairs += more->n_pairs;
    sum->n_cut += more->n_cut;
    sum->n_left_out += more->n_left_out;
    sum->n_source += more->n_source;
    sum->n_target += more->n_target;
}

bool pair_documents(TokenBuffer *buffer, const PairOptions *options, PairTotals *out, Diag *diag) {
    const size_t row = (size_t)(options->source + options->seq);
    TokenBuffer windows = {0};
    Document document;
    *out = (PairTotals){0};
    for (size_t at = 0; at < buffer->n_tokens;) {
        at = find_document(buffer, at, &document);
        out->n_pairs += is_pair(&document);
        out->n_left_out += !is_pair(&document);
    }
    if (out->n_pairs == 0) {
        diag_error(diag, NO_LOC,
                   "no prompt with a completion among %" PRId64
                   " documents: the encoder reads prompts, as of lines {\"prompt\": ..., "
                   "\"completion\": ...}",
                   out->n_left_out);
        return false;
    }
    if (!token_buffer_create(&windows, buffer->token_bytes, (size_t)out->n_pairs * row, diag)) {
        return false;
    }
    size_t to = 0;
    for (size_t at = 0; at < buffer->n_tokens;) {
        at = find_document(buffer, at, &document);
        if (!is_pair(&document)) continue;
        put_pair(&windows, to, buffer, &document, options, out);
        to += row;
    }
    token_buffer_release(buffer);
    *buffer = windows;
    return true;
}
