#include "frontend/commands/generate_text.h"

#include "frontend/commands/tokenizer_args.h"
#include "runtime/tokenizer/utf8.h"

#include <inttypes.h>
#include <string.h>

enum { N_BYTES = 256 };

static bool begin_bytes(const char *prompt, int64_t vocab, GenerateText *out, Diag *diag) {
    if (vocab < N_BYTES) {
        diag_error(diag, NO_LOC,
                   "generate: text needs a vocabulary of 256 bytes; the model's is %" PRId64,
                   vocab);
        return false;
    }
    const char *begin = prompt[0] ? prompt : "\n"; /* the model needs something to follow */
    for (const char *c = begin; *c; c++) token_list_add(&out->tokens, (unsigned char)*c);
    out->n_choices = N_BYTES;
    return true;
}

static bool begin_tokens(const CliArgs *args, const char *prompt, GenerateText *out, Diag *diag) {
    EncoderOutput tokens = {.tokens = &out->tokens};
    if (!prompt[0] && out->end != NO_TOKEN) { /* a text begins where another has ended */
        token_list_add(&out->tokens, out->end);
        return true;
    }
    const char *begin = prompt[0] ? prompt : "\n";
    Encoder *encoder = encoder_create(out->tokenizer);
    bool good = encoder_encode(encoder, (const unsigned char *)begin, strlen(begin),
                               cli_given(args, OPT_SPECIAL), &tokens, "--prompt", diag);
    encoder_destroy(encoder);
    if (good && out->tokens.count == 0) {
        diag_error(diag, NO_LOC,
                   "--prompt: nothing is left of it for this tokenizer; give another one");
        return false;
    }
    return good;
}

bool generate_text_begin(const CliArgs *args, int64_t vocab, GenerateText *out, Diag *diag) {
    const char *prompt = cli_text(args, OPT_PROMPT, "");
    *out = (GenerateText){.end = NO_TOKEN, .answer_end = NO_TOKEN, .text = strbuf_create()};
    if (!tokenizer_from_args(args, vocab, &out->tokenizer, diag)) return false;
    if (out->tokenizer) {
        out->n_choices = (int)out->tokenizer->n_ids;
        out->end = tokenizer_end_of_text(out->tokenizer);
    }
    bool chat = cli_given(args, OPT_CHAT), good = true;
    if (!chat) {
        good = out->tokenizer ? begin_tokens(args, prompt, out, diag)
                              : begin_bytes(prompt, vocab, out, diag);
    }
    if (good && cli_int(args, OPT_TOP_K, 1) > out->n_choices) {
        diag_error(diag, NO_LOC, "--top-k: %" PRId64 " is more than the %d %s there are",
                   cli_int(args, OPT_TOP_K, 1), out->n_choices,
                   out->tokenizer ? "tokens" : "bytes");
        return false;
    }
    if (!chat) strbuf_put(&out->text, prompt);
    out->n_prompt = out->text.length;
    out->n_prompt_tokens = out->tokens.count;
    out->stops = args->values[OPT_STOP].list;
    out->n_stops = args->values[OPT_STOP].n_list;
    for (int i = 0; i < out->n_stops; i++) {
        if (out->stops[i][0]) continue;
        diag_error(diag, NO_LOC, "--stop: an empty text would end everything");
        good = false;
    }
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

bool generate_text_has(const GenerateText *text, int token) {
    size_t length = 1;
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
