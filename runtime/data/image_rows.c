#include "runtime/data/image_rows.h"

#include "runtime/data/token_mask.h"

#include <inttypes.h>

void image_add_totals(ImageTotals *sum, const ImageTotals *more) {
    sum->n_texts += more->n_texts;
    sum->n_images += more->n_images;
    sum->n_parts += more->n_parts;
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

static uint32_t number_of(const TokenBuffer *buffer, const Text *text, size_t i) {
    return token_buffer_at(buffer, text->begin + text->n_tokens + i);
}

/* Of a text's i-th image. */
static ImageGrid grid_of(const TokenBuffer *buffer, const Text *text, size_t i,
                         const ImageRowOptions *o) {
    if (o->rule->split == IMAGE_WHOLE) return (ImageGrid){0, 0};
    return image_store_grid(o->store, o->rule, number_of(buffer, text, i));
}

static int64_t count_parts(const TokenBuffer *buffer, const Text *text, const ImageRowOptions *o) {
    int64_t n = 0;
    for (size_t i = 0; i < text->n_images; i++) {
        n += image_grid_parts(grid_of(buffer, text, i, o));
    }
    return n;
}

/* What becomes of a text. */
typedef struct Fate {
    int64_t n_parts;
    size_t length; /* in its row */
    bool many, cut, loses_image, empty;
} Fate;

/* False: reported, what stands for an image could not be made. */
static bool judge(const TokenBuffer *buffer, const Text *text, const ImageRowOptions *o, Fate *out,
                  Diag *diag) {
    Fate fate = {.n_parts = count_parts(buffer, text, o), .empty = true};
    size_t n_seen = 0;
    fate.many = fate.n_parts > o->rule->images;
    for (size_t i = 0; !fate.many && i < text->n_tokens; i++) {
        const bool is_image = token_buffer_at(buffer, text->begin + i) == (uint32_t)o->rule->token;
        const TokenList *tokens = NULL;
        if (is_image) {
            if (n_seen == text->n_images) BUG("more places than images");
            tokens = image_texts_of(o->texts, grid_of(buffer, text, n_seen++, o), diag);
            if (!tokens) return false;
        }
        const size_t n = tokens ? tokens->count : 1;
        if (fate.length + n > o->seq || fate.cut) {
            fate.cut = true;
            fate.loses_image |= is_image;
            continue;
        }
        if (i > 0 && (buffer->marks[text->begin + i] & TOKEN_COUNTS)) fate.empty = false;
        fate.length += n;
    }
    *out = fate;
    return true;
}

/* Whether it becomes a row; the totals count it. */
static bool takes(const Text *text, Fate fate, ImageTotals *totals) {
    totals->n_many += fate.many;
    totals->n_long += !fate.many && fate.loses_image;
    totals->n_empty += !fate.many && !fate.loses_image && fate.empty;
    if (fate.many || fate.loses_image || fate.empty) return false;
    totals->n_texts++;
    totals->n_images += (int64_t)text->n_images;
    totals->n_parts += fate.n_parts;
    totals->n_tokens += (int64_t)fate.length;
    totals->n_cut += fate.cut;
    return true;
}

/* Judged before, so there is what stands for its images. */
static bool put_row(const TokenBuffer *from, const Text *text, const ImageRowOptions *o,
                    TokenBuffer *to, size_t row, Diag *diag) {
    size_t at = row, n_seen = 0;
    for (size_t i = 0; i < text->n_tokens; i++) {
        const uint32_t token = token_buffer_at(from, text->begin + i);
        if (token == (uint32_t)o->rule->token) {
            const TokenList *tokens =
                image_texts_of(o->texts, grid_of(from, text, n_seen++, o), diag);
            if (!tokens) return false;
            for (size_t k = 0; k < tokens->count; k++) token_buffer_set(to, at++, tokens->items[k]);
            continue;
        }
        if (at == row + o->seq) break;
        to->marks[at] = from->marks[text->begin + i] & TOKEN_COUNTS;
        token_buffer_set(to, at++, token);
    }
    to->marks[row] = TOKEN_BEGINS; /* the first is nobody's label */
    while (at < row + o->seq) token_buffer_set(to, at++, o->pad);
    for (size_t i = 0; i < text->n_images; i++) {
        const int64_t n = image_grid_parts(grid_of(from, text, i, o));
        for (int64_t k = 0; k < n; k++) token_buffer_set(to, at++, number_of(from, text, i) + 1);
    }
    return true;
}

static void refuse(const ImageTotals *totals, const ImageRowOptions *o, Diag *diag) {
    diag_error(diag, NO_LOC,
               "no text becomes a row of %zu tokens with at most %" PRId64 " %s: %" PRId64
               " have more, %" PRId64 " have no room for theirs, and in %" PRId64
               " nothing counts: plan with a larger --set seq= or images=%s",
               o->seq, o->rule->images, image_rule_parts(o->rule), totals->n_many, totals->n_long,
               totals->n_empty,
               o->rule->split == IMAGE_EDGE    ? ", or a smaller image_edge="
               : o->rule->split == IMAGE_RATIO ? ", or a smaller most_tiles="
                                               : "");
}

bool image_rows(TokenBuffer *buffer, const ImageRowOptions *options, ImageTotals *out, Diag *diag) {
    const size_t window = options->seq + (size_t)options->rule->images;
    TokenBuffer rows = {0};
    Text text;
    Fate fate;
    size_t row = 0;
    *out = (ImageTotals){0};
    for (size_t at = 0; at < buffer->n_tokens;) {
        at = find_text(buffer, at, &text);
        if (!judge(buffer, &text, options, &fate, diag)) return false;
        takes(&text, fate, out);
    }
    if (out->n_texts == 0) {
        refuse(out, options, diag);
        return false;
    }
    if (!token_buffer_create(&rows, 4, (size_t)out->n_texts * window, diag)) return false;
    ImageTotals again = {0};
    for (size_t at = 0; at < buffer->n_tokens;) {
        at = find_text(buffer, at, &text);
        if (!judge(buffer, &text, options, &fate, diag)) break;
        if (!takes(&text, fate, &again)) continue;
        if (!put_row(buffer, &text, options, &rows, row, diag)) break;
        row += window;
    }
    if (row != rows.n_tokens) BUG("what stood for images is gone");
    token_buffer_release(buffer);
    *buffer = rows;
    return true;
}
