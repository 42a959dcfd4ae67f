/* Weights, tokenizers, configurations, data: files, each read as far as the program reads it. */
#include "frontend/commands/run_curve.h"
#include "frontend/gguf/gguf_config.h"
#include "frontend/gguf/gguf_file.h"
#include "frontend/gguf/gguf_tokenizer.h"
#include "frontend/hf/hf_config.h"
#include "runtime/checkpoint/safetensors.h"
#include "runtime/data/parquet_rows.h"
#include "runtime/data/stored_logits.h"
#include "runtime/data/token_file.h"
#include "runtime/data/unpack.h"
#include "runtime/tokenizer/chat.h"
#include "runtime/tokenizer/corpus.h"
#include "runtime/tokenizer/encoder.h"
#include "tests/fuzz/fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Reads all of it. */
static unsigned touch(const void *bytes, size_t n) {
    static volatile unsigned seen;
    unsigned sum = 0;
    for (size_t i = 0; i < n; i++) sum += ((const unsigned char *)bytes)[i];
    return seen = sum;
}

void fuzz_safetensors(const unsigned char *bytes, size_t n) {
    FuzzSpace space = fuzz_begin();
    Safetensors *file = safetensors_open(fuzz_file("w.safetensors", bytes, n), space.diag);
    for (int i = 0; file && i < safetensors_count(file); i++) {
        const SafetensorsInfo *info = safetensors_at(file, i);
        SafetensorsInfo found;
        touch(info->data, info->n_bytes);
        if (!safetensors_find(file, info->name, &found) || found.data != info->data) abort();
    }
    for (int i = 0; file && i < safetensors_count_metadata(file); i++) {
        const char *key, *value;
        safetensors_metadata_at(file, i, &key, &value);
        if (!safetensors_find_metadata(file, key)) abort();
    }
    safetensors_close(file);
    fuzz_end(&space);
}

/* A text that has what tokenizers look for: contractions, spaces, digits, marks, other scripts. */
static const char SAMPLE[] =
    " It's  12\r\n\t<|endoftext|> e\xCC\x81t\xC3\xA9 \xE6\x97\xA5\xE6\x9C\xAC "
    "\xF0\x9F\x99\x82<s>don't\xEF\xBC\xA1";

static void encode_sample(Tokenizer *tokenizer, FuzzSpace *space) {
    TokenList tokens = {0};
    Encoder *encoder = encoder_create(tokenizer);
    const EncoderOutput out = {.tokens = &tokens};
    if (encoder_encode(encoder, (const unsigned char *)SAMPLE, sizeof(SAMPLE) - 1, true, &out,
                       "sample", space->diag)) {
        for (size_t i = 0; i < tokens.count; i++) {
            size_t length;
            const char *text = tokenizer_text(tokenizer, tokens.items[i], &length);
            if (tokens.items[i] >= tokenizer->n_ids) abort();
            touch(text, length);
        }
    }
    token_list_release(&tokens);
    encoder_destroy(encoder);
}

static void read_tokenizer(const char *name, const unsigned char *bytes, size_t n) {
    FuzzSpace space = fuzz_begin();
    Tokenizer *tokenizer = tokenizer_load(fuzz_file(name, bytes, n), NULL, space.diag);
    if (tokenizer) {
        encode_sample(tokenizer, &space);
        tokenizer_destroy(tokenizer);
    }
    fuzz_end(&space);
}

void fuzz_tokenizer(const unsigned char *bytes, size_t n) {
    read_tokenizer("tokenizer.json", bytes, n);
}

void fuzz_sentencepiece(const unsigned char *bytes, size_t n) {
    read_tokenizer("tokenizer.model", bytes, n);
}

void fuzz_gguf(const unsigned char *bytes, size_t n) {
    FuzzSpace space = fuzz_begin();
    GgufFile file;
    if (gguf_open(space.arena, fuzz_file("w.gguf", bytes, n), &file, space.diag)) {
        char path[160];
        HfConfig config = {0};
        for (int i = 0; i < file.n_tensors; i++)
            touch(file.tensors[i].info.data, file.tensors[i].info.n_bytes);
        if (gguf_config_read(&file, &config, space.diag)) json_decref(config.json);
        snprintf(path, sizeof(path), "%s/saved.json", fuzz_folder());
        if (gguf_tokenizer_save(&file, path, space.diag)) {
            Tokenizer *tokenizer = tokenizer_load(path, NULL, space.diag);
            if (tokenizer) encode_sample(tokenizer, &space);
            if (tokenizer) tokenizer_destroy(tokenizer);
        }
        gguf_close(&file);
    }
    fuzz_end(&space);
}

void fuzz_config(const unsigned char *bytes, size_t n) {
    FuzzSpace space = fuzz_begin();
    HfConfig config = {0};
    fuzz_file("config.json", bytes, n);
    if (hf_config_read(space.arena, fuzz_folder(), &config, space.diag)) json_decref(config.json);
    fuzz_end(&space);
}

void fuzz_tokens(const unsigned char *bytes, size_t n) {
    static const int PLAIN[] = {1, 2, 4};
    FuzzSpace space = fuzz_begin();
    TokenFile file;
    if (n && token_file_open(&file, fuzz_file("data.bin", bytes + 1, n - 1), PLAIN[bytes[0] % 3],
                             space.diag)) {
        uint64_t sum = 0;
        for (int64_t i = 0; i < file.n_tokens; i++) sum += token_file_at(&file, i);
        touch(&sum, sizeof(sum));
        if (file.counts) touch(file.counts, (size_t)file.n_tokens);
        token_file_close(&file);
    }
    fuzz_end(&space);
}

void fuzz_stored(const unsigned char *bytes, size_t n) {
    FuzzSpace space = fuzz_begin();
    StoredLogits *stored = stored_logits_open(fuzz_file("s.safetensors", bytes, n), space.diag);
    if (stored) {
        const StoredShape shape = stored_logits_shape(stored);
        const size_t count = (size_t)(shape.seq * shape.n_words);
        if (count > n) abort(); /* each takes more than a byte of the file */
        int32_t *words = malloc(count * sizeof(int32_t) + 1);
        float *logprobs = malloc(count * sizeof(float) + 1);
        for (int64_t w = 0; w < shape.n_windows; w++)
            if (!stored_logits_read(stored, w, words, logprobs, space.diag)) break;
        free(words);
        free(logprobs);
        stored_logits_close(stored);
    }
    fuzz_end(&space);
}

void fuzz_parquet(const unsigned char *bytes, size_t n) {
    FuzzSpace space = fuzz_begin();
    ParquetFile file;
    if (parquet_open(&file, space.arena, "fuzz", bytes, n, space.diag)) {
        ParquetUse *uses = ARENA_ARRAY(space.arena, ParquetUse, file.n_leaves + 1);
        for (int leaf = 0; leaf < file.n_leaves; leaf++)
            uses[leaf] =
                parquet_leaf_is_readable(&file.leaves[leaf]) ? PARQUET_VALUES : PARQUET_LEVELS;
        for (int group = 0; group < file.n_groups; group++) {
            ParquetRows rows = {.keeps_empty = group % 2};
            ParquetValues values = {0};
            int leaf;
            parquet_rows_read(&rows, &file, group, uses, &values, &leaf);
            parquet_rows_release(&rows);
            parquet_values_release(&values);
        }
    }
    fuzz_end(&space);
}

static bool take_tokens(void *user, const uint32_t *tokens, const unsigned char *marks,
                        size_t count, Diag *diag) {
    (void)user, (void)diag;
    touch(tokens, count * sizeof(*tokens));
    if (marks) touch(marks, count);
    return true;
}

/* Lines of JSON in each of the ways that there are to read them; the first byte says which. */
void fuzz_lines(const unsigned char *bytes, size_t n) {
    static Tokenizer *tokenizer;
    static const char *const CLASSES = "low,high";
    FuzzSpace space = fuzz_begin();
    if (!tokenizer)
        tokenizer = tokenizer_load("tests/data/tokenizers/qwen2.json", NULL, space.diag);
    if (!tokenizer) abort();
    const char *path = fuzz_file("data.jsonl", n ? bytes + 1 : bytes, n ? n - 1 : 0);
    const int way = n ? bytes[0] % 8 : 0;
    Chat chat;
    const ChatTemplate *how = chat_template_find("chatml", space.arena, space.diag);
    if (!how || !chat_prepare(how, tokenizer, NO_TOKEN, NULL, &chat, space.diag)) abort();
    CorpusOptions options = {.paths = &path,
                             .n_paths = 1,
                             .chat = &chat,
                             .preferences = way == 1,
                             .unpaired = way == 2,
                             .classes = way == 3 || way == 4 ? CLASSES : NULL,
                             .n_classes = way == 3 || way == 4 ? 2 : 0,
                             .class_may_lack = way == 4,
                             .texts = way == 5   ? 3
                                      : way == 6 ? CORPUS_ANY_TEXTS
                                                 : 0,
                             .field = way == 7 ? "said" : NULL,
                             .first = NO_TOKEN,
                             .last = NO_TOKEN,
                             .n_threads = 1};
    CorpusTotals totals;
    corpus_encode(tokenizer, &options, take_tokens, NULL, &totals, space.diag);
    fuzz_end(&space);
}

void fuzz_packed(const unsigned char *bytes, size_t n) {
    static unsigned char room[1 << 16];
    const PackKind kind = pack_kind_of(bytes, n);
    const char *wrong = NULL;
    size_t got, all = 0;
    if (kind == PACK_NONE) return;
    Unpacker *unpacker = unpacker_create(kind, bytes, n);
    do {
        got = unpacker_read(unpacker, room, sizeof(room), &wrong);
        touch(room, got);
        all += got;
    } while (got == sizeof(room) && !wrong && all < 8 << 20);
    if (unpacker_position(unpacker) > n) abort();
    unpacker_destroy(unpacker);
}

void fuzz_curve(const unsigned char *bytes, size_t n) {
    FuzzSpace space = fuzz_begin();
    RunCurve *curve = run_curve_read(space.arena, fuzz_file("run.jsonl", bytes, n), space.diag);
    if (curve) run_curve_seconds(curve);
    fuzz_end(&space);
}
