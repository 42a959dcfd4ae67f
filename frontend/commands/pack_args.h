/* --pack and --pack-long: documents that stay whole in their windows. */
#ifndef FRONTEND_COMMANDS_PACK_ARGS_H
#define FRONTEND_COMMANDS_PACK_ARGS_H

#include "frontend/commands/cli.h"
#include "runtime/data/pack.h"
#include "runtime/tokenizer/corpus.h"

/* False: --pack-long is another word than cut and drop, or alone; reported. */
bool pack_check_args(const CliArgs *args, bool packs, Diag *diag);
/* Padding is the token that ends documents: each is then a document of its own. */
PackOptions pack_options_from_args(const CliArgs *args, const Tokenizer *tokenizer,
                                   const CorpusOptions *options, int64_t seq);
/* That token, or 0. */
uint32_t pack_padding(const Tokenizer *tokenizer, const CorpusOptions *options);
void pack_add_totals(PackTotals *sum, const PackTotals *more);
/* A line or two that begin with `packed`. */
void pack_print(const PackTotals *totals, const PackOptions *options);

#endif
