#include "runtime/data/image_rows.h"

#include "runtime/data/token_mask.h"

#include <inttypes.h>

void image_add_totals(ImageTotals *sum, const ImageTotals *more) {
    sum->n_texts += more->n_texts;
    sum->n_images += more->n_images;
    sum->n_tokens += more->n_tokens;
    sum->n_cut += more->n_cut;
    sum->n_long += more->n_long;
    sum->n_many += more->n_many;
    sum->n_empty += more->n_empty;
}

typedef struct Text {
    size_t begin, n_tokens, n_images; /* of which the numbers are behind the tokens */
} Text;

/* The document that begins there; returns where the next one does. */
static size_t find_text(const TokenBuffer *buffer, size_t begin, Text *out) {
    size_t next = begin + 1;
    while (next < buffer->n_tokens && !(buffer->marks[next] & TOKEN_BEGINS)) next++;
    const size_t n_images = token_buffer_at(buffer, next - 1);
    if (n_images + 1 > next - begin) BUG("a text without the number of its images");
    *out = (Text){begin, next - begin - 1 - n_images, n_images};
    return next;
}

static size_t length_of(const ImageRowOptions *o, bool is_image) {
    return is_image ? (size_t)image_rule_length(o->rule) : 1;
}

/* What becomes of a text. */
typedef struct Fate {
    size_t length; /* in its row */
    bool cut, loses_image, empty;
} Fate;

static Fate judge(const TokenBuffer *buffer, const Text *text, const ImageRowOptions *o) {
    Fate fate = {.empty = true};
    for (size_t i = 0; i < text->n_tokens; i++) {
        const bool is_image = token_buffer_at(buffer, text->begin + i) == (uint32_t)o->rule->token;
        const size_t n = length_of(o, is_image);
        if (fate.length + n > o->seq || fate.cut) {
            fate.cut = true;
            fate.loses_image |= is_image;
            continue;
        }
        if (i > 0 && (buffer->marks[text->begin + i] & TOKEN_COUNTS)) fate.empty = false;
        fate.length += n;
    }
    return fate;
}

/* Whether it becomes a row; the totals count it. */
static bool takes(const TokenBuffer *buffer, const Text *text, const ImageRowOptions *o,
                  ImageTotals *totals) {
    const bool many = text->n_images > (size_t)o->rule->images;
    const Fate fate = judge(buffer, text, o);
    totals->n_many += many;
    totals->n_long += !many && fate.loses_image;
    totals->n_empty += !many && !fate.loses_image && fate.empty;
    if (many || fate.loses_image || fate.empty) return false;
    totals->n_texts++;
    totals->n_images += (int64_t)text->n_images;
    totals->n_tokens += (int64_t)fate.length;
    totals->n_cut += fate.cut;
    return true;
}

static size_t put_image(TokenBuffer *to, size_t at, const ImageRule *rule) {
    const int64_t n = image_rule_length(rule);
    for (int64_t i = 0; i < n; i++) token_buffer_set(to, at++, (uint32_t)image_rule_token(rule, i));
    return at;
}

static void put_row(const TokenBuffer *from, const Text *text, const ImageRowOptions *o,
                    TokenBuffer *to, size_t row) {
    size_t at = row;
    for (size_t i = 0; i < text->n_tokens; i++) {
        const uint32_t token = token_buffer_at(from, text->begin + i);
        const bool is_image = token == (uint32_t)o->rule->token;
        if (at + length_of(o, is_image) > row + o->seq) break;
        if (is_image) {
            at = put_image(to, at, o->rule);
            continue;
        }
        to->marks[at] = from->marks[text->begin + i] & TOKEN_COUNTS;
        token_buffer_set(to, at++, token);
    }
    to->marks[row] = TOKEN_BEGINS; /* the first is nobody's label */
    while (at < row + o->seq) token_buffer_set(to, at++, o->pad);
    for (size_t i = 0; i < text->n_images; i++) {
        const uint32_t number = token_buffer_at(from, text->begin + text->n_tokens + i);
        token_buffer_set(to, at++, number + 1);
    }
}

static void refuse(const ImageTotals *totals, const ImageRowOptions *o, Diag *diag) {
    diag_error(diag, NO_LOC,
               "no text becomes a row of %zu tokens with at most %" PRId64 " images: %" PRId64
               " have more images, %" PRId64 " have no room for theirs, and in %" PRId64
               " nothing counts: plan with a larger --set seq= or images=",
               o->seq, o->rule->images, totals->n_many, totals->n_long, totals->n_empty);
}

bool image_rows(TokenBuffer *buffer, const ImageRowOptions *options, ImageTotals *out, Diag *diag) {
    const size_t window = options->seq + (size_t)options->rule->images;
    TokenBuffer rows = {0};
    Text text;
    size_t row = 0;
    *out = (ImageTotals){0};
    for (size_t at = 0; at < buffer->n_tokens;) {
        at = find_text(buffer, at, &text);
        takes(buffer, &text, options, out);
    }
    if (out->n_texts == 0) {
        refuse(out, options, diag);
        return false;
    }
    if (!token_buffer_create(&rows, 4, (size_t)out->n_texts * window, diag)) return false;
    ImageTotals again = {0};
    for (size_t at = 0; at < buffer->n_tokens;) {
        at = find_text(buffer, at, &text);
        if (!takes(buffer, &text, options, &again)) continue;
        put_row(buffer, &text, options, &rows, row);
        row += window;
    }
    token_buffer_release(buffer);
    *buffer = rows;
    return true;
}
