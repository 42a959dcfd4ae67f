/* SentencePiece's own files, .model: a message ModelProto (sentencepiece_model.proto) of pieces
 * with scores, of how text is prepared, and of what kind the model is.
 *
 * Unigram's pieces are divided as those of a tokenizer.json. BPE has no merges there: of two
 * neighbours that make a piece together those whose piece has the highest score are merged, so each
 * way to put a piece together is a merge, of one rank with all others of its score.
 */
#include "ir/base/file.h"
#include "ir/base/memory.h"
#include "ir/base/utf8.h"
#include "runtime/tokenizer/protobuf.h"
#include "runtime/tokenizer/tokenizer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef enum PieceType {
    PIECE_NORMAL = 1,
    PIECE_UNKNOWN,
    PIECE_CONTROL,
    PIECE_USER_DEFINED,
    PIECE_UNUSED,
    PIECE_BYTE
} PieceType;

enum { MODEL_UNIGRAM = 1, MODEL_BPE = 2 };

typedef struct FilePiece {
    const unsigned char *text;
    size_t length;
    float score;
    PieceType type;
} FilePiece;

/* What a file says; fields that it leaves out have the proto's values. */
typedef struct Model {
    FilePiece *pieces;
    uint32_t n_pieces;
    uint64_t kind;
    bool byte_fallback, suffix, prefix, trims, escapes, restores;
    const unsigned char *charsmap;
    size_t n_charsmap;
} Model;

typedef struct Reader {
    Tokenizer *tokenizer;
    Model model;
    Arena *scratch;
    SourceLoc loc;
    Diag *diag;
} Reader;

/* --- the message --- */

static FilePiece read_piece(Protobuf message, bool *failed) {
    FilePiece piece = {.text = message.at, .type = PIECE_NORMAL};
    ProtobufField field;
    while (protobuf_next(&message, &field)) {
        if (field.number == 1 && field.wire == PROTOBUF_BYTES) {
            piece.text = field.bytes;
            piece.length = field.length;
        } else if (field.number == 2 && field.wire == PROTOBUF_FIXED32) {
            piece.score = protobuf_float(&field);
        } else if (field.number == 3 && field.wire == PROTOBUF_VARINT) {
            piece.type = field.value <= PIECE_BYTE ? (PieceType)field.value : 0;
        }
    }
    *failed |= message.failed;
    return piece;
}

static void read_trainer(Protobuf message, Model *out, bool *failed) {
    ProtobufField field;
    while (protobuf_next(&message, &field)) {
        if (field.wire != PROTOBUF_VARINT) continue;
        if (field.number == 3) out->kind = field.value;
        if (field.number == 24) out->suffix = field.value;
        if (field.number == 35) out->byte_fallback = field.value;
    }
    *failed |= message.failed;
}

static void read_normalizer(Protobuf message, Model *out, bool *failed) {
    ProtobufField field;
    while (protobuf_next(&message, &field)) {
        if (field.number == 2 && field.wire == PROTOBUF_BYTES) {
            out->charsmap = field.bytes;
            out->n_charsmap = field.length;
        }
        if (field.wire != PROTOBUF_VARINT) continue;
        if (field.number == 3) out->prefix = field.value;
        if (field.number == 4) out->trims = field.value;
        if (field.number == 5) out->escapes = field.value;
    }
    *failed |= message.failed;
}

/* False: damaged. */
static bool read_message(Reader *reader, const unsigned char *bytes, size_t length) {
    Model *model = &reader->model;
    Protobuf message = {.at = bytes, .end = bytes + length};
    ProtobufField field;
    bool failed = false;
    uint32_t capacity = 0;
    *model = (Model){.kind = MODEL_UNIGRAM, .prefix = true, .trims = true, .escapes = true};
    while (protobuf_next(&message, &field) && !failed) {
        if (field.wire != PROTOBUF_BYTES) continue;
        const Protobuf inner = protobuf_message(&field);
        if (field.number == 1) {
            const FilePiece piece = read_piece(inner, &failed);
            if (model->n_pieces == VOCABULARY_MOST_IDS) return false;
            ARENA_PUSH(reader->scratch, model->pieces, model->n_pieces, capacity, piece);
        } else if (field.number == 2) {
            read_trainer(inner, model, &failed);
        } else if (field.number == 3) {
            read_normalizer(inner, model, &failed);
        } else if (field.number == 5) {
            Model other = {0};
            read_normalizer(inner, &other, &failed);
            model->restores = other.n_charsmap > 0;
        }
    }
    return !failed && !message.failed && model->n_pieces > 0;
}

/* What a reader of one kind cannot do with another. */
static bool check_model(const Reader *reader) {
    const Model *model = &reader->model;
    const char *lacking = model->kind != MODEL_UNIGRAM && model->kind != MODEL_BPE
                              ? "model_type WORD or CHAR"
                          : model->suffix   ? "treat_whitespace_as_suffix"
                          : !model->escapes ? "escape_whitespaces false"
                          : model->restores ? "a denormalizer"
                                            : NULL;
    if (lacking) diag_error(reader->diag, reader->loc, "%s is not supported", lacking);
    return !lacking;
}

/* --- pieces --- */

/* A symbol's text, in which marks are spaces. */
static char *spaced_text(const FilePiece *piece, Arena *arena) {
    const size_t mark = strlen(SPACE_MARK);
    char *text = arena_strndup(arena, (const char *)piece->text, piece->length);
    size_t n = 0;
    for (size_t at = 0; at < piece->length;) {
        const bool is_mark =
            piece->length - at >= mark && memcmp(piece->text + at, SPACE_MARK, mark) == 0;
        text[n++] = is_mark ? ' ' : (char)piece->text[at];
        at += is_mark ? mark : 1;
    }
    text[n] = '\0';
    return text;
}

/* What a text has as it is: control symbols where they are asked for, and what the user defined. */
static bool add_symbol(Reader *reader, uint32_t id, const FilePiece *piece) {
    const bool control = piece->type == PIECE_CONTROL;
    AddedToken token = {.id = id,
                        .text = spaced_text(piece, reader->scratch),
                        .special = control,
                        .normalized = !control};
    token.length = strlen(token.text);
    if (added_tokens_add(&reader->tokenizer->added, &token, piece->text, piece->length)) {
        return true;
    }
    diag_error(reader->diag, reader->loc,
               "piece %u, '%.60s', is longer than %d bytes or there twice", id, token.text,
               ADDED_TOKEN_MOST_BYTES);
    return false;
}

static bool check_piece(const Reader *reader, uint32_t id, const FilePiece *piece) {
    const char *wrong =
        piece->length == 0 || memchr(piece->text, 0, piece->length)     ? "is empty or has a NUL"
        : utf8_valid_bytes(piece->text, piece->length) != piece->length ? "is no UTF-8"
        : piece->length > PIECE_MOST_BYTES                              ? "is too long"
        : piece->type == 0                                              ? "is of no known type"
        : !isfinite(piece->score) ? "has a score that is no number"
        : piece->type == PIECE_UNUSED && reader->model.kind == MODEL_BPE
            ? "is unused, which is not supported in BPE"
            : NULL;
    if (wrong) diag_error(reader->diag, reader->loc, "piece %u %s", id, wrong);
    return !wrong;
}

static bool add_pieces(Reader *reader) {
    enum { MOST_ADDED = 20000 };
    Tokenizer *tokenizer = reader->tokenizer;
    const Model *model = &reader->model;
    uint32_t n_added = 0, other;
    for (uint32_t id = 0; id < model->n_pieces; id++) {
        const FilePiece *piece = &model->pieces[id];
        if (!check_piece(reader, id, piece)) return false;
        if (!vocabulary_add(&tokenizer->vocabulary, id, piece->text, piece->length, &other)) {
            diag_error(reader->diag, reader->loc, "piece %u is piece %u once more", id, other);
            return false;
        }
        if (piece->type == PIECE_UNKNOWN) tokenizer->unknown = id;
        if (piece->type != PIECE_CONTROL &&
            !(piece->type == PIECE_USER_DEFINED && model->kind == MODEL_BPE)) {
            continue;
        }
        if (++n_added > MOST_ADDED) {
            diag_error(reader->diag, reader->loc,
                       "more than %d control and user-defined symbols are not supported",
                       MOST_ADDED);
            return false;
        }
        if (!add_symbol(reader, id, piece)) return false;
    }
    return true;
}

/* Of the pieces of one or two types. */
static bool build_trie(Reader *reader, PieceType a, PieceType b, PieceTrie *out) {
    const Model *model = &reader->model;
    bool *skips = ARENA_ARRAY(reader->scratch, bool, model->n_pieces + 1);
    for (uint32_t id = 0; id < model->n_pieces; id++) {
        skips[id] = model->pieces[id].type != a && model->pieces[id].type != b;
    }
    if (piece_trie_build(out, &reader->tokenizer->vocabulary, skips)) return true;
    diag_error(reader->diag, reader->loc, "its pieces take more memory than is supported");
    return false;
}

/* What the user defined is worth more than most other ways: a tenth for each byte behind the first,
 * as in SentencePiece 0.2.3 (0.2.0 took a tenth off, whatever its length). */
static bool set_unigram(Reader *reader) {
    const double unknown_penalty = 10, symbol_bonus = 0.1;
    const Model *model = &reader->model;
    Pieces *pieces = &reader->tokenizer->pieces;
    double least = INFINITY;
    pieces->scores = memory_zeroed(model->n_pieces, sizeof(*pieces->scores));
    for (uint32_t id = 0; id < model->n_pieces; id++) {
        const FilePiece *piece = &model->pieces[id];
        const double score = (double)piece->score;
        if (piece->type == PIECE_NORMAL && score < least) least = score;
        pieces->scores[id] =
            piece->type == PIECE_USER_DEFINED ? symbol_bonus * (double)(piece->length - 1) : score;
    }
    pieces->unknown_score = (isfinite(least) ? least : 0) - unknown_penalty;
    pieces->byte_fallback = model->byte_fallback;
    reader->tokenizer->kind = TOKENIZER_UNIGRAM;
    return build_trie(reader, PIECE_NORMAL, PIECE_USER_DEFINED, &pieces->trie);
}

static int by_falling_score(const void *a, const void *b) {
    const FilePiece *x = *(const FilePiece *const *)a, *y = *(const FilePiece *const *)b;
    return x->score != y->score ? (x->score > y->score ? -1 : 1) : x < y ? -1 : x > y;
}

/* Every two pieces that make this one. */
static void add_merges(Reader *reader, const FilePiece *piece, uint32_t rank) {
    Vocabulary *vocabulary = &reader->tokenizer->vocabulary;
    const FilePiece *pieces = reader->model.pieces;
    for (size_t at = 1; at < piece->length; at++) {
        if ((piece->text[at] & 0xc0) == 0x80) continue;
        const uint32_t left = vocabulary_find(vocabulary, piece->text, at);
        if (left == NO_TOKEN || pieces[left].type != PIECE_NORMAL) continue;
        const uint32_t right = vocabulary_find(vocabulary, piece->text + at, piece->length - at);
        if (right == NO_TOKEN || pieces[right].type != PIECE_NORMAL) continue;
        vocabulary_add_pair(vocabulary, left, right, rank, (uint32_t)(piece - pieces));
    }
}

static void set_bpe(Reader *reader) {
    const Model *model = &reader->model;
    const FilePiece **sorted = ARENA_ARRAY(reader->scratch, const FilePiece *, model->n_pieces);
    uint32_t n = 0, rank = 0;
    for (uint32_t id = 0; id < model->n_pieces; id++) {
        if (model->pieces[id].type == PIECE_NORMAL) sorted[n++] = &model->pieces[id];
    }
    qsort(sorted, n, sizeof(FilePiece *), by_falling_score);
    for (uint32_t i = 0; i < n; i++) {
        if (i > 0 && sorted[i]->score != sorted[i - 1]->score) rank = i;
        add_merges(reader, sorted[i], rank);
    }
    reader->tokenizer->kind = TOKENIZER_BPE;
}

static void set_bytes(Reader *reader) {
    for (int b = 0; b < 256 && reader->model.byte_fallback; b++) {
        char spelling[8];
        snprintf(spelling, sizeof(spelling), "<0x%02X>", b);
        const uint32_t id = vocabulary_find(&reader->tokenizer->vocabulary, spelling, 6);
        if (id != NO_TOKEN && reader->model.pieces[id].type == PIECE_BYTE) {
            reader->tokenizer->byte_tokens[b] = id;
        }
    }
}

/* --- what is done to text --- */

static bool set_normalizer(Reader *reader) {
    Tokenizer *tokenizer = reader->tokenizer;
    const Model *model = &reader->model;
    SentencePieceText *rules = ARENA_ARRAY(tokenizer->arena, SentencePieceText, 1);
    *rules = (SentencePieceText){.prefix = model->prefix, .trims = model->trims};
    tokenizer->normalizer = (Normalizer){
        .items = {{.kind = NORMAL_SENTENCEPIECE, .rules = rules}},
        .count = 1,
        .names = "SentencePiece's",
    };
    tokenizer->strips_space = model->prefix;
    for (uint32_t id = 0; id < model->n_pieces; id++) {
        rules->has_symbols |= model->pieces[id].type == PIECE_USER_DEFINED;
    }
    if (rules->has_symbols &&
        !build_trie(reader, PIECE_USER_DEFINED, PIECE_USER_DEFINED, &rules->symbols)) {
        return false;
    }
    if (model->n_charsmap == 0) return true;
    rules->charsmap = charsmap_read(model->charsmap, model->n_charsmap, tokenizer->arena,
                                    reader->loc, reader->diag);
    return rules->charsmap;
}

bool tokenizer_is_sentencepiece(const unsigned char *bytes, size_t length) {
    /* A first piece of less than 128 bytes, and its text, with which it begins. */
    if (length < 5 || bytes[0] != 0x0a || bytes[2] != 0x0a || bytes[1] > 127) return false;
    const size_t piece = bytes[1], text = bytes[3];
    if (text + 2 > piece || length < 2 + piece) return false;
    return text + 2 == piece || bytes[4 + text] == 0x15 || bytes[4 + text] == 0x18;
}

bool tokenizer_read_sentencepiece(Tokenizer *tokenizer, const char *path, Diag *diag) {
    Reader reader = {
        .tokenizer = tokenizer, .scratch = arena_create(), .loc = {path, 0}, .diag = diag};
    size_t length;
    const char *bytes = file_read(reader.scratch, path, TOKENIZER_MOST_FILE_BYTES, &length, diag);
    bool good = bytes != NULL;
    tokenizer->format = "SentencePiece";
    tokenizer->fuses_unknown = true;
    if (good && !read_message(&reader, (const unsigned char *)bytes, length)) {
        diag_error(diag, reader.loc, "is a damaged model of SentencePiece, or none");
        good = false;
    }
    good = good && check_model(&reader) && add_pieces(&reader) && set_normalizer(&reader);
    if (good && reader.model.kind == MODEL_BPE) set_bpe(&reader);
    if (good && reader.model.kind == MODEL_UNIGRAM) good = set_unigram(&reader);
    if (good) {
        set_bytes(&reader);
        tokenizer_finish(tokenizer, NULL, 0);
    }
    arena_destroy(reader.scratch);
    return good;
}
