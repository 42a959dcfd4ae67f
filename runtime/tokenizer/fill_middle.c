#include "runtime/tokenizer/fill_middle.h"

#include <stdio.h>

/* --- the tokens --- */

/* Of StarCoder and Granite; of Qwen 2.5 Coder, CodeGemma and cl100k; of SantaCoder; of CodeLlama;
 * of DeepSeek Coder, whose names say where the hole is; of the paper. */
static const char *const KNOWN[][3] = {
    {"<fim_prefix>", "<fim_suffix>", "<fim_middle>"},
    {"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"},
    {"<fim-prefix>", "<fim-suffix>", "<fim-middle>"},
    {"▁<PRE>", "▁<SUF>", "▁<MID>"},
    {"<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"},
    {"<PRE>", "<SUF>", "<MID>"},
};

static bool find_known(const Tokenizer *tokenizer, uint32_t out[3]) {
    for (size_t i = 0; i < sizeof(KNOWN) / sizeof(KNOWN[0]); i++) {
        int n = 0;
        for (; n < 3; n++) {
            const AddedToken *token = added_tokens_by_text(&tokenizer->added, KNOWN[i][n]);
            if (!token) break;
            out[n] = token->id;
        }
        if (n == 3) return true;
    }
    return false;
}

/* Three between commas. */
static bool find_named(const Tokenizer *tokenizer, const char *names, uint32_t out[3], Diag *diag) {
    const char *at = names;
    int n = 0;
    for (; n < 3; n++) {
        char name[256];
        const size_t length = strcspn(at, ",");
        if (length == 0 || length >= sizeof(name) || (at[length] == ',') != (n < 2)) break;
        snprintf(name, sizeof(name), "%.*s", (int)length, at);
        out[n] = tokenizer_find_added(tokenizer, name, "fim-tokens", diag);
        if (out[n] == NO_TOKEN) return false;
        at += length + 1;
    }
    if (n == 3 && out[0] != out[1] && out[0] != out[2] && out[1] != out[2]) return true;
    diag_error(diag, NO_LOC,
               "--fim-tokens: '%s' is not three tokens, those in front of a prefix, a suffix and a "
               "middle: P,S,M",
               names);
    return false;
}

bool fill_middle_find(const Tokenizer *tokenizer, const char *names, FillMiddle *out, Diag *diag) {
    uint32_t found[3];
    if (names && !find_named(tokenizer, names, found, diag)) return false;
    if (!names && !find_known(tokenizer, found)) {
        diag_error(diag, NO_LOC,
                   "%s has no tokens of known names for filling in: --fim-tokens P,S,M says which "
                   "stand in front of a prefix, a suffix and a middle (`tokenizer train "
                   "--special-token` learns a tokenizer that has some)",
                   tokenizer->path);
        return false;
    }
    out->prefix = found[0];
    out->suffix = found[1];
    out->middle = found[2];
    return true;
}

/* --- where documents are cut --- */

/* wyrand (Wang Yi): numbers in a row. */
static uint64_t next_random(uint64_t *state) {
    *state += 0xa0761d6478bd642fu;
    return hash_mix(*state, *state ^ 0xe7037ed1a0b428dbu);
}

static bool happens(uint64_t *state, double rate) {
    return (double)(next_random(state) >> 11) * 0x1p-53 < rate;
}

/* A number below n. */
static size_t draw_below(uint64_t *state, size_t n) {
    __extension__ unsigned __int128 product = (unsigned __int128)next_random(state) * n;
    return (size_t)(product >> 64);
}

/* A character begins there, or the text ends. */
static bool is_boundary(const unsigned char *text, size_t length, size_t at) {
    return at == 0 || at == length || (text[at] & 0xc0) != 0x80;
}

bool fill_middle_draw(const FillMiddle *how, const unsigned char *text, size_t length,
                      MiddleCut *out) {
    uint64_t state = hash_bytes(text, length, how->seed);
    if (!happens(&state, how->rate)) return false;
    out->suffix_first = happens(&state, how->spm_rate);
    size_t n = 0;
    for (size_t at = 0; at <= length; at++) n += is_boundary(text, length, at);
    const size_t one = draw_below(&state, n), other = draw_below(&state, n);
    const size_t first = one < other ? one : other, second = one < other ? other : one;
    n = 0;
    for (size_t at = 0; at <= length; at++) {
        if (!is_boundary(text, length, at)) continue;
        if (n == first) out->begin = at;
        if (n == second) out->end = at;
        n++;
    }
    return true;
}

/* --- their tokens --- */

typedef struct Writing {
    Encoder *encoder;
    bool with_special;
    TokenList *out;
    const char *where;
    Diag *diag;
} Writing;

static bool put_text(const Writing *w, TextPlace place, const unsigned char *text, size_t length) {
    const EncoderOutput out = {.tokens = w->out};
    return length == 0 || encoder_encode_part(w->encoder, place, text, length, w->with_special,
                                              &out, w->where, w->diag);
}

/* A part behind its token. */
static bool put_part(const Writing *w, uint32_t token, const unsigned char *text, size_t length) {
    token_list_add(w->out, token);
    return put_text(w, TEXT_FOLLOWS, text, length);
}

bool fill_middle_encode(const FillMiddle *how, Encoder *encoder, const unsigned char *text,
                        size_t length, const MiddleCut *cut, bool with_special, TokenList *out,
                        const char *where, Diag *diag) {
    const Writing w = {encoder, with_special, out, where, diag};
    const unsigned char *middle = text + cut->begin, *suffix = text + cut->end;
    const size_t n_middle = cut->end - cut->begin, n_suffix = length - cut->end;
    if (cut->suffix_first) {
        const TextPlace place = cut->begin > 0 ? TEXT_CONTINUES : TEXT_FOLLOWS;
        token_list_add(out, how->prefix);
        return put_part(&w, how->suffix, suffix, n_suffix) &&
               put_part(&w, how->middle, text, cut->begin) && put_text(&w, place, middle, n_middle);
    }
    return put_part(&w, how->prefix, text, cut->begin) &&
           put_part(&w, how->suffix, suffix, n_suffix) &&
           put_part(&w, how->middle, middle, n_middle);
}

bool fill_middle_ask(const FillMiddle *how, Encoder *encoder, const char *prefix, size_t n_prefix,
                     const char *suffix, size_t n_suffix, bool with_special, TokenList *out,
                     const char *where, Diag *diag) {
    const Writing w = {encoder, with_special, out, where, diag};
    return put_part(&w, how->prefix, (const unsigned char *)prefix, n_prefix) &&
           put_part(&w, how->suffix, (const unsigned char *)suffix, n_suffix) &&
           put_part(&w, how->middle, NULL, 0);
}
