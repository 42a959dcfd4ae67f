#include "runtime/tokenizer/encoder.h"

#include "ir/base/memory.h"
#include "ir/base/utf8.h"
#include "runtime/tokenizer/merge.h"

#include <stdlib.h>
#include <string.h>

enum {
    CACHE_SLOTS = 1 << 16,
    CACHED_BYTES = 24,          /* of a word at most */
    CACHED_TOKENS = 9,          /* the slot has 64 bytes */
    MOST_WORD_BYTES = 32 << 20, /* merging takes 28 bytes of memory for each */
};

/* A word by its first, middle and last eight bytes, which overlap in shorter ones. */
typedef struct WordKey {
    uint64_t first, middle, last;
} WordKey;

typedef struct CacheSlot {
    WordKey key;
    uint16_t length, n_tokens; /* length 0: free */
    uint32_t tokens[CACHED_TOKENS];
} CacheSlot;

struct Encoder {
    const Tokenizer *tokenizer;
    CacheSlot *cache;
    WordSpace *words;
    MergeSpace merges;
    PiecePath path;
    uint32_t *symbols; /* of a word */
    size_t symbols_capacity;
    NormalText normal;
    const EncoderOutput *out;
    const char *where; /* for errors */
    Diag *diag;
};

Encoder *encoder_create(const Tokenizer *tokenizer) {
    Encoder *encoder = memory_zeroed(1, sizeof(*encoder));
    encoder->tokenizer = tokenizer;
    encoder->words = word_space_create();
    encoder->cache = aligned_alloc(64, CACHE_SLOTS * sizeof(CacheSlot));
    if (!encoder->cache) memory_exhausted(CACHE_SLOTS * sizeof(CacheSlot));
    memset(encoder->cache, 0, CACHE_SLOTS * sizeof(CacheSlot));
    return encoder;
}

void encoder_destroy(Encoder *encoder) {
    if (!encoder) return;
    free(encoder->cache);
    word_space_destroy(encoder->words);
    merge_release(&encoder->merges);
    piece_path_release(&encoder->path);
    free(encoder->symbols);
    normal_text_release(&encoder->normal);
    free(encoder);
}

const Tokenizer *encoder_tokenizer(const Encoder *encoder) {
    return encoder->tokenizer;
}

/* --- words --- */

static bool lacks_token(Encoder *encoder, const unsigned char *bytes, size_t length) {
    if (length == 1) {
        diag_error(encoder->diag, (SourceLoc){encoder->where, 0},
                   "byte 0x%02x has no token in this vocabulary", bytes[0]);
    } else {
        enum { MOST_SHOWN = 64 };
        size_t shown = length < MOST_SHOWN ? length : MOST_SHOWN;
        while (shown < length && shown > 0 && (bytes[shown] & 0xc0) == 0x80) shown--;
        diag_error(encoder->diag, (SourceLoc){encoder->where, 0},
                   "'%.*s%s' has no token in this vocabulary", (int)shown, bytes,
                   shown < length ? "..." : "");
    }
    return false;
}

/* Appends `unknown` for bytes without a token. `last_unknown`: what was before had none either. */
static bool put_unknown(Encoder *encoder, const unsigned char *bytes, size_t length, size_t *n,
                        bool last_unknown) {
    const Tokenizer *tokenizer = encoder->tokenizer;
    if (tokenizer->unknown == NO_TOKEN) return lacks_token(encoder, bytes, length);
    if (!last_unknown || !tokenizer->fuses_unknown) encoder->symbols[(*n)++] = tokenizer->unknown;
    return true;
}

/* Symbols of single bytes; how many, or 0: reported. */
static size_t put_bytes(Encoder *encoder, const unsigned char *word, size_t length) {
    size_t n = 0;
    bool last_unknown = false;
    for (size_t i = 0; i < length; i++) {
        uint32_t token = encoder->tokenizer->byte_tokens[word[i]];
        if (token != NO_TOKEN) {
            encoder->symbols[n++] = token;
        } else if (!put_unknown(encoder, word + i, 1, &n, last_unknown)) {
            return 0;
        }
        last_unknown = token == NO_TOKEN;
    }
    return n;
}

/* Symbols of bytes that all have one; false: one has none, and nothing is appended. */
static bool put_spelled(Encoder *encoder, const unsigned char *bytes, size_t length, size_t *n) {
    const uint32_t *byte_tokens = encoder->tokenizer->byte_tokens;
    for (size_t i = 0; i < length; i++) {
        if (byte_tokens[bytes[i]] == NO_TOKEN) return false;
    }
    for (size_t i = 0; i < length; i++) encoder->symbols[(*n)++] = byte_tokens[bytes[i]];
    return true;
}

/* Symbols of characters, of their bytes where a character has no token. */
static size_t put_characters(Encoder *encoder, const unsigned char *word, size_t length) {
    const Tokenizer *tokenizer = encoder->tokenizer;
    size_t n = 0, bytes;
    bool last_unknown = false;
    for (size_t i = 0; i < length; i += bytes) {
        uint32_t character;
        int valid = utf8_read(word + i, length - i, &character);
        bytes = valid ? (size_t)valid : 1;
        uint32_t token =
            valid ? vocabulary_find(&tokenizer->vocabulary, word + i, bytes) : NO_TOKEN;
        if (token != NO_TOKEN) encoder->symbols[n++] = token;
        bool unknown = token == NO_TOKEN && !put_spelled(encoder, word + i, bytes, &n);
        if (unknown && !put_unknown(encoder, word + i, bytes, &n, last_unknown)) return 0;
        last_unknown = unknown;
    }
    return n;
}

/* Symbols of Unigram's most likely pieces; unknown characters in a row are spelled, or one. */
static size_t put_unigram(Encoder *encoder, const unsigned char *word, size_t length) {
    const Pieces *pieces = &encoder->tokenizer->pieces;
    const PiecePath *path = &encoder->path;
    size_t n = 0, end;
    unigram_divide(pieces, &encoder->path, word, length);
    for (size_t at = 0; at < length; at = end) {
        end = path->steps[at];
        if (path->ids[end] != NO_TOKEN) {
            encoder->symbols[n++] = path->ids[end];
            continue;
        }
        while (end < length && path->ids[path->steps[end]] == NO_TOKEN) end = path->steps[end];
        if (pieces->byte_fallback && put_spelled(encoder, word + at, end - at, &n)) continue;
        if (!put_unknown(encoder, word + at, end - at, &n, false)) return 0;
    }
    return n;
}

static size_t put_wordpiece(Encoder *encoder, const unsigned char *word, size_t length) {
    size_t n = wordpiece_divide(&encoder->tokenizer->pieces, word, length, encoder->symbols);
    if (n == 0 && !put_unknown(encoder, word, length, &n, false)) return 0;
    return n;
}

/* -> encoder->symbols; how many, or 0: reported. */
static size_t encode_word(Encoder *encoder, const unsigned char *word, size_t length) {
    const Tokenizer *tokenizer = encoder->tokenizer;
    if (length > MOST_WORD_BYTES) {
        diag_error(encoder->diag, (SourceLoc){encoder->where, 0},
                   "a word of %zu bytes; at most %d can be merged: where the tokenizer divides no "
                   "text into words, shorter documents would do (--separator, or .jsonl)",
                   length, MOST_WORD_BYTES);
        return 0;
    }
    if (length > encoder->symbols_capacity) {
        free(encoder->symbols);
        encoder->symbols_capacity = 2 * length + 64;
        encoder->symbols = memory_alloc(encoder->symbols_capacity * sizeof(*encoder->symbols));
    }
    if (tokenizer->kind == TOKENIZER_UNIGRAM) return put_unigram(encoder, word, length);
    if (tokenizer->kind == TOKENIZER_WORDPIECE) return put_wordpiece(encoder, word, length);
    if (tokenizer->whole_words) {
        encoder->symbols[0] = vocabulary_find(&tokenizer->vocabulary, word, length);
        if (encoder->symbols[0] != NO_TOKEN) return 1;
    }
    size_t n = tokenizer->byte_level ? put_bytes(encoder, word, length)
                                     : put_characters(encoder, word, length);
    return n == 0 ? 0 : merge_word(&tokenizer->vocabulary, &encoder->merges, encoder->symbols, n);
}

static uint64_t load(const unsigned char *at) {
    uint64_t value;
    memcpy(&value, at, sizeof(value));
    return value;
}

/* Of 1 to CACHED_BYTES bytes. */
static WordKey key_of(const unsigned char *word, size_t length) {
    if (length >= 8) {
        return (WordKey){load(word), length > 16 ? load(word + 8) : 0, load(word + length - 8)};
    }
    if (length >= 4) {
        uint32_t first, last;
        memcpy(&first, word, 4);
        memcpy(&last, word + length - 4, 4);
        return (WordKey){first, 0, last};
    }
    return (WordKey){(uint64_t)word[0] << 16 | (uint64_t)word[length / 2] << 8 | word[length - 1],
                     0, 0};
}

static bool take_word(void *user, const unsigned char *word, size_t length) {
    Encoder *encoder = user;
    if (encoder->out->counts) {
        for (size_t at = 0; at < length; at += MOST_WORD_BYTES) { /* longer ones: in parts */
            word_counts_add(encoder->out->counts, word + at,
                            length - at < MOST_WORD_BYTES ? length - at : MOST_WORD_BYTES,
                            encoder->out->weight);
        }
        return true;
    }
    TokenList *tokens = encoder->out->tokens;
    CacheSlot *slot = NULL;
    WordKey key = {0};
    if (length <= CACHED_BYTES) {
        key = key_of(word, length);
        uint64_t hash = hash_mix(key.first ^ 0x9e3779b97f4a7c15u ^ length,
                                 (key.last + key.middle * 3) ^ 0xe7037ed1a0b428dbu);
        slot = &encoder->cache[hash % CACHE_SLOTS];
        if (slot->length == length && slot->key.first == key.first && slot->key.last == key.last &&
            slot->key.middle == key.middle) {
            token_list_reserve(tokens, CACHED_TOKENS);
            memcpy(tokens->items + tokens->count, slot->tokens, sizeof(slot->tokens));
            tokens->count += slot->n_tokens;
            return true;
        }
    }
    size_t n = encode_word(encoder, word, length);
    if (n == 0) return false;
    token_list_reserve(tokens, n);
    memcpy(tokens->items + tokens->count, encoder->symbols, n * sizeof(*encoder->symbols));
    tokens->count += n;
    if (slot && n <= CACHED_TOKENS) {
        slot->key = key;
        slot->length = (uint16_t)length;
        slot->n_tokens = (uint16_t)n;
        memcpy(slot->tokens, encoder->symbols, n * sizeof(*encoder->symbols));
    }
    return true;
}

/* What ended a division early is reported, by take_word or here. */
static bool check_words(Encoder *encoder, WordResult result) {
    if (result == WORDS_GAVE_UP) {
        diag_error(encoder->diag, (SourceLoc){encoder->where, 0},
                   "the tokenizer's pattern takes too long on this text: it tries too many ways "
                   "to match");
    }
    return result == WORDS_TAKEN;
}

bool encoder_encode_segment(Encoder *encoder, const Segment *segment, const EncoderOutput *out,
                            const char *where, Diag *diag) {
    encoder->out = out;
    encoder->where = where;
    encoder->diag = diag;
    if (!segment->text) {
        if (out->tokens) token_list_add(out->tokens, segment->token);
        return true;
    }
    if (!segment->valid) return take_word(encoder, segment->text, segment->length);
    return check_words(encoder,
                       words_divide(&encoder->tokenizer->steps, encoder->words, segment->text,
                                    segment->length, segment->continues, take_word, encoder));
}

/* --- segments --- */

typedef struct Walk {
    Encoder *encoder;
    SegmentTaker *take;
    void *user;
    bool with_special;
    TextPlace place;
    bool begins, continues; /* the segment that comes next */
    const char *where;      /* for errors */
    Diag *diag;
} Walk;

/* What lies between added tokens goes to `between`, the tokens themselves to the taker. */
static bool walk_added(Walk *walk, bool normalized, const unsigned char *text, size_t length,
                       bool (*between)(Walk *walk, const unsigned char *text, size_t length,
                                       bool is_first)) {
    const AddedTokens *added = &walk->encoder->tokenizer->added;
    const AddedToken *token;
    size_t done = 0, from = 0, begin, end;
    while ((token = added_tokens_find(added, normalized, walk->with_special, text, length, from,
                                      done, &begin, &end, &from))) {
        if (begin > done && !between(walk, text + done, begin - done, done == 0)) return false;
        if (!walk->take(walk->user, &(Segment){.token = token->id})) return false;
        done = end;
        if (from < done) from = done;
    }
    return done == length || between(walk, text + done, length - done, done == 0);
}

static bool walk_words(Walk *walk, const unsigned char *text, size_t length, bool is_first) {
    bool continues = is_first && walk->continues;
    if (walk->encoder->tokenizer->prefix_first_only) continues = !(is_first && walk->begins);
    return walk->take(
        walk->user,
        &(Segment){.text = text, .length = length, .valid = true, .continues = continues});
}

static bool walk_valid(Walk *walk, const unsigned char *text, size_t length, bool is_first) {
    const Tokenizer *tokenizer = walk->encoder->tokenizer;
    const unsigned char *normal;
    size_t normal_length;
    walk->begins = is_first && walk->place == TEXT_BEGINS;
    walk->continues = is_first && walk->place == TEXT_CONTINUES;
    if (!normalize(&tokenizer->normalizer, text, length, !walk->continues, &walk->encoder->normal,
                   &normal, &normal_length)) {
        diag_error(walk->diag, (SourceLoc){walk->where, 0}, "the tokenizer's normalizer %s",
                   walk->encoder->normal.grew
                       ? "makes this text more than 64 times as long: it is broken, or made to be"
                       : "has a pattern that takes too long on this text");
        return false;
    }
    return walk_added(walk, true, normal, normal_length, walk_words);
}

static bool walk_bytes(Walk *walk, const unsigned char *text, size_t length, bool is_first) {
    size_t at = 0;
    uint32_t character;
    while (at < length) {
        size_t valid = utf8_valid_bytes(text + at, length - at), wrong = at + valid;
        if (valid && !walk_valid(walk, text + at, valid, is_first && at == 0)) return false;
        at = wrong;
        while (wrong < length && utf8_read(text + wrong, length - wrong, &character) == 0) wrong++;
        if (wrong > at &&
            !walk->take(walk->user, &(Segment){.text = text + at, .length = wrong - at})) {
            return false;
        }
        at = wrong;
    }
    return true;
}

bool encoder_walk(Encoder *encoder, const unsigned char *text, size_t length, bool with_special,
                  SegmentTaker *take, void *user, const char *where, Diag *diag) {
    Walk walk = {.encoder = encoder,
                 .take = take,
                 .user = user,
                 .with_special = with_special,
                 .where = where,
                 .diag = diag};
    return walk_added(&walk, false, text, length, walk_bytes);
}

typedef struct WholeDocument {
    Encoder *encoder;
    const EncoderOutput *out;
    const char *where;
    Diag *diag;
} WholeDocument;

static bool take_segment(void *user, const Segment *segment) {
    const WholeDocument *whole = user;
    return encoder_encode_segment(whole->encoder, segment, whole->out, whole->where, whole->diag);
}

bool encoder_encode_part(Encoder *encoder, TextPlace place, const unsigned char *text,
                         size_t length, bool with_special, const EncoderOutput *out,
                         const char *where, Diag *diag) {
    WholeDocument whole = {encoder, out, where, diag};
    Walk walk = {.encoder = encoder,
                 .take = take_segment,
                 .user = &whole,
                 .with_special = with_special,
                 .place = place,
                 .where = where,
                 .diag = diag};
    return walk_added(&walk, false, text, length, walk_bytes);
}

bool encoder_encode(Encoder *encoder, const unsigned char *text, size_t length, bool with_special,
                    const EncoderOutput *out, const char *where, Diag *diag) {
    return encoder_encode_part(encoder, TEXT_BEGINS, text, length, with_special, out, where, diag);
}

/* --- chunks --- */

bool encoder_can_chunk(const Tokenizer *tokenizer) {
    return words_can_begin_anywhere(&tokenizer->steps);
}

bool encoder_encode_chunk(Encoder *encoder, Chunk *chunk, const EncoderOutput *out,
                          const char *where, Diag *diag) {
    const WordSteps *steps = &encoder->tokenizer->steps;
    size_t at = chunk->begin, end;
    encoder->out = out;
    encoder->where = where;
    encoder->diag = diag;
    chunk->n_marks = 0;
    while (at < chunk->until) {
        WordResult result = words_next_piece(steps, encoder->words, chunk->text, chunk->seen,
                                             chunk->seen < chunk->length, at, &end);
        if (result == WORDS_CUT_OFF) break;
        if (chunk->n_marks < CHUNK_MARKS) {
            chunk->mark_tokens[chunk->n_marks] = out->tokens ? out->tokens->count : 0;
            chunk->marks[chunk->n_marks++] = at;
        }
        if (result == WORDS_TAKEN) {
            result = words_divide_piece(steps, encoder->words, chunk->text + at, end - at,
                                        take_word, encoder);
        }
        if (!check_words(encoder, result)) return false;
        at = end;
    }
    chunk->end = at;
    return true;
}
