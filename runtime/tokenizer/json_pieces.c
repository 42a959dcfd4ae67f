#include "runtime/tokenizer/json_pieces.h"

#include "ir/base/memory.h"
#include "runtime/tokenizer/json_steps.h"

#include <stdlib.h>
#include <string.h>

/* vocab[id] = [piece, score]. */
static bool read_piece(Tokenizer *tokenizer, const json_t *pair, uint32_t id, SourceLoc loc,
                       Diag *diag) {
    const json_t *piece = json_array_get(pair, 0), *score = json_array_get(pair, 1);
    const char *text = json_string_value(piece);
    size_t length = json_string_length(piece);
    uint32_t other;
    if (json_array_size(pair) != 2 || !text || !json_is_number(score)) {
        diag_error(diag, loc, "vocab[%u] is not a piece and its score", id);
        return false;
    }
    tokenizer->pieces.scores[id] = json_number_value(score);
    if (length == 0) return true; /* never made of anything */
    if (vocabulary_add(&tokenizer->vocabulary, id, text, length, &other)) return true;
    diag_error(diag, loc, "vocab[%u], '%.60s', is there twice", id, text);
    return false;
}

bool json_read_unigram(Tokenizer *tokenizer, const json_t *model, SourceLoc loc, Diag *diag) {
    enum { UNKNOWN_PENALTY = 10 }; /* SentencePiece's */
    const json_t *vocab = json_object_get(model, "vocab"), *pair;
    const json_t *unknown = json_object_get(model, "unk_id");
    Pieces *pieces = &tokenizer->pieces;
    size_t n = json_array_size(vocab), i;
    double least = 0;
    if (n == 0 || n > VOCABULARY_MOST_IDS) {
        diag_error(diag, loc, "model: its vocab is not a list of 1 to %u pieces",
                   VOCABULARY_MOST_IDS);
        return false;
    }
    pieces->scores = memory_alloc(n * sizeof(*pieces->scores));
    json_array_foreach(vocab, i, pair) {
        if (!read_piece(tokenizer, pair, (uint32_t)i, loc, diag)) return false;
        if (i == 0 || pieces->scores[i] < least) least = pieces->scores[i];
    }
    pieces->unknown_score = least - UNKNOWN_PENALTY;
    if (unknown && !json_is_null(unknown)) {
        json_int_t id = json_is_integer(unknown) ? json_integer_value(unknown) : -1;
        if (id < 0 || (size_t)id >= n) {
            diag_error(diag, loc, "model: unk_id is not the number of a piece");
            return false;
        }
        if (json_string_length(json_array_get(json_array_get(vocab, (size_t)id), 0)) == 0) {
            diag_error(diag, loc, "model: unk_id is the number of an empty piece");
            return false;
        }
        tokenizer->unknown = (uint32_t)id;
    }
    tokenizer->kind = TOKENIZER_UNIGRAM;
    tokenizer->fuses_unknown = true;
    return json_read_bool(model, "byte_fallback", "model", &pieces->byte_fallback, loc, diag);
}

bool json_read_wordpiece(Tokenizer *tokenizer, const json_t *model, SourceLoc loc, Diag *diag) {
    const json_t *most = json_object_get(model, "max_input_chars_per_word");
    json_int_t n = !most || json_is_null(most) ? 100 : json_integer_value(most);
    const char *prefix = "##";
    if (n <= 0) {
        diag_error(diag, loc, "model: max_input_chars_per_word is not a number above 0");
        return false;
    }
    tokenizer->pieces.most_characters = (size_t)n;
    tokenizer->kind = TOKENIZER_WORDPIECE;
    tokenizer->strips_space = true;
    if (!json_read_text(model, "continuing_subword_prefix", "model", &prefix, loc, diag)) {
        return false;
    }
    tokenizer->inner_prefix = arena_strdup(tokenizer->arena, prefix);
    return true;
}

/* <0x41> */
static bool is_byte_piece(const unsigned char *bytes, size_t length) {
    return length == 6 && memcmp(bytes, "<0x", 3) == 0 && bytes[5] == '>';
}

/* [n_ids]; NULL, reported: a piece is too long. */
static bool *find_skipped(const Tokenizer *tokenizer, SourceLoc loc, Diag *diag) {
    const Vocabulary *vocabulary = &tokenizer->vocabulary;
    bool *skips = memory_zeroed((size_t)vocabulary->n_ids + 1, sizeof(bool));
    for (uint32_t id = 0; id < vocabulary->n_ids; id++) {
        size_t length;
        const unsigned char *bytes = vocabulary_bytes(vocabulary, id, &length);
        skips[id] = id == tokenizer->unknown ||
                    (tokenizer->pieces.byte_fallback && is_byte_piece(bytes, length));
        if (length <= PIECE_MOST_BYTES) continue;
        diag_error(diag, loc, "vocab: the token %u has %zu bytes; at most %d are supported", id,
                   length, PIECE_MOST_BYTES);
        free(skips);
        return NULL;
    }
    for (int i = 0; i < tokenizer->added.count; i++) {
        const AddedToken *token = &tokenizer->added.items[i];
        if (token->special && token->id < vocabulary->n_ids) skips[token->id] = true;
    }
    return skips;
}

bool json_finish_pieces(Tokenizer *tokenizer, SourceLoc loc, Diag *diag) {
    const char *prefix = tokenizer->inner_prefix;
    Pieces *pieces = &tokenizer->pieces;
    bool *skips = find_skipped(tokenizer, loc, diag);
    if (!skips) return false;
    bool good = piece_trie_build(&pieces->trie, &tokenizer->vocabulary, skips);
    free(skips);
    if (!good) {
        diag_error(diag, loc, "vocab: its pieces take more memory than is supported");
        return false;
    }
    if (!prefix) return true;
    for (size_t i = 0; prefix[i]; i++) {
        pieces->inside = piece_trie_step(&pieces->trie, pieces->inside, (unsigned char)prefix[i]);
        if (!pieces->inside) return true; /* no piece has it */
    }
    pieces->has_inside = true;
    return true;
}
