/* What --tokenizer means to training: text becomes tokens before the first step, and a loss can be
 * said per byte of text, which does not depend on the tokenizer. */
#ifndef FRONTEND_COMMANDS_TRAIN_TEXT_H
#define FRONTEND_COMMANDS_TRAIN_TEXT_H

#include "frontend/commands/pack_args.h"
#include "frontend/commands/train_classes.h"
#include "frontend/commands/train_embed.h"
#include "frontend/commands/train_images.h"
#include "frontend/commands/train_pairs.h"
#include "frontend/commands/train_source.h"
#include "runtime/data/dataset.h"
#include "runtime/engine.h"
#include "runtime/tokenizer/tokenizer.h"

typedef struct TrainText {
    Tokenizer *tokenizer; /* NULL: none given */
    int n_texts;          /* data that were text, of those opened */
    bool is_val;          /* what is opened now is for validation alone, and stays as it is */
    int64_t n_documents, n_filled; /* of what is cut to learn filling in */
    PackOptions packing;
    PackTotals packed;     /* of all that was opened; no windows: nothing was packed */
    TrainSource *source;   /* not its own: of documents prompts and completions are made */
    TrainPairs *pairs;     /* not its own: of documents pairs of rows are made */
    TrainClasses *classes; /* not its own: of documents rows with their classes are made */
    TrainEmbed *embed;     /* not its own: of documents rows of groups are made */
    TrainImages *images;   /* not its own: of documents rows with images are made */
    bool is_whole;         /* data are looked at in order */
} TrainText;

/* False: reported. Released by train_text_release, either way. */
bool train_text_from_args(const CliArgs *args, int64_t vocab, TrainText *out, Diag *diag);
void train_text_release(TrainText *text);

/* Data of whatever kind. With a tokenizer, text becomes tokens in memory: 2 or 4 bytes each; files
 * of tokens stay what they are. Reports and returns NULL. */
Dataset *train_text_open(TrainText *text, const CliArgs *args, const char *path, int seq, int vocab,
                         Diag *diag);

/* Are data of this path tokens, whatever tokenizer is given? */
bool train_text_is_tokens(const CliArgs *args, const char *path);

/* After all is opened: what says how text is taken does nothing where all data are tokens. False:
 * reported, about those of `path`. */
bool train_text_check_use(const TrainText *text, const CliArgs *args, const char *path, Diag *diag);

/* How many bytes of text these labels stand for, those that the model's mean loss leaves out and
 * special tokens aside. labels [n]. */
int64_t train_text_count_bytes(const TrainText *text, const Engine *engine, const int32_t *labels,
                               int64_t n);

#endif
