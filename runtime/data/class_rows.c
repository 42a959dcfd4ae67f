#include "runtime/data/class_rows.h"

#include "ir/base/memory.h"
#include "runtime/data/dataset.h"
#include "runtime/data/mix.h"
#include "runtime/data/token_mask.h"

#include <inttypes.h>
#include <stdlib.h>

typedef struct Text {
    size_t begin, length; /* without the class, which is behind it */
} Text;

void class_add_totals(ClassTotals *sum, const ClassTotals *more) {
    sum->n_texts += more->n_texts;
    sum->n_tokens += more->n_tokens;
    sum->n_cut += more->n_cut;
    sum->n_empty += more->n_empty;
}

static size_t count_documents(const TokenBuffer *buffer) {
    size_t n = 0;
    for (size_t i = 0; i < buffer->n_tokens; i++) n += (buffer->marks[i] & TOKEN_BEGINS) != 0;
    return n;
}

/* False: one has `pad` in it; reported. */
static bool find_texts(const TokenBuffer *buffer, const ClassRowOptions *options, Text *texts,
                       ClassTotals *out, Diag *diag) {
    int64_t number = 0;
    for (size_t begin = 0, next; begin < buffer->n_tokens; begin = next) {
        next = begin + 1;
        while (next < buffer->n_tokens && !(buffer->marks[next] & TOKEN_BEGINS)) next++;
        size_t length = next - begin - 1;
        number++;
        if (!(buffer->marks[next - 1] & TOKEN_COUNTS)) BUG("a text without a class");
        if (length == 0) {
            out->n_empty++;
            continue;
        }
        for (size_t i = begin; options->first && i < begin + length; i++) {
            if (token_buffer_at(buffer, i) != options->pad) continue;
            diag_error(diag, NO_LOC,
                       "text %" PRId64 " has the token %" PRIu32 ", which stands behind texts: "
                       "plan with --set padding=, a token that no text has",
                       number, options->pad);
            return false;
        }
        texts[out->n_texts++] = (Text){begin, length};
        out->n_tokens += (int64_t)length;
    }
    return true;
}

/* Fisher and Yates's, by a generator that is the same everywhere. */
static void shuffle(Text *texts, int64_t n) {
    for (int64_t i = n - 1; i > 0; i--) {
        int64_t k = (int64_t)(mix_bits((uint64_t)i) % (uint64_t)(i + 1));
        Text other = texts[k];
        texts[k] = texts[i];
        texts[i] = other;
    }
}

/* At `to`: what fits of the text, and its class. Returns how many tokens. */
static size_t put_text(TokenBuffer *windows, size_t to, const TokenBuffer *from, const Text *text,
                       const ClassRowOptions *options) {
    size_t kept = text->length < options->seq ? text->length : options->seq - 1;
    for (size_t i = 0; i < kept; i++) {
        token_buffer_set(windows, to + i, token_buffer_at(from, text->begin + i));
    }
    uint32_t last = token_buffer_at(from, text->begin + text->length - 1);
    if (kept < text->length && last == options->end) {
        token_buffer_set(windows, to + kept - 1, last);
    }
    token_buffer_set(windows, to + kept, token_buffer_at(from, text->begin + text->length));
    windows->marks[to] |= TOKEN_BEGINS;
    windows->marks[to + kept] |= TOKEN_COUNTS;
    return kept + 1;
}

static size_t room_of(const Text *text, const ClassRowOptions *options) {
    size_t whole = text->length + 1;
    return options->documents && whole < options->seq ? whole : options->seq;
}

bool class_rows(TokenBuffer *buffer, const ClassRowOptions *options, int64_t *counts, int n_classes,
                ClassTotals *out, Diag *diag) {
    Text *texts = memory_alloc((count_documents(buffer) + 1) * sizeof(*texts));
    TokenBuffer windows = {0};
    size_t n_room = 0, to = 0;
    *out = (ClassTotals){0};
    bool good = find_texts(buffer, options, texts, out, diag);
    if (good && out->n_texts == 0) {
        diag_error(diag, NO_LOC, "there is no text with a class");
        good = false;
    }
    for (int64_t i = 0; i < out->n_texts; i++) n_room += room_of(&texts[i], options);
    good = good && token_buffer_create(&windows, buffer->token_bytes, n_room, diag);
    if (good && options->shuffles) shuffle(texts, out->n_texts);
    for (int64_t i = 0; good && i < out->n_texts; i++) {
        size_t put = put_text(&windows, to, buffer, &texts[i], options);
        size_t room = room_of(&texts[i], options);
        uint32_t class = token_buffer_at(&windows, to + put - 1);
        if (class < (uint32_t)n_classes) counts[class]++;
        for (size_t k = put; k < room; k++) token_buffer_set(&windows, to + k, options->pad);
        out->n_cut += texts[i].length >= options->seq;
        to += room;
    }
    free(texts);
    if (!good) return false;
    token_buffer_release(buffer);
    *buffer = windows;
    return true;
}

void class_row_finish(int32_t *tokens, int32_t *labels, int64_t seq, bool first, int32_t pad) {
    for (int64_t i = 0; i < seq; i++) {
        int32_t class = labels[i];
        if (class == DATASET_NO_LABEL) continue;
        if (i + 1 < seq) tokens[i + 1] = pad;
        if (!first) continue;
        int64_t begin = i;
        while (begin > 0 && tokens[begin - 1] != pad) begin--;
        labels[i] = DATASET_NO_LABEL;
        labels[begin] = class;
    }
}
