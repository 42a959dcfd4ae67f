#include "frontend/commands/completion_tokens.h"

#include "runtime/data/token_mask.h"
#include "runtime/tokenizer/corpus_line.h"

bool completion_tokens_count(const CompletionTokens *tokens, size_t i) {
    const TokenMarks *marks = &tokens->job.marks;
    i += tokens->first;
    return i >= marks->count || (marks->items[i] & TOKEN_COUNTS);
}

static size_t find_last(const CorpusJob *job) {
    size_t first = 0;
    for (size_t i = 0; i < job->marks.count; i++) {
        if (job->marks.items[i] & TOKEN_BEGINS) first = i;
    }
    return first;
}

bool completion_tokens_encode(const CorpusOptions *how, Encoder *encoder, const json_t *record,
                              SourceLoc loc, CompletionTokens *out, Diag *diag) {
    *out = (CompletionTokens){.job = {.kind = JOB_OBJECTS, .path = loc.file}};
    CorpusJob *job = &out->job;
    bool good = corpus_object_run(job, encoder, how, false, record, loc.line) && !job->failed;
    if (job->diag) diag_append(diag, job->diag);
    out->first = find_last(job);
    out->count = job->tokens.count - out->first;
    out->items = job->tokens.items ? job->tokens.items + out->first : NULL;
    return good;
}

void completion_tokens_release(CompletionTokens *tokens) {
    corpus_job_release(&tokens->job);
}
