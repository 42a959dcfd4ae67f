/* A prompt and its completion, as a line of fine-tuning's data has them -> the tokens of the text
 * in which the completion is told, and which of them count as labels. A template in Jinja may tell
 * a conversation as several texts: the last of them is that one. */
#ifndef FRONTEND_COMMANDS_COMPLETION_TOKENS_H
#define FRONTEND_COMMANDS_COMPLETION_TOKENS_H

#include "runtime/tokenizer/corpus_job.h"

#include <jansson.h>

typedef struct CompletionTokens {
    CorpusJob job;
    const uint32_t *items; /* [count] */
    size_t first, count;   /* first: in the job's */
} CompletionTokens;

/* False: reported at `loc`. Released either way. */
bool completion_tokens_encode(const CorpusOptions *how, Encoder *encoder, const json_t *record,
                              SourceLoc loc, CompletionTokens *out, Diag *diag);
/* Whether the i-th counts. */
bool completion_tokens_count(const CompletionTokens *tokens, size_t i);
void completion_tokens_release(CompletionTokens *tokens);

#endif
