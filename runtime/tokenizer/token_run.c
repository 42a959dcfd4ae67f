#define _GNU_SOURCE /* memmem */
#include "runtime/tokenizer/token_run.h"

#include "ir/base/utf8.h"
#include "runtime/data/token_mask.h"

#include <string.h>

void token_run_begin(TokenRun *run) {
    run->text = strbuf_create();
    run->place = TEXT_BEGINS;
    run->counts = run->skips_space = false;
    run->first = run->tokens->count;
}

static unsigned char mark_of(bool counts) {
    return counts ? TOKEN_COUNTS : 0;
}

static bool flush(TokenRun *run) {
    if (run->text.length == 0) return true;
    EncoderOutput out = {.tokens = run->tokens};
    bool good =
        encoder_encode_part(run->encoder, run->place, (const unsigned char *)run->text.text,
                            run->text.length, run->with_special, &out, run->where, run->diag);
    token_marks_fill(run->marks, run->tokens->count, mark_of(run->counts));
    run->text.length = 0;
    run->place = TEXT_CONTINUES;
    return good;
}

/* White space at the beginning. */
static size_t count_space(const char *text, size_t length) {
    const unsigned char *bytes = (const unsigned char *)text;
    size_t at = 0;
    uint32_t character;
    while (at < length) {
        int n = utf8_read(bytes + at, length - at, &character);
        if (n == 0 || !utf8_is_space(character)) break;
        at += (size_t)n;
    }
    return at;
}

static bool put_text(TokenRun *run, const char *text, size_t length, bool counts) {
    if (run->skips_space) {
        size_t skipped = count_space(text, length);
        text += skipped;
        length -= skipped;
        run->skips_space = length == 0;
    }
    if (length == 0) return true;
    if (counts != run->counts && !flush(run)) return false;
    run->counts = counts;
    strbuf_put_bytes(&run->text, text, length);
    return true;
}

/* The first of the run's places; NULL: there is none. */
static const char *find_place(const TokenRun *run, const char *text, size_t length,
                              size_t *out_width) {
    const char *first = NULL;
    for (int i = 0; i < 2 && run->places[i]; i++) {
        const size_t n = strlen(run->places[i]);
        const char *found = memmem(text, length, run->places[i], n);
        if (!found || (first && first <= found)) continue;
        first = found;
        *out_width = n;
    }
    return first;
}

bool token_run_text(TokenRun *run, const char *text, size_t length, bool counts) {
    const char *end = text + length, *place;
    size_t width = 0;
    while ((place = find_place(run, text, (size_t)(end - text), &width))) {
        if (!put_text(run, text, (size_t)(place - text), counts) ||
            !token_run_token(run, run->place_token, false)) {
            return false;
        }
        text = place + width;
    }
    return put_text(run, text, (size_t)(end - text), counts);
}

/* Some tokens take white space before them in. */
static void strip_end(StrBuf *text) {
    for (size_t at = 0, next; at < text->length; at = next) {
        size_t space = count_space(text->text + at, text->length - at);
        next = at + (space ? space : 1);
        if (space && next == text->length) text->length = at;
    }
}

bool token_run_number(TokenRun *run, uint32_t number, bool counts) {
    if (!flush(run)) return false;
    token_list_add(run->tokens, number);
    token_marks_fill(run->marks, run->tokens->count, mark_of(counts));
    return true;
}

void token_run_mark_last(TokenRun *run, unsigned char mark) {
    if (run->tokens->count > run->first) run->marks->items[run->tokens->count - 1] |= mark;
}

bool token_run_token(TokenRun *run, uint32_t token, bool counts) {
    const AddedToken *added = added_tokens_by_id(&encoder_tokenizer(run->encoder)->added, token);
    if (added && added->left_strip) strip_end(&run->text);
    if (!token_run_number(run, token, counts)) return false;
    run->place = TEXT_FOLLOWS;
    run->skips_space = added && added->right_strip;
    return true;
}

bool token_run_close(TokenRun *run) {
    return flush(run);
}

bool token_run_begin_text(TokenRun *run) {
    if (!flush(run)) return false;
    run->place = TEXT_BEGINS;
    run->skips_space = false;
    return true;
}

bool token_run_end(TokenRun *run, bool good) {
    good = good && flush(run);
    if (run->tokens->count > run->first) {
        token_marks_fill(run->marks, run->tokens->count, 0); /* after what went wrong */
        run->marks->items[run->first] |= TOKEN_BEGINS;
    }
    strbuf_destroy(&run->text);
    return good;
}
