/* perilune tokenizer train and encode: text files -> a tokenizer, or tokens. */
#include "frontend/commands/pack_args.h"
#include "frontend/commands/tokenizer_args.h"
#include "frontend/commands/train_pairs.h"
#include "frontend/progress_line.h"
#include "ir/base/file.h"
#include "ir/base/utf8.h"
#include "runtime/data/token_mask.h"
#include "runtime/data/token_writer.h"
#include "runtime/tokenizer/fill_middle.h"
#include "runtime/tokenizer/train_bpe.h"
#include "runtime/tokenizer/write_json.h"

#include <inttypes.h>
#include <string.h>

/* Of distinct words. Learning a Unigram takes some 20 times as much. */
#define MOST_COUNT_BYTES   ((size_t)1 << 30)
#define MOST_UNIGRAM_BYTES ((size_t)1 << 28)

/* --- progress --- */

static void show_bytes(void *user, int64_t n_done, int64_t n_all) {
    progress_line_show(user, (int)(n_done >> 20), (int)(n_all >> 20), "");
}

static void show_tokens(void *user, int64_t n_done, int64_t n_all) {
    progress_line_show(user, (int)n_done, (int)n_all, "");
}

static void start_progress(const CliArgs *args, ProgressLine *line, const char *done,
                           CorpusOptions *options) {
    *line = progress_line_start(done);
    if (cli_given(args, OPT_QUIET)) return;
    options->progress = show_bytes;
    options->progress_user = line;
}

/* --- train --- */

static bool check_special(const char *const *special, int n_special, Diag *diag) {
    for (int i = 0; i < n_special; i++) {
        size_t length = strlen(special[i]);
        bool good = length > 0 && length <= ADDED_TOKEN_MOST_BYTES &&
                    utf8_valid_bytes((const unsigned char *)special[i], length) == length;
        for (int k = 0; k < i; k++) good = good && strcmp(special[i], special[k]) != 0;
        if (good) continue;
        diag_error(diag, NO_LOC,
                   "--special-token: '%.60s' is empty, longer than %d bytes, not UTF-8, or given "
                   "twice",
                   special[i], ADDED_TOKEN_MOST_BYTES);
        return false;
    }
    return true;
}

/* Text that is merged must not become a token that is spelled as a special one. */
static bool check_spellings(const TrainedBpe *trained, const char *const *special, int n_special,
                            Diag *diag) {
    for (int i = 0; i < n_special; i++) {
        uint32_t id = vocabulary_find(&trained->vocabulary, special[i], strlen(special[i]));
        if (id == NO_TOKEN) continue;
        diag_error(diag, NO_LOC, "--special-token: '%.60s' is a token of the text, too",
                   special[i]);
        return false;
    }
    return true;
}

static int learn_bpe(CliArgs *args, const WordCounts *counts, const char *pattern,
                     const char *const *special, int n_special, Diag *diag) {
    const char *path = cli_text(args, OPT_OUTPUT, NULL);
    int64_t vocab = cli_int(args, OPT_VOCAB, 0);
    TrainedBpe trained;
    ProgressLine line = progress_line_start("tokens");
    bool quiet = cli_given(args, OPT_QUIET);
    TrainOptions options = {.n_special = (uint32_t)n_special,
                            .n_tokens = (uint32_t)vocab,
                            .least_count = cli_int(args, OPT_MIN_COUNT, 2),
                            .progress = quiet ? NULL : show_tokens,
                            .progress_user = &line};
    train_bpe(counts, &options, &trained);
    double seconds = progress_line_end(&line);
    int status = EXIT_DONE;
    if (!check_spellings(&trained, special, n_special, diag)) {
        status = EXIT_USAGE;
    } else {
        StrBuf text = strbuf_create();
        write_tokenizer_json(&text, &trained, pattern, special, n_special);
        if (!cli_write(path, &text, diag)) status = EXIT_FAILED;
        strbuf_destroy(&text);
    }
    if (status == EXIT_DONE && !quiet && strcmp(path, "-") != 0) {
        printf("vocab   %u tokens: %d special, 256 bytes, %zu merged in %.1f s\n",
               trained.vocabulary.n_ids, n_special,
               (size_t)trained.vocabulary.n_ids - 256 - (size_t)n_special, seconds);
        if (trained.vocabulary.n_ids < vocab) {
            printf("note    fewer than %" PRId64 ": no other pair is there %" PRId64 " times\n",
                   vocab, options.least_count);
        }
        printf("wrote   %s\n", path);
    }
    trained_bpe_release(&trained);
    return status;
}

static int count_and_learn(CliArgs *args, const Tokenizer *divider, bool is_unigram, Diag *diag) {
    static const char *const DEFAULT_SPECIAL[] = {"<|endoftext|>"};
    const CliValue *given = &args->values[OPT_SPECIAL_TOKEN];
    const char *const *special = given->given ? given->list : DEFAULT_SPECIAL;
    int n_special = given->given ? given->n_list : 1;
    WordCounts counts = {0};
    CorpusOptions options;
    CorpusTotals totals;
    ProgressLine line;
    int64_t pruned;
    if (!corpus_options_from_args(args, NULL, &options, diag) ||
        !check_special(special, n_special, diag)) {
        return EXIT_USAGE;
    }
    if (!is_unigram && cli_int(args, OPT_VOCAB, 0) < 256 + n_special) {
        diag_error(diag, NO_LOC, "--vocab: 256 bytes and %d special token%s need %d", n_special,
                   n_special == 1 ? "" : "s", 256 + n_special);
        return EXIT_USAGE;
    }
    options.paths = args->operands + 1;
    options.n_paths = args->n_operands - 1;
    options.reads_input = true;
    start_progress(args, &line, "MiB read", &options);
    bool good = corpus_count(divider, &options, is_unigram ? MOST_UNIGRAM_BYTES : MOST_COUNT_BYTES,
                             &counts, &pruned, &totals, diag);
    double seconds = progress_line_end(&line);
    int status = EXIT_USAGE;
    if (good && counts.n_items == 0) {
        diag_error(diag, NO_LOC, "tokenizer train: there is no text in what was given");
    } else if (good) {
        const char *path = cli_text(args, OPT_OUTPUT, "");
        if (!cli_given(args, OPT_QUIET) && strcmp(path, "-") != 0) {
            printf("text    %" PRId64 " documents, %" PRId64 " bytes; %zu distinct words, %.1f s\n",
                   totals.n_documents, totals.n_bytes, counts.n_items, seconds);
            if (pruned) {
                printf("note    words seen up to %" PRId64 " times were forgotten on the way, to "
                       "save memory\n",
                       pruned);
            }
            fflush(stdout);
        }
        status = (is_unigram ? tokenizer_learn_unigram : learn_bpe)(args, &counts, divider->pattern,
                                                                    special, n_special, diag);
    }
    word_counts_release(&counts);
    return status;
}

/* -1, or the exit code: an unknown --type, or an option of the other. */
static int check_type(const CliArgs *args, bool *out_is_unigram) {
    static const CliOption OF_UNIGRAM[] = {OPT_COVERAGE, OPT_MAX_PIECE};
    const char *type = cli_text(args, OPT_TOKENIZER_TYPE, "bpe");
    *out_is_unigram = strcmp(type, "unigram") == 0;
    if (!*out_is_unigram && strcmp(type, "bpe") != 0) {
        return cli_usage_error("tokenizer train: --type: '%s' is neither bpe nor unigram", type);
    }
    if (*out_is_unigram && cli_given(args, OPT_MIN_COUNT)) {
        return cli_usage_error("tokenizer train: --min-count: is for --type bpe, which merges");
    }
    for (int i = 0; !*out_is_unigram && i < 2; i++) {
        if (!cli_given(args, OF_UNIGRAM[i])) continue;
        return cli_usage_error("tokenizer train: --%s: is for --type unigram only",
                               CLI_OPTIONS[OF_UNIGRAM[i]].name);
    }
    return -1;
}

int tokenizer_train(CliArgs *args, Diag *diag) {
    const char *name = cli_text(args, OPT_PATTERN, "gpt2"), *known = pattern_by_name(name);
    bool is_unigram;
    int wrong = check_type(args, &is_unigram);
    if (wrong >= 0) return wrong;
    if (args->n_operands < 2) {
        return cli_usage_error("tokenizer train: which TEXT? see perilune help tokenizer");
    }
    if (!cli_given(args, OPT_VOCAB) || !cli_given(args, OPT_OUTPUT)) {
        return cli_usage_error("tokenizer train: needs --vocab N and -o FILE");
    }
    Tokenizer *divider = tokenizer_create(); /* of text into words; it has no tokens */
    int status = EXIT_USAGE;
    divider->pattern = arena_strdup(divider->arena, known ? known : name);
    divider->byte_level = !is_unigram;
    divider->steps.items[0].pattern =
        pattern_compile(divider->pattern, PATTERN_ONIGURUMA, (SourceLoc){"--pattern", 0}, diag);
    if (divider->steps.items[0].pattern) {
        divider->steps.items[1] = (WordStep){.mark = SPACE_MARK};
        divider->steps.count = is_unigram ? 2 : 1;
        status = count_and_learn(args, divider, is_unigram, diag);
    }
    tokenizer_destroy(divider);
    return status;
}

/* --- encode --- */

/* Where tokens go: to the file, or into memory first, to be packed. */
typedef struct Encoding {
    CliArgs *args;
    const Tokenizer *tokenizer;
    CorpusOptions options;
    CorpusTotals totals;
    TokenWriter *writer;
    TokenBuffer buffer;
    PackOptions packing;
    PackTotals packed;
    PreferenceTotals pairs;
    Diag *diag;
} Encoding;

/* Has all of it to be in memory before it is written? */
static bool is_kept(const CliArgs *args) {
    return cli_given(args, OPT_PACK_SEQ) || cli_given(args, OPT_PREFERENCES);
}

static bool put_tokens(void *user, const uint32_t *tokens, const unsigned char *marks, size_t count,
                       Diag *diag) {
    Encoding *encoding = user;
    if (is_kept(encoding->args)) {
        return token_buffer_put(&encoding->buffer, tokens, marks, count, diag);
    }
    return token_writer_put(encoding->writer, tokens, marks, count, diag);
}

static bool make_windows(Encoding *encoding) {
    const CliArgs *args = encoding->args;
    if (cli_given(args, OPT_PREFERENCES)) {
        const PreferenceOptions how = {.seq = (size_t)cli_int(args, OPT_PREFERENCES, 2),
                                       .pad =
                                           pack_padding(encoding->tokenizer, &encoding->options)};
        return preference_rows(&encoding->buffer, &how, &encoding->pairs, encoding->diag);
    }
    encoding->packing = pack_options_from_args(args, encoding->tokenizer, &encoding->options,
                                               cli_int(args, OPT_PACK_SEQ, 0));
    return pack_documents(&encoding->buffer, &encoding->packing, &encoding->packed, encoding->diag);
}

/* Nothing to be done without --pack and --preferences. */
static bool pack_and_put(Encoding *encoding) {
    enum { AT_ONCE = 4096 };
    TokenBuffer *buffer = &encoding->buffer;
    uint32_t tokens[AT_ONCE];
    if (!is_kept(encoding->args)) return true;
    if (!make_windows(encoding)) return false;
    encoding->totals.n_counted = 0;
    for (size_t at = 0; at < buffer->n_tokens; at += AT_ONCE) {
        size_t n = buffer->n_tokens - at < AT_ONCE ? buffer->n_tokens - at : AT_ONCE;
        for (size_t i = 0; i < n; i++) {
            tokens[i] = token_buffer_at(buffer, at + i);
            encoding->totals.n_counted += buffer->marks[at + i] & TOKEN_COUNTS;
        }
        if (!token_writer_put(encoding->writer, tokens, buffer->marks + at, n, encoding->diag)) {
            return false;
        }
    }
    return true;
}

static void print_encoding(const Encoding *encoding, const char *path, const char *mask,
                           double seconds) {
    const CorpusTotals *totals = &encoding->totals;
    bool packed = cli_given(encoding->args, OPT_PACK_SEQ);
    double n_bytes = (double)totals->n_bytes, n_tokens = (double)totals->n_tokens;
    int64_t n_put =
        packed ? encoding->packed.n_tokens + encoding->packed.n_padding : totals->n_tokens;
    int bits = encoding->tokenizer->n_ids <= 65536 ? 16 : 32;
    printf("text    %" PRId64 " documents, %" PRId64 " bytes\n", totals->n_documents,
           totals->n_bytes);
    if (encoding->options.fim) {
        printf("filling %" PRId64 " documents with their middle last, %.1f %%\n", totals->n_filled,
               100 * (double)totals->n_filled / (double)totals->n_documents);
    }
    if (packed) pack_print(&encoding->packed, &encoding->packing);
    train_pairs_print(&(TrainPairs){.totals = encoding->pairs});
    if (encoding->pairs.n_pairs) {
        n_put = 2 * encoding->pairs.n_pairs * cli_int(encoding->args, OPT_PREFERENCES, 2);
    }
    printf("tokens  %" PRId64 " of %d bits, %.3f bytes of text each; %.1f s, %.1f MB/s\n", n_put,
           bits, n_bytes / n_tokens, seconds, seconds > 0 ? 1e-6 * n_bytes / seconds : 0);
    if (mask) {
        printf("labels  %" PRId64 " of them count, %.1f %%", totals->n_counted,
               100 * (double)totals->n_counted / (double)n_put);
        if (totals->n_unanswered > 0) {
            printf("; in %" PRId64 " conversations nothing does", totals->n_unanswered);
        }
        printf("\n");
    }
    printf("wrote   %s\n", path);
    if (mask) printf("wrote   %s\n", mask);
}

static bool run_encoding(Encoding *encoding, double *out_seconds) {
    ProgressLine line;
    start_progress(encoding->args, &line, "MiB encoded", &encoding->options);
    bool good = corpus_encode(encoding->tokenizer, &encoding->options, put_tokens, encoding,
                              &encoding->totals, encoding->diag);
    *out_seconds = progress_line_end(&line);
    if (good && encoding->totals.n_tokens == 0) {
        diag_error(encoding->diag, NO_LOC, "tokenizer encode: there is no text in what was given");
        return false;
    }
    return good && pack_and_put(encoding);
}

static int encode_files(CliArgs *args, const Tokenizer *tokenizer, Diag *diag) {
    const char *path = cli_text(args, OPT_OUTPUT, NULL);
    size_t token_bytes = tokenizer->n_ids <= 65536 ? 2 : 4;
    Encoding encoding = {
        .args = args, .tokenizer = tokenizer, .buffer = {.token_bytes = token_bytes}, .diag = diag};
    double seconds;
    if (!pack_check_args(args, cli_given(args, OPT_PACK_SEQ), diag) ||
        !corpus_options_from_args(args, tokenizer, &encoding.options, diag) ||
        !fill_middle_from_args(args, tokenizer, &encoding.options.fim, diag)) {
        return EXIT_USAGE;
    }
    static const CliOption OTHERS[] = {OPT_PACK_SEQ, OPT_FIELD, OPT_SEPARATOR, OPT_FIM};
    encoding.options.preferences = cli_given(args, OPT_PREFERENCES);
    for (int i = 0; encoding.options.preferences && i < 4; i++) {
        if (!cli_given(args, OTHERS[i])) continue;
        diag_error(diag, NO_LOC, "tokenizer encode: --preferences and --%s: one of them",
                   CLI_OPTIONS[OTHERS[i]].name);
        return EXIT_USAGE;
    }
    encoding.options.paths = args->operands + 2;
    encoding.options.n_paths = args->n_operands - 2;
    encoding.options.reads_input = true;
    encoding.writer = token_writer_open(path, (int)token_bytes, diag);
    if (!encoding.writer) return EXIT_USAGE;
    bool good = run_encoding(&encoding, &seconds);
    token_buffer_release(&encoding.buffer);
    if (!good) {
        int status = token_writer_failed(encoding.writer) ? EXIT_FAILED : EXIT_USAGE;
        token_writer_abandon(encoding.writer);
        return status;
    }
    const char *mask = token_writer_mask(encoding.writer);
    if (mask) mask = arena_strdup(args->arena, mask);
    if (!token_writer_commit(encoding.writer, diag)) return EXIT_FAILED;
    if (!cli_given(args, OPT_QUIET)) print_encoding(&encoding, path, mask, seconds);
    return EXIT_DONE;
}

static bool encode_given(Encoder *encoder, const char *given, const CorpusOptions *options,
                         TokenList *tokens, Diag *diag) {
    const unsigned char *text = (const unsigned char *)given;
    const size_t length = strlen(given);
    const EncoderOutput out = {.tokens = tokens};
    MiddleCut cut;
    if (options->fim && fill_middle_draw(options->fim, text, length, &cut)) {
        return fill_middle_encode(options->fim, encoder, text, length, &cut, options->with_special,
                                  tokens, "--text", diag);
    }
    return encoder_encode(encoder, text, length, options->with_special, &out, "--text", diag);
}

/* Of --text, one line of numbers. */
static int encode_text(CliArgs *args, const Tokenizer *tokenizer, Diag *diag) {
    const char *text = cli_text(args, OPT_TEXT, "");
    CorpusOptions options;
    TokenList tokens = {0};
    if (!corpus_options_from_args(args, tokenizer, &options, diag) ||
        !fill_middle_from_args(args, tokenizer, &options.fim, diag)) {
        return EXIT_USAGE;
    }
    if (options.first != NO_TOKEN) token_list_add(&tokens, options.first);
    Encoder *encoder = encoder_create(tokenizer);
    bool good = encode_given(encoder, text, &options, &tokens, diag);
    if (options.last != NO_TOKEN) token_list_add(&tokens, options.last);
    StrBuf line = strbuf_create();
    for (size_t i = 0; i < tokens.count; i++) {
        strbuf_printf(&line, "%s%u", i ? " " : "", tokens.items[i]);
    }
    strbuf_put(&line, "\n");
    int status = EXIT_USAGE;
    if (good) status = cli_write(NULL, &line, diag) ? EXIT_DONE : EXIT_FAILED;
    strbuf_destroy(&line);
    token_list_release(&tokens);
    encoder_destroy(encoder);
    return status;
}

int tokenizer_encode(CliArgs *args, Diag *diag) {
    bool has_text = cli_given(args, OPT_TEXT), has_files = args->n_operands > 2;
    if (args->n_operands < 2 || has_text == has_files) {
        return cli_usage_error("tokenizer encode: takes TOKENIZER and either TEXT... or --text");
    }
    if (has_files != cli_given(args, OPT_OUTPUT)) {
        return cli_usage_error(has_files ? "tokenizer encode: which file to write? give -o FILE"
                                         : "tokenizer encode: --text: prints; -o is for files");
    }
    static const CliOption OF_FILES[] = {OPT_PACK_SEQ, OPT_PACK_LONG, OPT_CHAT_TEMPLATE,
                                         OPT_CHAT_SET, OPT_PREFERENCES};
    for (int i = 0; has_text && i < 5; i++) {
        if (!cli_given(args, OF_FILES[i])) continue;
        return cli_usage_error("tokenizer encode: --text: has no use for --%s",
                               CLI_OPTIONS[OF_FILES[i]].name);
    }
    if (has_files && strcmp(cli_text(args, OPT_OUTPUT, ""), "-") == 0) {
        return cli_usage_error("tokenizer encode: -o: takes a file, not standard output");
    }
    Tokenizer *tokenizer =
        tokenizer_load(args->operands[1], cli_text(args, OPT_PATTERN, NULL), diag);
    if (!tokenizer) return EXIT_USAGE;
    int status =
        has_text ? encode_text(args, tokenizer, diag) : encode_files(args, tokenizer, diag);
    tokenizer_destroy(tokenizer);
    return status;
}
