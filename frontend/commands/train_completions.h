/* What the data answer to prompts, where rows are learned from as they are beside those that the
 * model writes (--on-policy): the "completion" of a line, or the last of its "messages" where that
 * is the assistant's. Encoded as fine-tuning's data are. */
#ifndef FRONTEND_COMMANDS_TRAIN_COMPLETIONS_H
#define FRONTEND_COMMANDS_TRAIN_COMPLETIONS_H

#include "frontend/commands/train_prompts.h"

/* Has the line one? */
bool train_completion_is_there(const json_t *record);
/* The messages before the one that answers; NULL: none does. The caller's. */
json_t *train_completion_asked(const json_t *messages);

/* Sets the prompt's row, `seq` tokens at most; *out_cut: it had more. False: reported. */
bool train_completion_encode(const CorpusOptions *how, const Tokenizer *tokenizer, int64_t seq,
                             TrainPrompt *prompt, bool *out_cut, Diag *diag);

#endif
