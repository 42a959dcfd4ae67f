#include "frontend/commands/generate_text.h"

#include "frontend/commands/tokenizer_args.h"
#include "ir/base/utf8.h"

#include <inttypes.h>
#include <string.h>

enum { N_BYTES = 256 };

bool generate_text_begin(const CliArgs *args, int64_t vocab, GenerateText *out, Diag *diag) {
    *out = (GenerateText){.n_choices = N_BYTES,
                          .end = NO_TOKEN,
                          .answer_end = NO_TOKEN,
                          .image_token = NO_TOKEN,
                          .text = strbuf_create(),
                          .fim_tokens = cli_text(args, OPT_FIM_TOKENS, NULL),
                          .special = cli_given(args, OPT_SPECIAL),
                          .stops = args->values[OPT_STOP].list,
                          .n_stops = args->values[OPT_STOP].n_list};
    if (!tokenizer_from_args(args, vocab, &out->tokenizer, diag)) return false;
    if (out->tokenizer) {
        out->n_choices = (int)out->tokenizer->n_ids;
        out->end = tokenizer_end_of_text(out->tokenizer);
    } else if (vocab < N_BYTES) {
        diag_error(diag, NO_LOC,
                   "%s: text needs a vocabulary of 256 bytes; the model's is %" PRId64,
                   args->command->name, vocab);
        return false;
    }
    if (cli_int(args, OPT_TOP_K, 1) > out->n_choices) {
        diag_error(diag, NO_LOC, "--top-k: %" PRId64 " is more than the %d %s there are",
                   cli_int(args, OPT_TOP_K, 1), out->n_choices,
                   out->tokenizer ? "tokens" : "bytes");
        return false;
    }
    for (int i = 0; i < out->n_stops; i++) {
        if (out->stops[i][0]) continue;
        diag_error(diag, NO_LOC, "--stop: an empty text would end everything");
        return false;
    }
    return true;
}

static bool encode(GenerateText *text, const char *bytes, size_t length, const char *where,
                   Diag *diag) {
    EncoderOutput tokens = {.tokens = &text->tokens};
    if (!text->tokenizer) {
        for (size_t i = 0; i < length; i++) token_list_add(&text->tokens, (unsigned char)bytes[i]);
        return true;
    }
    Encoder *encoder = encoder_create(text->tokenizer);
    bool good = encoder_encode(encoder, (const unsigned char *)bytes, length, text->special,
                               &tokens, where, diag);
    encoder_destroy(encoder);
    if (!good || text->tokens.count > 0) return good;
    diag_error(diag, NO_LOC, "%s: nothing is left of it for this tokenizer; give another one",
               where);
    return false;
}

bool generate_text_prompt(GenerateText *text, const char *prompt, size_t length, const char *where,
                          Diag *diag) {
    bool good = true;
    if (length == 0 && text->tokens.count > 0) { /* a token that begins texts is there */
    } else if (length == 0 && text->tokenizer &&
               text->end != NO_TOKEN) { /* where another has ended */
        token_list_add(&text->tokens, text->end);
    } else if (length == 0) { /* the model needs something to follow */
        good = encode(text, "\n", 1, where, diag);
    } else {
        good = encode(text, prompt, length, where, diag);
    }
    strbuf_put_bytes(&text->text, prompt, length);
    text->n_prompt = text->text.length;
    text->n_prompt_tokens = text->tokens.count;
    return good;
}

void generate_text_answer(GenerateText *text, uint32_t end) {
    text->text.text[text->text.length = 0] = '\0';
    text->n_prompt = 0;
    text->end = end;
}

GenerateText generate_text_fork(const GenerateText *from) {
    GenerateText text = *from;
    text.borrows = true;
    text.tokens = (TokenList){0};
    text.text = strbuf_create();
    for (size_t i = 0; i < from->tokens.count; i++) {
        token_list_add(&text.tokens, from->tokens.items[i]);
    }
    strbuf_put_bytes(&text.text, from->text.text, from->text.length);
    return text;
}

void generate_text_release(GenerateText *text) {
    if (!text->borrows) tokenizer_destroy(text->tokenizer);
    token_list_release(&text->tokens);
    strbuf_destroy(&text->text);
}

bool generate_text_check_blind(const GenerateText *text, const TokenList *tokens, SourceLoc loc,
                               Diag *diag) {
    for (size_t i = 0; i < tokens->count && text->image_token != NO_TOKEN; i++) {
        if (tokens->items[i] != text->image_token) continue;
        diag_error(diag, loc,
                   "the text has token %" PRIu32 ", which stands for an image, and names none",
                   text->image_token);
        return false;
    }
    return true;
}

bool generate_text_has(const GenerateText *text, int token) {
    size_t length = 1;
    if ((uint32_t)token == text->image_token) return false;
    if (text->tokenizer) tokenizer_text(text->tokenizer, (uint32_t)token, &length);
    return length > 0;
}

/* Cuts the text where the first stop begins that the bytes from `from` on have completed. */
static bool find_stop(GenerateText *text, size_t from) {
    size_t found = SIZE_MAX;
    for (int i = 0; i < text->n_stops; i++) {
        size_t length = strlen(text->stops[i]);
        size_t at = from >= text->n_prompt + length ? from - length + 1 : text->n_prompt;
        for (; at + length <= text->text.length && at < found; at++) {
            if (memcmp(text->text.text + at, text->stops[i], length) == 0) found = at;
        }
    }
    if (found == SIZE_MAX) return false;
    text->text.text[text->text.length = found] = '\0';
    return true;
}

bool generate_text_add(GenerateText *text, int token) {
    char byte = (char)token;
    const size_t before = text->text.length;
    token_list_add(&text->tokens, (uint32_t)token);
    if ((uint32_t)token == text->end || (uint32_t)token == text->answer_end) return false;
    if (!text->tokenizer) {
        strbuf_put_bytes(&text->text, &byte, 1);
        return !find_stop(text, before);
    }
    size_t length;
    const char *bytes = tokenizer_text(text->tokenizer, (uint32_t)token, &length);
    if (tokenizer_is_special(text->tokenizer, (uint32_t)token)) return true;
    bool skips = text->tokenizer->strips_space && text->text.length == 0 && bytes[0] == ' ';
    strbuf_put_bytes(&text->text, bytes + skips, length - skips);
    return !find_stop(text, before);
}

/* Bytes at the end that may be the beginning of a stop. */
static size_t count_held_back(const GenerateText *text) {
    size_t most = 0;
    for (int i = 0; i < text->n_stops; i++) {
        size_t added = text->text.length - text->n_prompt, n = strlen(text->stops[i]) - 1;
        for (n = n < added ? n : added; n > most; n--) {
            if (memcmp(text->text.text + text->text.length - n, text->stops[i], n) == 0) most = n;
        }
    }
    return most;
}

size_t generate_text_show(GenerateText *text, bool all, const char **out) {
    const unsigned char *bytes = (const unsigned char *)text->text.text;
    size_t end = text->text.length, back = 0;
    if (!all) end -= count_held_back(text);
    if (end < text->n_shown) end = text->n_shown; /* a stop has cut off what followed that */
    *out = text->text.text + text->n_shown;
    /* Back to where the last character begins; it waits if more of its bytes can follow. */
    while (text->tokenizer && back < 3 && back < end - text->n_shown &&
           (bytes[end - 1 - back] & 0xc0) == 0x80) {
        back++;
    }
    if (text->tokenizer && !all && back < end - text->n_shown) {
        unsigned char first = bytes[end - 1 - back];
        size_t needed = first >= 0xf0 && first < 0xf5   ? 4
                        : first >= 0xe0 && first < 0xf0 ? 3
                        : first >= 0xc2 && first < 0xe0 ? 2
                                                        : 0;
        if (needed > back + 1) end -= back + 1;
    }
    size_t length = end - text->n_shown;
    text->n_shown = end;
    return length;
}
