#define _GNU_SOURCE /* memmem */
#include "runtime/tokenizer/corpus_job.h"

#include <inttypes.h>
#include <jansson.h>
#include <omp.h>
#include <stdio.h>
#include <string.h>

void corpus_job_clear(CorpusJob *job) {
    job->tokens.count = 0;
    word_counts_clear(&job->counts);
    job->n_documents = job->n_bytes = job->n_special = 0;
    job->failed = false;
    if (job->diag) diag_destroy(job->diag);
    job->diag = NULL;
}

void corpus_job_release(CorpusJob *job) {
    corpus_job_clear(job);
    token_list_release(&job->tokens);
    word_counts_release(&job->counts);
}

int corpus_job_thread(void) {
    return omp_get_thread_num();
}

static Diag *diag_of(CorpusJob *job) {
    if (!job->diag) job->diag = diag_create();
    return job->diag;
}

static EncoderOutput output_of(CorpusJob *job, bool counts) {
    return (EncoderOutput){.tokens = counts ? NULL : &job->tokens,
                           .counts = counts ? &job->counts : NULL,
                           .weight = 1};
}

static bool run_document(CorpusJob *job, Encoder *encoder, const CorpusOptions *options,
                         bool counts, const unsigned char *text, size_t length, const char *where) {
    EncoderOutput out = output_of(job, counts);
    if (length == 0) return true;
    bool has_first = !counts && options->first != NO_TOKEN;
    bool has_last = !counts && options->last != NO_TOKEN;
    if (has_first) token_list_add(&job->tokens, options->first);
    if (!encoder_encode(encoder, text, length, options->with_special, &out, where, diag_of(job))) {
        return false;
    }
    if (has_last) token_list_add(&job->tokens, options->last);
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
        if (!run_document(job, encoder, options, counts, at, length, job->path)) return false;
        at += length + (found ? n : 0);
    }
    return true;
}

/* --- lines of JSON --- */

static bool is_blank(const unsigned char *line, size_t length) {
    for (size_t i = 0; i < length; i++) {
        if (!strchr(" \t\r", line[i]) || line[i] == '\0') return false;
    }
    return true;
}

static bool run_line(CorpusJob *job, Encoder *encoder, const CorpusOptions *options, bool counts,
                     const unsigned char *line, size_t length, int64_t number) {
    json_error_t error;
    SourceLoc loc = {job->path, (int)number};
    if (is_blank(line, length)) return true;
    json_t *object =
        json_loadb((const char *)line, length,
                   JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL, &error);
    if (!object) {
        diag_error(diag_of(job), loc, "JSON: %s (column %d)", error.text, error.column);
        return false;
    }
    const json_t *text = json_object_get(object, options->field);
    bool good = json_is_string(text);
    if (!good) {
        diag_error(diag_of(job), loc, "no object with a string '%s' (--field names another)",
                   options->field);
    } else {
        char where[512];
        snprintf(where, sizeof(where), "%s:%" PRId64, job->path, number);
        good = run_document(job, encoder, options, counts,
                            (const unsigned char *)json_string_value(text),
                            json_string_length(text), where);
    }
    json_decref(object);
    return good;
}

static bool run_lines(CorpusJob *job, Encoder *encoder, const CorpusOptions *options, bool counts) {
    const unsigned char *at = job->text, *end = job->text + job->length;
    for (int64_t line = job->line; at < end; line++) {
        const unsigned char *newline = memchr(at, '\n', (size_t)(end - at));
        size_t length = (size_t)((newline ? newline : end) - at);
        if (!run_line(job, encoder, options, counts, at, length, line)) return false;
        at += length + 1;
    }
    return true;
}

void corpus_job_run(CorpusJob *job, Encoder *encoder, const CorpusOptions *options, bool counts) {
    job->failed = job->kind == JOB_LINES ? !run_lines(job, encoder, options, counts)
                                         : !run_documents(job, encoder, options, counts);
}

/* --- parts of one document --- */

void corpus_job_run_chunk(CorpusJob *job, Encoder *encoder, const CorpusOptions *options,
                          bool counts) {
    (void)options;
    EncoderOutput out = output_of(job, counts);
    job->failed = !encoder_encode_chunk(encoder, &job->chunk, &out, job->path, diag_of(job));
}

void corpus_job_run_segment(CorpusJob *job, Encoder *encoder, const Segment *segment, bool counts) {
    EncoderOutput out = output_of(job, counts);
    job->failed = !encoder_encode_segment(encoder, segment, &out, job->path, diag_of(job));
}

void corpus_job_uncount(CorpusJob *job, Encoder *encoder, size_t until) {
    EncoderOutput out = output_of(job, true);
    Chunk again = job->chunk;
    again.until = until;
    out.weight = -1;
    if (!encoder_encode_chunk(encoder, &again, &out, job->path, diag_of(job))) {
        BUG("a chunk that was divided cannot be divided again");
    }
}
