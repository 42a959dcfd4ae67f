#define _GNU_SOURCE /* memmem */
#include "runtime/tokenizer/corpus_job.h"

#include "runtime/data/token_mask.h"
#include "runtime/tokenizer/corpus_array.h"
#include "runtime/tokenizer/corpus_line.h"
#include "runtime/tokenizer/corpus_parquet.h"
#include "runtime/tokenizer/fill_middle.h"

#include <omp.h>
#include <stdlib.h>
#include <string.h>

void corpus_job_clear(CorpusJob *job) {
    job->tokens.count = job->marks.count = 0;
    word_counts_clear(&job->counts);
    job->n_documents = job->n_bytes = job->n_special = job->n_unanswered = job->n_filled = 0;
    job->failed = false;
    if (job->diag) diag_destroy(job->diag);
    job->diag = NULL;
}

void corpus_job_release(CorpusJob *job) {
    corpus_job_clear(job);
    token_list_release(&job->tokens);
    token_marks_release(&job->marks);
    word_counts_release(&job->counts);
    parquet_values_release(&job->values);
    free(job->room.bytes);
    job->room = (LineRoom){0};
}

int corpus_job_thread(void) {
    return omp_get_thread_num();
}

Diag *corpus_job_diag(CorpusJob *job) {
    if (!job->diag) job->diag = diag_create();
    return job->diag;
}

static EncoderOutput output_of(CorpusJob *job, bool counts) {
    return (EncoderOutput){.tokens = counts ? NULL : &job->tokens,
                           .counts = counts ? &job->counts : NULL,
                           .weight = 1};
}

bool corpus_job_may_be_empty(CorpusJob *job, const CorpusOptions *options, const char *where) {
    if (!options->each) return true;
    diag_error(corpus_job_diag(job), (SourceLoc){where, 0},
               "a text without a token: nothing can be told of it");
    return false;
}

/* As it is, or cut, with what comes last in the middle. */
static bool encode_document(CorpusJob *job, Encoder *encoder, const CorpusOptions *options,
                            bool counts, const unsigned char *text, size_t length,
                            const char *where) {
    EncoderOutput out = output_of(job, counts);
    MiddleCut cut;
    if (counts || !options->fim || !fill_middle_draw(options->fim, text, length, &cut)) {
        return encoder_encode(encoder, text, length, options->with_special, &out, where,
                              corpus_job_diag(job));
    }
    job->n_filled++;
    job->n_special += 3;
    return fill_middle_encode(options->fim, encoder, text, length, &cut, options->with_special,
                              &job->tokens, where, corpus_job_diag(job));
}

bool corpus_job_run_document(CorpusJob *job, Encoder *encoder, const CorpusOptions *options,
                             bool counts, const unsigned char *text, size_t length,
                             const char *where) {
    size_t begin = job->tokens.count;
    if (length == 0) return corpus_job_may_be_empty(job, options, where);
    bool has_first = !counts && options->first != NO_TOKEN;
    bool has_last = !counts && options->last != NO_TOKEN;
    if (has_first) token_list_add(&job->tokens, options->first);
    if (!encode_document(job, encoder, options, counts, text, length, where)) return false;
    if (has_last) token_list_add(&job->tokens, options->last);
    token_marks_fill(&job->marks, job->tokens.count, TOKEN_COUNTS);
    if (job->tokens.count > begin) {
        job->marks.items[begin] |= TOKEN_BEGINS;
    } else if (!counts && !corpus_job_may_be_empty(job, options, where)) {
        return false;
    }
    job->n_special += has_first + has_last;
    job->n_documents++;
    job->n_bytes += (int64_t)length;
    return true;
}

static bool run_documents(CorpusJob *job, Encoder *encoder, const CorpusOptions *options,
                          bool counts) {
    const unsigned char *at = job->text, *end = job->text + job->length;
    const char *separator = options->separator;
    size_t n = separator ? strlen(separator) : 0;
    while (at < end) {
        const unsigned char *found =
            separator ? memmem(at, (size_t)(end - at), separator, n) : NULL;
        size_t length = (size_t)((found ? found : end) - at);
        if (!corpus_job_run_document(job, encoder, options, counts, at, length, job->path))
            return false;
        at += length + (found ? n : 0);
    }
    return true;
}

static bool run_lines(CorpusJob *job, Encoder *encoder, const CorpusOptions *options, bool counts) {
    const unsigned char *at = job->text, *end = job->text + job->length;
    for (int64_t line = job->line; at < end; line++) {
        const unsigned char *newline = memchr(at, '\n', (size_t)(end - at));
        size_t length = (size_t)((newline ? newline : end) - at);
        if (!corpus_line_run(job, encoder, options, counts, at, length, line)) return false;
        at += length + 1;
    }
    return true;
}

static int64_t count_lines(const unsigned char *at, const unsigned char *end) {
    int64_t n = 0;
    for (; at < end && (at = memchr(at, '\n', (size_t)(end - at))); at++) n++;
    return n;
}

/* Objects whose ends were found before, and what is between them. */
static bool run_objects(CorpusJob *job, Encoder *encoder, const CorpusOptions *options,
                        bool counts) {
    int64_t line = job->line;
    size_t next;
    for (size_t at = 0; at < job->length; at = next) {
        size_t end = corpus_array_object_end(job->text, job->length, at);
        if (!corpus_line_run(job, encoder, options, counts, job->text + at, end - at, line)) {
            return false;
        }
        corpus_array_next(job->text, job->length, end, &next);
        line += count_lines(job->text + at, job->text + next);
    }
    return true;
}

/* --- parts of one document --- */

static bool run_chunk(CorpusJob *job, Encoder *encoder, const CorpusOptions *options, bool counts) {
    (void)options;
    EncoderOutput out = output_of(job, counts);
    return encoder_encode_chunk(encoder, &job->chunk, &out, job->path, corpus_job_diag(job));
}

void corpus_job_run(CorpusJob *job, Encoder *encoder, const CorpusOptions *options, bool counts) {
    static bool (*const RUN[])(CorpusJob *, Encoder *, const CorpusOptions *, bool) = {
        [JOB_LINES] = run_lines, [JOB_OBJECTS] = run_objects,     [JOB_DOCUMENTS] = run_documents,
        [JOB_CHUNK] = run_chunk, [JOB_PAGE] = corpus_parquet_run, [JOB_ROWS] = corpus_parquet_run,
    };
    job->failed = !RUN[job->kind](job, encoder, options, counts);
}

void corpus_job_run_segment(CorpusJob *job, Encoder *encoder, const Segment *segment, bool counts) {
    EncoderOutput out = output_of(job, counts);
    job->failed = !encoder_encode_segment(encoder, segment, &out, job->path, corpus_job_diag(job));
}

void corpus_job_uncount(CorpusJob *job, Encoder *encoder, size_t until) {
    EncoderOutput out = output_of(job, true);
    Chunk again = job->chunk;
    again.until = until;
    out.weight = -1;
    if (!encoder_encode_chunk(encoder, &again, &out, job->path, corpus_job_diag(job))) {
        BUG("a chunk that was divided cannot be divided again");
    }
}
