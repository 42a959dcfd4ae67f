/* perilune tokenizer: train, encode (tokenizer_work.c), decode, show. */
#include "frontend/commands/tokenizer_args.h"
#include "ir/base/file.h"
#include "ir/base/json.h"
#include "ir/base/utf8.h"
#include "runtime/data/token_file.h"
#include "runtime/tokenizer/chat_template.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_LISTED = 20 };

/* --- show --- */

/* What a file says, in a line of a terminal. */
static void put_shown(StrBuf *out, const char *text, size_t length) {
    const size_t start = out->length;
    strbuf_put_bytes(out, text, length);
    utf8_keep_printable(out->text + start);
}

static void show_special_text(StrBuf *out, const Tokenizer *tokenizer) {
    const AddedTokens *added = &tokenizer->added;
    int n_listed = 0, n_special = 0;
    for (int i = 0; i < added->count; i++) n_special += added->items[i].special;
    strbuf_printf(out, "special   %d", n_special);
    for (int i = 0; i < added->count && n_listed < MOST_LISTED; i++) {
        if (!added->items[i].special) continue;
        strbuf_put(out, n_listed++ ? ", " : ": ");
        put_shown(out, added->items[i].text, strlen(added->items[i].text));
        strbuf_printf(out, " %u", added->items[i].id);
    }
    strbuf_put(out, n_special > n_listed ? ", ... (--json lists all)\n" : "\n");
    if (added->count > n_special) {
        strbuf_printf(out, "added     %d that are found in any text\n", added->count - n_special);
    }
}

static const char *kind_of(const Tokenizer *tokenizer) {
    if (tokenizer->kind == TOKENIZER_UNIGRAM) return "Unigram";
    if (tokenizer->kind == TOKENIZER_WORDPIECE) return "WordPiece";
    return tokenizer->byte_level ? "byte-level BPE"
                                 : "BPE of characters with bytes to fall back on";
}

/* Metaspace's step, or one like it. */
static bool divides(const Tokenizer *tokenizer) {
    for (int i = 0; i < tokenizer->steps.count; i++) {
        if (tokenizer->steps.items[i].pattern) return true;
    }
    return false;
}

static void show_text(StrBuf *out, const Tokenizer *tokenizer) {
    const char *name = tokenizer->pattern ? pattern_name_of(tokenizer->pattern) : NULL;
    uint32_t end = tokenizer_end_of_text(tokenizer), n_tokens = tokenizer_count_tokens(tokenizer);
    strbuf_printf(out, "kind      %s, from a %s file\n", kind_of(tokenizer), tokenizer->format);
    strbuf_printf(out, "vocab     %u", tokenizer->n_ids);
    if (n_tokens != tokenizer->n_ids) strbuf_printf(out, " ids, of which %u are tokens", n_tokens);
    if (tokenizer->kind == TOKENIZER_BPE) {
        strbuf_printf(out, "; %zu pairs are merged", tokenizer->vocabulary.n_pairs);
    }
    strbuf_put(out, "\n");
    const char *names = tokenizer->normalizer.names;
    if (names) strbuf_printf(out, "text      normalized: %s\n", names);
    const char *pattern = name                 ? name
                          : tokenizer->pattern ? tokenizer->pattern
                          : divides(tokenizer) ? "none: words begin at spaces"
                                               : "none: words are not divided";
    strbuf_put(out, "pattern   ");
    put_shown(out, pattern, strlen(pattern));
    strbuf_put(out, "\n");
    show_special_text(out, tokenizer);
    size_t length;
    const char *text = tokenizer_text(tokenizer, end, &length);
    if (length && text[0] == ' ') text++, length--;
    if (end != NO_TOKEN) {
        strbuf_put(out, "--eot auto ");
        put_shown(out, text, length);
        strbuf_put(out, "\n");
    }
    Diag *quiet = diag_create();
    const ChatTemplate *chat = chat_template_detect(tokenizer, tokenizer->arena, quiet);
    if (chat) strbuf_printf(out, "chats     as %s, if --chat-template does not say\n", chat->name);
    diag_destroy(quiet);
}

static bool show_json(StrBuf *out, const Tokenizer *tokenizer) {
    json_t *special = json_array();
    for (int i = 0; i < tokenizer->added.count; i++) {
        const AddedToken *token = &tokenizer->added.items[i];
        json_array_append_new(special, json_pack("{s:i, s:s, s:b}", "id", (int)token->id, "text",
                                                 token->text, "special", token->special));
    }
    json_t *root = json_pack(
        "{s:s, s:s, s:i, s:i, s:I, s:s?, s:s?, s:o}", "format", tokenizer->format, "kind",
        kind_of(tokenizer), "vocab", (int)tokenizer->n_ids, "tokens",
        (int)tokenizer_count_tokens(tokenizer), "pairs", (json_int_t)tokenizer->vocabulary.n_pairs,
        "pattern", tokenizer->pattern, "normalizer", tokenizer->normalizer.names, "added", special);
    char *text = root ? json_dumps(root, JSON_INDENT(2)) : NULL;
    if (text) strbuf_printf(out, "%s\n", text);
    free(text);
    json_decref(root);
    return text != NULL;
}

static int show(CliArgs *args, Diag *diag) {
    if (args->n_operands != 2) return cli_usage_error("tokenizer show: takes one TOKENIZER");
    Tokenizer *tokenizer =
        tokenizer_load(args->operands[1], cli_text(args, OPT_PATTERN, NULL), diag);
    if (!tokenizer) return EXIT_USAGE;
    StrBuf out = strbuf_create();
    bool good = true;
    if (cli_given(args, OPT_JSON)) {
        good = show_json(&out, tokenizer);
        if (!good) diag_error(diag, NO_LOC, "tokenizer show: its texts cannot be written as JSON");
    } else {
        show_text(&out, tokenizer);
    }
    good = good && cli_write(NULL, &out, diag);
    strbuf_destroy(&out);
    tokenizer_destroy(tokenizer);
    return good ? EXIT_DONE : EXIT_FAILED;
}

/* --- decode --- */

/* Text on its way to a file, or to standard output. */
typedef struct Decoding {
    const Tokenizer *tokenizer;
    bool with_special;
    FileWriter *writer; /* NULL: standard output */
    bool is_first;      /* nothing has been written yet */
    bool failed;        /* writing has */
    Diag *diag;
} Decoding;

static bool put_text(Decoding *decoding, const char *text, size_t length) {
    bool first = decoding->is_first && length > 0;
    if (first && decoding->tokenizer->strips_space && text[0] == ' ') {
        text++;
        length--;
    }
    if (first) decoding->is_first = false;
    if (decoding->writer) {
        decoding->failed = !file_writer_put(decoding->writer, text, length, decoding->diag);
    } else if (fwrite(text, 1, length, stdout) != length) {
        decoding->failed = true;
        diag_error(decoding->diag, NO_LOC, "standard output: %s", strerror(errno));
    }
    return !decoding->failed;
}

/* file: NULL where it comes from --ids. */
static bool put_token(Decoding *decoding, uint64_t token, const TokenFile *file, int64_t position) {
    size_t length = 0;
    const char *text = "";
    if (token < decoding->tokenizer->n_ids) {
        text = tokenizer_text(decoding->tokenizer, (uint32_t)token, &length);
    }
    if (length == 0) {
        char number[TOKEN_NUMBER_CHARS];
        token_file_number(file ? file : &(TokenFile){0}, token, number);
        diag_error(decoding->diag, (SourceLoc){file ? file->path : "--ids", 0},
                   "token %s at position %" PRId64 " is none of the tokenizer's, which end at %u",
                   number, position, decoding->tokenizer->n_ids - 1);
        return false;
    }
    if (!decoding->with_special && tokenizer_is_special(decoding->tokenizer, (uint32_t)token)) {
        return true;
    }
    return put_text(decoding, text, length);
}

static bool decode_ids(Decoding *decoding, const char *ids) {
    const char *at = ids;
    for (int64_t position = 0; *(at += strspn(at, " ,\t\n")); position++) {
        char *end;
        errno = 0;
        uint64_t token = strtoull(at, &end, 10);
        if (!isdigit((unsigned char)*at) || errno || (*end && !strchr(" ,\t\n", *end))) {
            diag_error(decoding->diag, NO_LOC, "--ids: '%.20s' is not a token's number", at);
            return false;
        }
        if (!put_token(decoding, token, NULL, position)) return false;
        at = end;
    }
    return true;
}

static bool decode_file(Decoding *decoding, const CliArgs *args) {
    const char *path = args->operands[2];
    TokenFile file;
    if (!token_file_open(&file, path, (int)cli_int(args, OPT_TOKEN_BYTES, 1), decoding->diag)) {
        return false;
    }
    bool good = !file.is_text;
    if (!good) {
        diag_error(decoding->diag, (SourceLoc){path, 0},
                   "has no header of a token file; --token-bytes 2 or 4 reads one without");
    }
    for (int64_t i = 0; good && i < file.n_tokens; i++) {
        good = put_token(decoding, token_file_at(&file, i), &file, i);
    }
    token_file_close(&file);
    return good;
}

static int decode(CliArgs *args, Diag *diag) {
    const char *path = cli_text(args, OPT_OUTPUT, "-"), *ids = cli_text(args, OPT_IDS, NULL);
    if (ids && args->n_operands > 2) {
        return cli_usage_error("tokenizer decode: what is '%s'? --ids takes one argument: 5,6 or "
                               "\"5 6\"",
                               args->operands[2]);
    }
    if (args->n_operands != (ids ? 2 : 3)) {
        return cli_usage_error("tokenizer decode: takes TOKENIZER and either TOKENS or --ids");
    }
    if (cli_int(args, OPT_TOKEN_BYTES, 2) == 3) {
        return cli_usage_error("tokenizer decode: --token-bytes: 3 is none of 1, 2 and 4");
    }
    Tokenizer *tokenizer =
        tokenizer_load(args->operands[1], cli_text(args, OPT_PATTERN, NULL), diag);
    if (!tokenizer) return EXIT_USAGE;
    Decoding decoding = {.tokenizer = tokenizer,
                         .with_special = cli_given(args, OPT_SPECIAL),
                         .is_first = true,
                         .diag = diag};
    int status = EXIT_DONE;
    if (strcmp(path, "-") != 0) {
        decoding.writer = file_writer_open(path, diag);
        if (!decoding.writer) status = EXIT_USAGE;
    }
    if (status == EXIT_DONE && !(ids ? decode_ids(&decoding, ids) : decode_file(&decoding, args))) {
        status = decoding.failed ? EXIT_FAILED : EXIT_USAGE;
    }
    if (status != EXIT_DONE) {
        file_writer_abandon(decoding.writer);
    } else if (decoding.writer && !file_writer_commit(decoding.writer, diag)) {
        status = EXIT_FAILED;
    }
    tokenizer_destroy(tokenizer);
    return status;
}

/* --- verbs --- */

enum { VERB_TRAIN = 1, VERB_ENCODE = 2, VERB_DECODE = 4, VERB_SHOW = 8 };

static const struct {
    const char *name;
    int bit;
    int (*run)(CliArgs *args, Diag *diag);
} VERBS[] = {{"train", VERB_TRAIN, tokenizer_train},
             {"encode", VERB_ENCODE, tokenizer_encode},
             {"decode", VERB_DECODE, decode},
             {"show", VERB_SHOW, show}};
enum { N_VERBS = sizeof(VERBS) / sizeof(VERBS[0]) };

/* Which verbs have a use for an option. */
static const struct {
    CliOption option;
    int verbs;
} USES[] = {{OPT_TOKEN_BYTES, VERB_DECODE},
            {OPT_QUIET, VERB_TRAIN | VERB_ENCODE},
            {OPT_THREADS, VERB_TRAIN | VERB_ENCODE},
            {OPT_VOCAB, VERB_TRAIN},
            {OPT_SPECIAL_TOKEN, VERB_TRAIN},
            {OPT_MIN_COUNT, VERB_TRAIN},
            {OPT_TOKENIZER_TYPE, VERB_TRAIN},
            {OPT_COVERAGE, VERB_TRAIN},
            {OPT_MAX_PIECE, VERB_TRAIN},
            {OPT_EOT, VERB_ENCODE},
            {OPT_BOS, VERB_ENCODE},
            {OPT_FIM, VERB_ENCODE},
            {OPT_FIM_SPM, VERB_ENCODE},
            {OPT_FIM_TOKENS, VERB_ENCODE},
            {OPT_SEED, VERB_ENCODE},
            {OPT_SEPARATOR, VERB_TRAIN | VERB_ENCODE},
            {OPT_FIELD, VERB_TRAIN | VERB_ENCODE},
            {OPT_CHAT_TEMPLATE, VERB_ENCODE},
            {OPT_CHAT_SET, VERB_ENCODE},
            {OPT_PACK_SEQ, VERB_ENCODE},
            {OPT_PACK_LONG, VERB_ENCODE},
            {OPT_SPECIAL, VERB_ENCODE | VERB_DECODE},
            {OPT_TEXT, VERB_ENCODE},
            {OPT_IDS, VERB_DECODE},
            {OPT_JSON, VERB_SHOW},
            {OPT_OUTPUT, VERB_TRAIN | VERB_ENCODE | VERB_DECODE}};

/* -1, or the exit code: an option that the verb has no use for. */
static int check_options(const CliArgs *args, int verb) {
    for (size_t i = 0; i < sizeof(USES) / sizeof(USES[0]); i++) {
        if (!cli_given(args, USES[i].option) || (USES[i].verbs & VERBS[verb].bit)) continue;
        return cli_usage_error("tokenizer %s: has no use for --%s", VERBS[verb].name,
                               CLI_OPTIONS[USES[i].option].name);
    }
    return -1;
}

int cmd_tokenizer(CliArgs *args) {
    const char *names[N_VERBS + 1] = {0};
    int verb = 0;
    for (int i = 0; i < N_VERBS; i++) names[i] = VERBS[i].name;
    while (names[verb] && strcmp(names[verb], args->operand) != 0) verb++;
    if (verb == N_VERBS) {
        const char *nearest = nearest_name(args->operand, names);
        return nearest ? cli_usage_error("tokenizer: unknown '%s'; did you mean %s?", args->operand,
                                         nearest)
                       : cli_usage_error("tokenizer: '%s' is not train, encode, decode or show",
                                         args->operand);
    }
    int status = check_options(args, verb);
    if (status >= 0) return status;
    Diag *diag = diag_create();
    status = VERBS[verb].run(args, diag);
    cli_fail(diag, status);
    diag_destroy(diag);
    return status;
}
