/* perilune tokenizer train --type unigram: counts of words -> a Unigram's tokenizer.json. */
#include "frontend/commands/tokenizer_args.h"
#include "frontend/progress_line.h"
#include "ir/base/utf8.h"
#include "runtime/tokenizer/train_unigram.h"
#include "runtime/tokenizer/write_json.h"

#include <inttypes.h>
#include <string.h>

enum { N_BYTES = 256, LEAST_SEEDS = 1000000 };
#define UNKNOWN "<unk>"

static void show_passes(void *user, int64_t n_done, int64_t n_all) {
    progress_line_show(user, (int)n_done, (int)n_all, "");
}

/* The least --vocab is what specials, bytes and characters need. */
static bool check_size(const CliArgs *args, const UnigramText *text, int n_special, Diag *diag) {
    int64_t least = (int64_t)n_special + N_BYTES + text->n_characters;
    if (cli_int(args, OPT_VOCAB, 0) >= least) return true;
    diag_error(
        diag, NO_LOC,
        "--vocab: %d special tokens, %d bytes and the %u characters that --coverage asks for "
        "need %" PRId64 "; give as many, or a lower --coverage",
        n_special, N_BYTES, text->n_characters, least);
    return false;
}

/* Longer pieces that are spelled as special tokens are left out; characters and bytes cannot be. */
static bool check_spellings(const UnigramText *text, const char *const *special, int n_special,
                            Diag *diag) {
    for (int i = 0; i < n_special; i++) {
        unsigned char bytes[5] = {0};
        for (int b = 0; b < N_BYTES; b++) {
            char spelling[8];
            snprintf(spelling, sizeof(spelling), "<0x%02X>", (unsigned)b);
            if (strcmp(spelling, special[i]) != 0) continue;
            diag_error(diag, NO_LOC, "--special-token: '%s' is how a byte is spelled", special[i]);
            return false;
        }
        for (uint32_t c = 0; c < text->n_characters; c++) {
            bytes[utf8_write(text->characters[c].character, bytes)] = 0;
            if (strcmp((const char *)bytes, special[i]) != 0) continue;
            diag_error(diag, NO_LOC, "--special-token: '%.60s' is a token of the text, too",
                       special[i]);
            return false;
        }
    }
    return true;
}

static void print_result(const CliArgs *args, const UnigramText *text,
                         const TrainedUnigram *trained, int n_special, double seconds) {
    int64_t vocab = cli_int(args, OPT_VOCAB, 0);
    int64_t n = (int64_t)n_special + N_BYTES + trained->pieces.n_ids;
    printf("vocab   %" PRId64 " tokens: %d special, 256 bytes, %u characters, %u longer pieces in "
           "%.1f s\n",
           n, n_special, text->n_characters, trained->pieces.n_ids - text->n_characters, seconds);
    if (n < vocab) {
        printf("note    fewer than %" PRId64 ": no other pieces are there twice\n", vocab);
    }
    printf("wrote   %s\n", cli_text(args, OPT_OUTPUT, ""));
}

static int learn(CliArgs *args, const UnigramText *text, const char *pattern,
                 const char *const *special, int n_special, Diag *diag) {
    const char *path = cli_text(args, OPT_OUTPUT, "");
    int64_t vocab = cli_int(args, OPT_VOCAB, 0);
    bool quiet = cli_given(args, OPT_QUIET);
    int unknown = 0;
    TrainedUnigram trained;
    ProgressLine line = progress_line_start("passes");
    UnigramOptions options = {.n_pieces = (uint32_t)(vocab - n_special - N_BYTES),
                              .most_characters = (int)cli_int(args, OPT_MAX_PIECE, 16),
                              .most_seeds =
                                  vocab > LEAST_SEEDS / 4 ? 4 * (size_t)vocab : LEAST_SEEDS,
                              .reserved = special,
                              .n_reserved = n_special,
                              .n_threads = tokenizer_threads(args),
                              .progress = quiet ? NULL : show_passes,
                              .progress_user = &line};
    train_unigram(text, &options, &trained);
    double seconds = progress_line_end(&line);
    StrBuf out = strbuf_create();
    while (strcmp(special[unknown], UNKNOWN) != 0) unknown++;
    write_unigram_json(&out, &trained, pattern, special, n_special, unknown);
    int status = cli_write(path, &out, diag) ? EXIT_DONE : EXIT_FAILED;
    strbuf_destroy(&out);
    if (status == EXIT_DONE && !quiet && strcmp(path, "-") != 0) {
        print_result(args, text, &trained, n_special, seconds);
    }
    trained_unigram_release(&trained);
    return status;
}

int tokenizer_learn_unigram(CliArgs *args, const WordCounts *counts, const char *pattern,
                            const char *const *special, int n_special, Diag *diag) {
    const char **all = ARENA_ARRAY(args->arena, const char *, n_special + 1);
    bool has_unknown = false;
    UnigramText text;
    for (int i = 0; i < n_special; i++) {
        all[i] = special[i];
        has_unknown |= strcmp(special[i], UNKNOWN) == 0;
    }
    if (!has_unknown) all[n_special++] = UNKNOWN;
    double coverage = cli_real(args, OPT_COVERAGE, 0.9995);
    unigram_text_make(&text, counts, coverage);
    int status = EXIT_USAGE;
    if (check_size(args, &text, n_special, diag) && check_spellings(&text, all, n_special, diag)) {
        status = learn(args, &text, pattern, all, n_special, diag);
    }
    unigram_text_release(&text);
    return status;
}
