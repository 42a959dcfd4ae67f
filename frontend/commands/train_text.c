#include "frontend/commands/train_text.h"

#include "frontend/commands/tokenizer_args.h"
#include "frontend/progress_line.h"
#include "runtime/data/folder.h"
#include "runtime/data/token_buffer.h"
#include "runtime/data/token_file.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

bool train_text_from_args(const CliArgs *args, int64_t vocab, TrainText *out, Diag *diag) {
    *out = (TrainText){0};
    return pack_check_args(args, cli_given(args, OPT_PACK), diag) &&
           fill_middle_check_args(args, diag) &&
           tokenizer_from_args(args, vocab, &out->tokenizer, diag);
}

void train_text_release(TrainText *text) {
    tokenizer_destroy(text->tokenizer);
    text->tokenizer = NULL;
}

/* --- text to tokens --- */

static bool keep_tokens(void *user, const uint32_t *tokens, const unsigned char *marks,
                        size_t count, Diag *diag) {
    return token_buffer_put(user, tokens, marks, count, diag);
}

static void show_bytes(void *user, int64_t n_done, int64_t n_all) {
    progress_line_show(user, (int)(n_done >> 20), (int)(n_all >> 20), "");
}

static bool pack(TrainText *text, const CliArgs *args, const CorpusOptions *options, int seq,
                 TokenBuffer *buffer, const char *path, Diag *diag) {
    PackTotals totals;
    if (!cli_given(args, OPT_PACK)) return true;
    text->packing = pack_options_from_args(args, text->tokenizer, options, seq);
    if (text->classes->reads) text->packing.padding = text->classes->how.pad;
    if (!pack_documents(buffer, &text->packing, &totals, diag)) {
        diag_note(diag, (SourceLoc){path, 0}, "of these");
        return false;
    }
    pack_add_totals(&text->packed, &totals);
    return true;
}

/* Documents as prompts and completions, where the plan's encoder reads such. */
static bool pair(TrainText *text, const CorpusOptions *options, TokenBuffer *buffer,
                 const char *path, Diag *diag) {
    TrainSource *source = text->source;
    const PairOptions how = train_source_pair_options(source);
    PairTotals totals;
    if (!train_source_check_end(source, options->last, diag)) return false;
    if (!pair_documents(buffer, &how, &totals, diag)) {
        diag_note(diag, (SourceLoc){path, 0}, "of these");
        return false;
    }
    pair_add_totals(&source->pairs, &totals);
    return true;
}

/* Documents as chosen and rejected answers, where the plan learns from pairs. */
static bool make_rows(TrainText *text, const CorpusOptions *options, TokenBuffer *buffer,
                      const char *path, Diag *diag) {
    PreferenceTotals totals = {0};
    text->pairs->how.pad = pack_padding(text->tokenizer, options);
    bool (*make)(TokenBuffer *, const PreferenceOptions *, PreferenceTotals *, Diag *) =
        text->pairs->single     ? answer_rows
        : text->pairs->unpaired ? unpaired_rows
                                : preference_rows;
    if (!make(buffer, &text->pairs->how, &totals, diag)) {
        diag_note(diag, (SourceLoc){path, 0}, "of these");
        return false;
    }
    preference_add_totals(&text->pairs->totals, &totals);
    return true;
}

/* Documents with their classes as rows, or packed, where the plan's model tells them. */
static bool make_class_rows(TrainText *text, const CliArgs *args, const CorpusOptions *options,
                            int seq, TokenBuffer *buffer, const char *path, Diag *diag) {
    bool packs = cli_given(args, OPT_PACK);
    if (!train_classes_rows(text->classes, packs, text->is_whole, buffer, diag)) {
        diag_note(diag, (SourceLoc){path, 0}, "of these");
        return false;
    }
    if (!pack(text, args, options, seq, buffer, path, diag)) return false;
    return true;
}

/* Documents as rows of groups, where the plan's model makes vectors of texts. */
static bool make_embed_rows(TrainText *text, TokenBuffer *buffer, const char *path, Diag *diag) {
    if (train_embed_rows(text->embed, buffer, diag)) return true;
    diag_note(diag, (SourceLoc){path, 0}, "of these");
    return false;
}

/* Documents as rows with images, where the plan's model sees such. */
static bool make_image_rows(TrainText *text, const CliArgs *args, const CorpusOptions *options,
                            TokenBuffer *buffer, const char *path, Diag *diag) {
    const uint32_t pad = pack_padding(text->tokenizer, options);
    if (train_images_rows(text->images, args, pad, buffer, diag)) return true;
    diag_note(diag, (SourceLoc){path, 0}, "of these");
    return false;
}

static bool reads_prompts(const TrainText *text) {
    return text->source->reads && !text->source->hides;
}

static Dataset *encode_text(TrainText *text, const CliArgs *args, const char *path, int seq,
                            int vocab, Diag *diag) {
    const Tokenizer *tokenizer = text->tokenizer;
    const bool pairs = reads_prompts(text);
    bool narrow = tokenizer->n_ids <= 65536 && !(pairs && text->source->spans.pad > 65535) &&
                  !text->images->reads;
    if (text->classes->reads) narrow &= text->classes->labels == CLASS_ONE; /* rows of a table */
    TokenBuffer buffer = {.token_bytes = narrow ? 2 : 4};
    CorpusOptions options;
    CorpusTotals totals;
    ProgressLine line = progress_line_start("MiB encoded");
    if (!corpus_options_from_args(args, tokenizer, &options, diag) ||
        !fill_middle_from_args(args, tokenizer, &options.fim, diag)) {
        return NULL;
    }
    if (text->is_val) options.fim = NULL;
    options.unpaired = text->pairs->unpaired;
    options.preferences = text->pairs->reads && !text->pairs->single && !options.unpaired;
    options.classes = text->classes->names;
    options.n_classes = text->classes->n;
    options.labels = text->classes->labels;
    options.class_may_lack = text->classes->may_lack;
    options.each = cli_given(args, OPT_PREDICTIONS);
    options.between = text->classes->between;
    if (!train_classes_check_end(text->classes, options.last, diag)) return NULL;
    train_embed_options(text->embed, args, false, &options);
    train_images_options(text->images, args, tokenizer, &options);
    options.paths = &path;
    options.n_paths = 1;
    options.progress = cli_given(args, OPT_QUIET) ? NULL : show_bytes;
    options.progress_user = &line;
    bool good = corpus_encode(tokenizer, &options, keep_tokens, &buffer, &totals, diag);
    progress_line_end(&line);
    if (options.fim) {
        text->n_documents += totals.n_documents;
        text->n_filled += totals.n_filled;
    }
    good = good &&
           (text->pairs->reads     ? make_rows(text, &options, &buffer, path, diag)
            : text->classes->reads ? make_class_rows(text, args, &options, seq, &buffer, path, diag)
            : text->embed->reads   ? make_embed_rows(text, &buffer, path, diag)
            : text->images->reads  ? make_image_rows(text, args, &options, &buffer, path, diag)
            : pairs                ? pair(text, &options, &buffer, path, diag)
                                   : pack(text, args, &options, seq, &buffer, path, diag));
    if (!good) {
        token_buffer_release(&buffer);
        return NULL;
    }
    if (text->images->reads) vocab = train_images_vocab(text->images, vocab);
    DatasetTokens tokens = {.tokens = buffer.tokens,
                            .token_bytes = (int)buffer.token_bytes,
                            .n_tokens = (int64_t)buffer.n_tokens,
                            .counts = token_buffer_take_mask(&buffer)};
    const int64_t n_rows = text->classes->table.n; /* labels, among the tokens */
    return dataset_from_tokens(path, tokens, seq, n_rows > vocab ? (int)n_rows : vocab, diag);
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
    bool found =
        file_map(path, &map, quiet) && token_file_is_tokens(path, map.data, map.length_bytes);
    file_unmap(&map);
    diag_destroy(quiet);
    arena_destroy(arena);
    return found;
}

bool train_text_is_tokens(const CliArgs *args, const char *path) {
    return cli_given(args, OPT_TOKEN_BYTES) || has_tokens(path);
}

static bool is_lines(const char *path) {
    size_t n = strlen(path);
    return n > 6 && strcmp(path + n - 6, ".jsonl") == 0;
}

bool train_text_check_use(const TrainText *text, const CliArgs *args, const char *path,
                          Diag *diag) {
    static const CliOption OF_TEXT[] = {OPT_EOT,       OPT_BOS,  OPT_SEPARATOR,     OPT_FIELD,
                                        OPT_SPECIAL,   OPT_PACK, OPT_CHAT_TEMPLATE, OPT_CHAT_SET,
                                        OPT_PACK_LONG, OPT_FIM};
    if (!text->tokenizer || text->n_texts > 0) return true;
    for (size_t i = 0; i < sizeof(OF_TEXT) / sizeof(OF_TEXT[0]); i++) {
        if (!cli_given(args, OF_TEXT[i])) continue;
        diag_error(diag, (SourceLoc){path, 0},
                   "is tokens already; --%s belongs to `tokenizer encode`, which made them",
                   CLI_OPTIONS[OF_TEXT[i]].name);
        return false;
    }
    return true;
}

static bool check_classes(const TrainText *text, const CliArgs *args, const char *path, bool plain,
                          Diag *diag) {
    const char *why = NULL;
    if (plain) {
        why = "the plan's model tells classes of texts: they are lines of .jsonl, or rows of "
              "Parquet, each a text and its label, which --tokenizer FILE takes apart";
    } else if (cli_given(args, OPT_SEPARATOR)) {
        why = "--separator: texts of classes are lines of .jsonl, or rows of Parquet";
    } else if (cli_given(args, OPT_PACK) && !text->classes->packs_apart) {
        why = "--pack: texts in one row would see each other: plan with --set documents=, the "
              "token that stands between them";
    }
    if (why) diag_error(diag, (SourceLoc){path, 0}, "%s", why);
    return !why;
}

static bool check_filling(const TrainText *text, const CliArgs *args, const char *path,
                          Diag *diag) {
    const char *of = text->pairs->reads                    ? "answers"
                     : text->classes->reads                ? "texts and their classes"
                     : text->embed->reads                  ? "texts that belong together"
                     : text->images->reads                 ? "texts with images"
                     : text->source && text->source->reads ? "what an encoder reads"
                                                           : NULL;
    if (!of || !cli_given(args, OPT_FIM)) return true;
    diag_error(diag, (SourceLoc){path, 0},
               "--fim: the plan learns from %s, not from running text, which has a middle", of);
    return false;
}

Dataset *train_text_open(TrainText *text, const CliArgs *args, const char *path, int seq, int vocab,
                         Diag *diag) {
    bool plain = !text->tokenizer || train_text_is_tokens(args, path);
    text->n_texts += !plain;
    if (reads_prompts(text) && (plain || cli_given(args, OPT_PACK))) {
        diag_error(diag, (SourceLoc){path, 0},
                   plain ? "the plan's encoder reads prompts: they are lines of .jsonl, which "
                           "--tokenizer FILE takes apart"
                         : "--pack: prompts and completions are not packed; each has its window");
        return NULL;
    }
    static const CliOption NOT_OF_PAIRS[] = {OPT_PACK, OPT_FIELD, OPT_SEPARATOR};
    for (int i = 0; text->pairs->reads && i < 3; i++) {
        if (!cli_given(args, NOT_OF_PAIRS[i])) continue;
        if (text->pairs->single && NOT_OF_PAIRS[i] != OPT_PACK) continue;
        diag_error(diag, (SourceLoc){path, 0},
                   "--%s: the plan learns from %s, each a line with rows of its own",
                   CLI_OPTIONS[NOT_OF_PAIRS[i]].name,
                   text->pairs->unpaired ? "answers" : "pairs of answers");
        return NULL;
    }
    if (text->classes->reads && !check_classes(text, args, path, plain, diag)) return NULL;
    if (!train_embed_check_options(text->embed, args, path, plain, diag) ||
        !train_images_check_options(text->images, args, path, plain, diag)) {
        return NULL;
    }
    if (text->embed->reads && cli_given(args, OPT_FIELD)) {
        diag_error(
            diag, (SourceLoc){path, 0},
            "--field: texts to learn vectors from are in 'query', 'positive' and their like");
        return NULL;
    }
    if (text->source && text->source->hides && cli_given(args, OPT_PACK)) {
        diag_error(diag, (SourceLoc){path, 0},
                   "--pack: the plan hides spans of running text, which has no documents");
        return NULL;
    }
    if (!check_filling(text, args, path, diag)) return NULL;
    if (!plain) return encode_text(text, args, path, seq, vocab, diag);
    if (text->pairs->single) {
        diag_error(diag, (SourceLoc){path, 0},
                   "answers are texts, chats, or prompts with completions, which --tokenizer FILE "
                   "takes apart");
        return NULL;
    }
    if (text->pairs->reads && !text->tokenizer && is_lines(path)) {
        diag_error(diag, (SourceLoc){path, 0},
                   text->pairs->unpaired ? "prompts and answers are taken apart by --tokenizer FILE"
                                         : "pairs of answers are taken apart by --tokenizer FILE");
        return NULL;
    }
    return dataset_open(path, seq, vocab, (int)cli_int(args, OPT_TOKEN_BYTES, 1), diag);
}

int64_t train_text_count_bytes(const TrainText *text, const Engine *engine, const int32_t *labels,
                               int64_t n) {
    int64_t bytes = 0;
    const bool says_tokens = !text->classes->reads && !text->embed->reads;
    for (int64_t i = 0; text->tokenizer && says_tokens && i < n; i++) {
        size_t length;
        uint32_t label = (uint32_t)labels[i];
        if (!engine_counts_label(engine, labels[i])) continue;
        tokenizer_text(text->tokenizer, label, &length);
        if (!tokenizer_is_special(text->tokenizer, label)) bytes += (int64_t)length;
    }
    return bytes;
}
