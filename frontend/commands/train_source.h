/* What an encoder reads, where the plan's model has one: its sequence of a sample and the
 * decoder's, of a text of which spans are hidden, or of a prompt and its completion. What the loss
 * says about it (label_share: `start`, `eos`, ...) and the data -> a row of what the engine takes.
 */
#ifndef FRONTEND_COMMANDS_TRAIN_SOURCE_H
#define FRONTEND_COMMANDS_TRAIN_SOURCE_H

#include "planner/plan/plan.h"
#include "runtime/data/pairs.h"
#include "runtime/data/spans.h"
#include "runtime/tokenizer/tokenizer.h"

typedef struct TrainSource {
    bool reads, hides; /* is there an encoder? are spans hidden? else it reads prompts */
    Spans spans;       /* with rate 0 for prompts */
    SpanSizes sizes;
    PairTotals pairs;         /* of all that was opened */
    int64_t window;           /* tokens of a text that a sample is made of */
    int32_t *tokens, *labels; /* [window] */
} TrainSource;

/* `share`: the plan's label_share, or NULL. False, reported: the data cannot be what the plan asks
 * for. */
bool train_source_open(const Plan *plan, const Node *share, TrainSource *out, Arena *arena,
                       Diag *diag);

/* False, reported: tokens that stand for spans are tokens of texts. `tokenizer` may be NULL. */
bool train_source_check_tokenizer(const TrainSource *source, const Tokenizer *tokenizer,
                                  Diag *diag);
/* Is the plan's `eos` what ends completions in the data? False: reported. */
bool train_source_check_end(const TrainSource *source, uint32_t last, Diag *diag);

PairOptions train_source_pair_options(const TrainSource *source);

/* source->tokens and labels, as the dataset gave them, -> tokens [plan_row], labels [seq]. False,
 * reported at `path`: a text has tokens that stand for spans. */
bool train_source_fill(const TrainSource *source, const char *path, uint64_t key, int32_t *tokens,
                       int32_t *labels, Diag *diag);

void train_source_print(const TrainSource *source);

#endif
