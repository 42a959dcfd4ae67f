#include "frontend/commands/train_text.h"

#include "frontend/commands/tokenizer_args.h"
#include "frontend/progress_line.h"
#include "runtime/data/folder.h"
#include "runtime/data/token_file.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

bool train_text_from_args(const CliArgs *args, int64_t vocab, TrainText *out, Diag *diag) {
    return tokenizer_from_args(args, vocab, &out->tokenizer, diag);
}

void train_text_release(TrainText *text) {
    tokenizer_destroy(text->tokenizer);
    text->tokenizer = NULL;
}

/* --- text to tokens --- */

/* Tokens as they come, in as many bytes as the largest needs. */
typedef struct TokenBuffer {
    unsigned char *bytes;
    size_t n_bytes, capacity;
    size_t token_bytes;
} TokenBuffer;

static bool keep_tokens(void *user, const uint32_t *tokens, size_t count, Diag *diag) {
    TokenBuffer *buffer = user;
    size_t more = count * buffer->token_bytes;
    if (more > buffer->capacity - buffer->n_bytes) {
        size_t capacity = buffer->n_bytes + buffer->n_bytes / 2 + more;
        unsigned char *bytes = realloc(buffer->bytes, capacity);
        if (!bytes) {
            diag_error(diag, NO_LOC,
                       "no memory for the tokens of this text; `perilune tokenizer encode` writes "
                       "them to a file");
            return false;
        }
        buffer->bytes = bytes;
        buffer->capacity = capacity;
    }
    unsigned char *at = buffer->bytes + buffer->n_bytes;
    for (size_t i = 0; i < count && buffer->token_bytes == 2; i++) {
        uint16_t narrow = (uint16_t)tokens[i];
        memcpy(at + 2 * i, &narrow, 2);
    }
    if (buffer->token_bytes == 4) memcpy(at, tokens, more);
    buffer->n_bytes += more;
    return true;
}

static void show_bytes(void *user, int64_t n_done, int64_t n_all) {
    progress_line_show(user, (int)(n_done >> 20), (int)(n_all >> 20), "");
}

static Dataset *encode_text(const TrainText *text, const CliArgs *args, const char *path, int seq,
                            int vocab, Diag *diag) {
    const Tokenizer *tokenizer = text->tokenizer;
    TokenBuffer buffer = {.token_bytes = tokenizer->n_ids <= 65536 ? 2 : 4};
    CorpusOptions options;
    CorpusTotals totals;
    ProgressLine line = progress_line_start("MiB encoded");
    if (!corpus_options_from_args(args, tokenizer, &options, diag)) return NULL;
    options.paths = &path;
    options.n_paths = 1;
    options.progress = cli_given(args, OPT_QUIET) ? NULL : show_bytes;
    options.progress_user = &line;
    bool good = corpus_encode(tokenizer, &options, keep_tokens, &buffer, &totals, diag);
    progress_line_end(&line);
    if (!good) {
        free(buffer.bytes);
        return NULL;
    }
    DatasetTokens tokens = {buffer.bytes, (int)buffer.token_bytes, totals.n_tokens, NULL};
    return dataset_from_tokens(path, tokens, seq, vocab, diag);
}

/* --- tokens or text --- */

/* Of a folder its first file is asked. False also where nothing can be read: opening says why. */
static bool has_tokens(const char *path) {
    Arena *arena = arena_create();
    Diag *quiet = diag_create();
    const char **names;
    struct stat st;
    bool is_folder = stat(path, &st) == 0 && S_ISDIR(st.st_mode);
    if (is_folder && folder_list(arena, path, &names, quiet) > 0) path = names[0];
    FileMap map;
    bool found = file_map(path, &map, quiet) && token_file_has_header(map.data, map.length_bytes);
    file_unmap(&map);
    diag_destroy(quiet);
    arena_destroy(arena);
    return found;
}

/* What says how text is taken does nothing for tokens. */
static bool check_plain(const TrainText *text, const CliArgs *args, const char *path, Diag *diag) {
    static const CliOption OF_TEXT[] = {OPT_EOT, OPT_BOS, OPT_SEPARATOR, OPT_FIELD, OPT_SPECIAL};
    for (size_t i = 0; text->tokenizer && i < sizeof(OF_TEXT) / sizeof(OF_TEXT[0]); i++) {
        if (!cli_given(args, OF_TEXT[i])) continue;
        diag_error(diag, (SourceLoc){path, 0},
                   "is tokens already; --%s belongs to `tokenizer encode`, which made them",
                   CLI_OPTIONS[OF_TEXT[i]].name);
        return false;
    }
    return true;
}

Dataset *train_text_open(const TrainText *text, const CliArgs *args, const char *path, int seq,
                         int vocab, Diag *diag) {
    bool plain = !text->tokenizer || cli_given(args, OPT_TOKEN_BYTES) || has_tokens(path);
    if (!plain) return encode_text(text, args, path, seq, vocab, diag);
    if (!check_plain(text, args, path, diag)) return NULL;
    return dataset_open(path, seq, vocab, (int)cli_int(args, OPT_TOKEN_BYTES, 1), diag);
}

int64_t train_text_count_bytes(const TrainText *text, const Engine *engine, const int32_t *labels,
                               int64_t n) {
    int64_t bytes = 0;
    for (int64_t i = 0; text->tokenizer && i < n; i++) {
        size_t length;
        uint32_t label = (uint32_t)labels[i];
        tokenizer_text(text->tokenizer, label, &length);
        bool counts =
            engine_counts_label(engine, labels[i]) && !tokenizer_is_special(text->tokenizer, label);
        if (counts) bytes += (int64_t)length;
    }
    return bytes;
}
