#include "runtime/data/class_rows.h"

#include "ir/base/memory.h"
#include "runtime/data/dataset.h"
#include "runtime/data/mix.h"
#include "runtime/data/token_mask.h"

#include <inttypes.h>
#include <stdlib.h>

typedef struct Text {
    size_t begin, length; /* without the class, which is behind it */
    size_t own[2];        /* tokens of the text, or of both that belong together, to be kept */
    size_t second;        /* where the second one's part begins; length: there is one */
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

static bool is_around(const TokenBuffer *buffer, size_t i) {
    return (buffer->marks[i] & TOKEN_AROUND) != 0;
}

/* How much of two texts is kept where there is room for `most` tokens, as Hugging Face's
 * longest_first has it. */
static void cut_longest(size_t most, size_t own[2]) {
    int less = own[0] > own[1], more = !less;
    if (own[0] + own[1] <= most) return;
    size_t rest = own[less] < most ? most - own[less] : 0;
    own[more] = own[less] > rest ? own[less] : rest;
    if (own[0] + own[1] <= most) return;
    own[less] = most / 2;
    own[more] = most / 2 + most % 2;
}

static size_t count_words(const ClassRowOptions *options) {
    return options->table ? (size_t)options->table->n_words : 1;
}

/* The document up to `next`; false: there is no room for it beside what is around it. */
static bool measure(const TokenBuffer *buffer, size_t begin, size_t next,
                    const ClassRowOptions *options, Text *out) {
    const size_t seq = options->seq, length = next - begin - count_words(options);
    size_t n_around = 0;
    *out = (Text){.begin = begin, .length = length, .second = length};
    for (size_t i = 0; i < out->length; i++) {
        if (buffer->marks[begin + i] & TOKEN_SECOND) out->second = i;
        bool around = is_around(buffer, begin + i);
        n_around += around;
        if (!around) out->own[i >= out->second]++;
    }
    if (out->length + 1 <= seq) return true;
    if (n_around + 2 > seq) return false;
    size_t most = seq - 1 - n_around;
    if (out->second < out->length) {
        cut_longest(most, out->own);
    } else {
        out->own[0] = most;
    }
    return true;
}

static bool has_pad(const TokenBuffer *buffer, const Text *text, uint32_t pad) {
    for (size_t i = text->begin; i < text->begin + text->length; i++) {
        if (token_buffer_at(buffer, i) == pad) return true;
    }
    return false;
}

/* False: one has `pad` in it, or does not fit; reported. */
static bool find_texts(const TokenBuffer *buffer, const ClassRowOptions *options, Text *texts,
                       ClassTotals *out, Diag *diag) {
    int64_t number = 0;
    for (size_t begin = 0, next; begin < buffer->n_tokens; begin = next) {
        Text *text = &texts[out->n_texts];
        next = begin + 1;
        while (next < buffer->n_tokens && !(buffer->marks[next] & TOKEN_BEGINS)) next++;
        number++;
        if (next - begin < count_words(options) ||
            !(buffer->marks[next - count_words(options)] & TOKEN_COUNTS)) {
            BUG("a text without a class");
        }
        if (!measure(buffer, begin, next, options, text)) {
            diag_error(diag, NO_LOC,
                       "text %" PRId64 ": rows of %zu tokens have no room for one of it beside "
                       "those around it and one behind: plan with a larger --set seq=",
                       number, options->seq);
            return false;
        }
        if (text->length == 0) {
            out->n_empty++;
            continue;
        }
        if (options->first && has_pad(buffer, text, options->pad)) {
            diag_error(diag, NO_LOC,
                       "text %" PRId64 " has the token %" PRIu32 ", which stands behind texts: "
                       "plan with --set padding=, a token that no text has",
                       number, options->pad);
            return false;
        }
        out->n_texts++;
        out->n_tokens += (int64_t)text->length;
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

/* The number of a new row. */
static uint32_t add_row(ClassTable *table, const TokenBuffer *from, size_t at) {
    if (table->n == table->capacity) {
        table->capacity = table->capacity ? 2 * table->capacity : 256;
        const size_t words = (size_t)table->capacity * (size_t)table->n_words;
        table->items = memory_grow(table->items, words * sizeof(*table->items));
    }
    uint32_t *row = table->items + table->n * table->n_words;
    for (int i = 0; i < table->n_words; i++) row[i] = token_buffer_at(from, at + (size_t)i);
    return (uint32_t)table->n++;
}

/* At `to`: what is kept of the text, and its class, or row. Returns how many tokens. */
static size_t put_text(TokenBuffer *windows, size_t to, const TokenBuffer *from, const Text *text,
                       ClassTable *table) {
    size_t n = 0, put[2] = {0};
    for (size_t i = 0; i < text->length; i++) {
        int which = i >= text->second;
        if (!is_around(from, text->begin + i) && put[which]++ >= text->own[which]) continue;
        token_buffer_set(windows, to + n++, token_buffer_at(from, text->begin + i));
    }
    const size_t label = text->begin + text->length;
    token_buffer_set(windows, to + n,
                     table ? add_row(table, from, label) : token_buffer_at(from, label));
    windows->marks[to] |= TOKEN_BEGINS;
    windows->marks[to + n] |= TOKEN_COUNTS;
    return n + 1;
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
    if (good && options->table && options->table->n + out->n_texts > INT32_MAX) {
        diag_error(diag, NO_LOC, "more than %d texts", INT32_MAX);
        good = false;
    }
    if (good && out->n_texts == 0) {
        diag_error(diag, NO_LOC, "there is no text with a class");
        good = false;
    }
    for (int64_t i = 0; i < out->n_texts; i++) n_room += room_of(&texts[i], options);
    good = good && token_buffer_create(&windows, buffer->token_bytes, n_room, diag);
    if (good && options->shuffles) shuffle(texts, out->n_texts);
    for (int64_t i = 0; good && i < out->n_texts; i++) {
        size_t put = put_text(&windows, to, buffer, &texts[i], options->table);
        size_t room = room_of(&texts[i], options);
        uint32_t class = token_buffer_at(&windows, to + put - 1);
        if (!options->table && class < (uint32_t)n_classes) counts[class]++;
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
