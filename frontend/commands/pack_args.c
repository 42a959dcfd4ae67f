#include "frontend/commands/pack_args.h"

#include <inttypes.h>
#include <string.h>

bool pack_check_args(const CliArgs *args, bool packs, Diag *diag) {
    const char *how = cli_text(args, OPT_PACK_LONG, NULL);
    if (how && strcmp(how, "cut") != 0 && strcmp(how, "drop") != 0) {
        diag_error(diag, NO_LOC, "--pack-long: '%s' is neither cut nor drop", how);
        return false;
    }
    if (!how || packs) return true;
    diag_error(diag, NO_LOC, "--pack-long: is for --pack only");
    return false;
}

uint32_t pack_padding(const Tokenizer *tokenizer, const CorpusOptions *options) {
    uint32_t end = options->last == NO_TOKEN ? tokenizer_end_of_text(tokenizer) : options->last;
    return end == NO_TOKEN ? 0 : end;
}

PackOptions pack_options_from_args(const CliArgs *args, const Tokenizer *tokenizer,
                                   const CorpusOptions *options, int64_t seq) {
    return (PackOptions){.seq = (size_t)seq,
                         .drops_long = strcmp(cli_text(args, OPT_PACK_LONG, "cut"), "drop") == 0,
                         .padding = pack_padding(tokenizer, options)};
}

void pack_add_totals(PackTotals *sum, const PackTotals *more) {
    sum->n_documents += more->n_documents;
    sum->n_long += more->n_long;
    sum->n_pieces += more->n_pieces;
    sum->n_empty += more->n_empty;
    sum->n_windows += more->n_windows;
    sum->n_tokens += more->n_tokens;
    sum->n_padding += more->n_padding;
}

void pack_print(const PackTotals *totals, const PackOptions *options) {
    double all = (double)(totals->n_tokens + totals->n_padding);
    printf("packed  %" PRId64 " documents into %" PRId64 " windows of %zu: %.1f %% full\n",
           totals->n_documents, totals->n_windows, options->seq,
           100 * (double)totals->n_tokens / all);
    if (totals->n_long > 0 && options->drops_long) {
        printf("        %" PRId64 " are longer than a window, and left out\n", totals->n_long);
    } else if (totals->n_long > 0) {
        printf("        %" PRId64 " are longer than a window: cut into %" PRId64 "\n",
               totals->n_long, totals->n_pieces);
    }
    if (totals->n_empty > 0) {
        printf("        in %" PRId64 " nothing counts: left out\n", totals->n_empty);
    }
}
