/* Tokenizers and what is done to text with them, from the command line. */
#ifndef FRONTEND_COMMANDS_TOKENIZER_ARGS_H
#define FRONTEND_COMMANDS_TOKENIZER_ARGS_H

#include "frontend/commands/cli.h"
#include "runtime/tokenizer/chat.h"
#include "runtime/tokenizer/corpus.h"

/* --threads, at most as many as there are cores; or all of them. */
int tokenizer_threads(const CliArgs *args);

/* Separator, field, tokens around documents and --special; `tokenizer` NULL: without these. Paths
 * and progress are left to the caller. False: reported. */
bool corpus_options_from_args(const CliArgs *args, const Tokenizer *tokenizer, CorpusOptions *out,
                              Diag *diag);

/* Nothing that --fim alone has a use for is given without it. False: reported. */
bool fill_middle_check_args(const CliArgs *args, Diag *diag);
/* --fim's, with the tokens that it needs; *out NULL: not asked for. False: reported. */
bool fill_middle_from_args(const CliArgs *args, const Tokenizer *tokenizer,
                           const struct FillMiddle **out, Diag *diag);

/* --chat-template's, or the one that the tokenizer says; end: as chat_prepare has it. False:
 * reported. */
bool chat_from_args(const CliArgs *args, const Tokenizer *tokenizer, uint32_t end, Chat *out,
                    Diag *diag);

/* --tokenizer's; *out NULL where there is none. Options that only make sense with one are refused
 * then, and a model's vocabulary that is too small for it. False: reported. */
bool tokenizer_from_args(const CliArgs *args, int64_t vocab, Tokenizer **out, Diag *diag);

/* Learns a Unigram from counts of words, of text that `pattern` divided, and writes it to -o. The
 * exit code. */
int tokenizer_learn_unigram(CliArgs *args, const WordCounts *counts, const char *pattern,
                            const char *const *special, int n_special, Diag *diag);

/* The verbs that read text; they print what they did. The exit code. */
int tokenizer_train(CliArgs *args, Diag *diag);
int tokenizer_encode(CliArgs *args, Diag *diag);

#endif
