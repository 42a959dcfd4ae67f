#include "ir/base/memory.h"
#include "runtime/data/folder.h"
#include "runtime/data/token_mask.h"
#include "runtime/tokenizer/corpus_work.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum {
    CHUNK_BYTES = 256 * 1024,
    BEYOND_BYTES = CHUNK_BYTES, /* that a chunk looks at behind its own */
    JOBS_PER_THREAD = 8,
};

/* --- results --- */

static bool take_tokens(Corpus *corpus, const uint32_t *tokens, unsigned char *marks,
                        size_t count) {
    if (count == 0) return true;
    corpus->totals.n_tokens += (int64_t)count;
    for (size_t i = 0; i < count; i++) corpus->totals.n_counted += marks[i] & TOKEN_COUNTS;
    if (corpus->begins) marks[0] |= TOKEN_BEGINS;
    corpus->begins = false;
    return corpus->take(corpus->user, tokens, marks, count, corpus->diag);
}

static void take_counts(Corpus *corpus, const WordCounts *counts) {
    word_counts_add_all(corpus->counts, counts);
    while (word_counts_bytes(corpus->counts) > corpus->most_bytes) {
        word_counts_prune(corpus->counts, ++corpus->pruned);
    }
}

/* The result of a job, but for its first `skipped` tokens. */
static bool take_result(Corpus *corpus, CorpusJob *job, size_t skipped) {
    if (job->failed) {
        const char *text = diag_text(job->diag);
        diag_error(corpus->diag, NO_LOC, "%.*s", (int)strcspn(text, "\n"), text);
        return false;
    }
    corpus->totals.n_documents += job->n_documents;
    corpus->totals.n_bytes += job->n_bytes;
    corpus->totals.n_special += job->n_special;
    corpus->totals.n_unanswered += job->n_unanswered;
    corpus->totals.n_filled += job->n_filled;
    if (corpus->counts) {
        take_counts(corpus, &job->counts);
        return true;
    }
    size_t count = job->tokens.count;
    token_marks_fill(&job->marks, count, TOKEN_COUNTS);
    if (count == skipped) return true;
    return take_tokens(corpus, job->tokens.items + skipped, job->marks.items + skipped,
                       count - skipped);
}

/* --- batches of jobs --- */

static void run_jobs(Corpus *corpus) {
    bool counts = corpus->counts != NULL;
#pragma omp parallel for schedule(dynamic) num_threads(corpus->options->n_threads)
    for (int i = 0; i < corpus->n_jobs; i++) {
        CorpusJob *job = &corpus->jobs[i];
        corpus_job_clear(job);
        corpus_job_run(job, corpus->encoders[corpus_job_thread()], corpus->options, counts);
    }
}

static void show_progress(const Corpus *corpus) {
    const CorpusOptions *options = corpus->options;
    if (options->progress) {
        options->progress(options->progress_user, (int64_t)corpus->bytes_done, corpus->bytes_all);
    }
}

/* --- what jobs read --- */

static CorpusHold *add_hold(Corpus *corpus) {
    if (corpus->n_holds == corpus->holds_capacity) {
        corpus->holds_capacity = 2 * corpus->holds_capacity + 16;
        corpus->holds =
            memory_grow(corpus->holds, (size_t)corpus->holds_capacity * sizeof(CorpusHold));
    }
    return &corpus->holds[corpus->n_holds++];
}

void corpus_hold_map(Corpus *corpus, const FileMap *map) {
    *add_hold(corpus) = (CorpusHold){.key = map->data, .map = *map, .in_use = true};
}

void corpus_hold(Corpus *corpus, void *owned, void (*release)(void *owned)) {
    *add_hold(corpus) =
        (CorpusHold){.key = owned, .owned = owned, .release = release, .in_use = true};
}

void corpus_let_go(Corpus *corpus, const void *key) {
    for (int i = corpus->n_holds - 1; i >= 0; i--) {
        if (corpus->holds[i].key != key) continue;
        corpus->holds[i].in_use = false;
        return;
    }
}

static void release_holds(Corpus *corpus, bool all) {
    int n_kept = 0;
    for (int i = 0; i < corpus->n_holds; i++) {
        CorpusHold *hold = &corpus->holds[i];
        if (hold->in_use && !all) {
            corpus->holds[n_kept++] = *hold;
            continue;
        }
        file_unmap(&hold->map);
        if (hold->owned) hold->release(hold->owned);
    }
    corpus->n_holds = n_kept;
}

/* --- batches of jobs, done --- */

static bool flush(Corpus *corpus) {
    bool good = true;
    run_jobs(corpus);
    for (int i = 0; i < corpus->n_jobs; i++) {
        good = good && take_result(corpus, &corpus->jobs[i], 0);
        corpus->bytes_done += corpus->jobs[i].file_bytes;
    }
    corpus->n_jobs = 0;
    release_holds(corpus, false);
    show_progress(corpus);
    return good;
}

CorpusJob *corpus_add_job(Corpus *corpus, CorpusJobKind kind, const char *path, int64_t line,
                          const unsigned char *text, size_t length) {
    if (corpus->n_jobs == corpus->capacity && !flush(corpus)) return NULL;
    CorpusJob *job = &corpus->jobs[corpus->n_jobs++];
    job->kind = kind;
    job->path = path;
    job->line = line;
    job->text = text;
    job->length = length;
    job->file_bytes = (double)length * corpus->file_bytes;
    return job;
}

/* --- long documents --- */

typedef struct LongDocument {
    Corpus *corpus;
    const char *path;
    CorpusJob *job; /* for what is short in it */
} LongDocument;

/* The beginning of a character, at `at` or behind it. */
static size_t next_beginning(const unsigned char *text, size_t length, size_t at) {
    while (at < length && (text[at] & 0xc0) == 0x80) at++;
    return at < length ? at : length;
}

/* Chunks that were begun by guess are right from where the one before ended, if a piece of theirs
 * begins there; else they are done again, and so is what they lack where a piece was too long for
 * what they looked at. *at: how far the text is done. */
static bool take_chunk(Corpus *corpus, CorpusJob *job, size_t *at) {
    Chunk *chunk = &job->chunk;
    while (*at < chunk->until) {
        int mark = 0;
        while (mark < chunk->n_marks && chunk->marks[mark] != *at) mark++;
        if (job->failed || mark == chunk->n_marks) {
            corpus_job_clear(job);
            chunk->begin = *at;
            chunk->seen = chunk->length;
            corpus_job_run(job, corpus->encoders[0], corpus->options, corpus->counts != NULL);
            mark = 0;
        }
        size_t skipped = job->failed ? 0 : chunk->mark_tokens[mark], end = chunk->end;
        if (mark > 0 && corpus->counts && !job->failed) {
            corpus_job_uncount(job, corpus->encoders[0], chunk->marks[mark]);
        }
        if (!take_result(corpus, job, skipped)) return false;
        corpus->bytes_done += (double)(end - *at) * corpus->file_bytes;
        *at = end;
    }
    return true;
}

static bool run_chunks(Corpus *corpus, const char *path, const Segment *segment) {
    size_t length = segment->length, done = 0;
    while (done < length) {
        size_t at = done;
        corpus->n_jobs = 0;
        while (corpus->n_jobs < corpus->capacity && at < length) {
            /* At multiples, so that they do not depend on how many there are at a time. */
            size_t end = (at / CHUNK_BYTES + 1) * CHUNK_BYTES;
            end = next_beginning(segment->text, length, end);
            /* Only the first is no guess: others' pieces of any length would be found in vain. */
            size_t seen = at == done || length - end <= BEYOND_BYTES
                              ? length
                              : next_beginning(segment->text, length, end + BEYOND_BYTES);
            CorpusJob *job = corpus_add_job(corpus, JOB_CHUNK, path, 0, NULL, 0);
            job->chunk = (Chunk){
                .text = segment->text, .length = length, .begin = at, .until = end, .seen = seen};
            at = end;
        }
        run_jobs(corpus);
        bool good = true;
        for (int i = 0; good && i < corpus->n_jobs; i++) {
            good = take_chunk(corpus, &corpus->jobs[i], &done);
        }
        corpus->n_jobs = 0;
        if (!good) return false;
        show_progress(corpus);
    }
    return true;
}

static bool take_segment(void *user, const Segment *segment) {
    LongDocument *document = user;
    Corpus *corpus = document->corpus;
    if (segment->valid && segment->length > LONG_DOCUMENT) {
        return run_chunks(corpus, document->path, segment);
    }
    CorpusJob *job = &corpus->jobs[0];
    corpus_job_clear(job);
    job->path = document->path;
    corpus_job_run_segment(job, corpus->encoders[0], segment, corpus->counts != NULL);
    if (segment->text) corpus->bytes_done += (double)segment->length * corpus->file_bytes;
    return take_result(corpus, job, 0);
}

static bool put_token(Corpus *corpus, uint32_t token) {
    if (corpus->counts || token == NO_TOKEN) return true;
    unsigned char mark = TOKEN_COUNTS;
    corpus->totals.n_special++;
    return take_tokens(corpus, &token, &mark, 1);
}

/* The walk itself is one thread's; it goes through gigabytes in a second. */
bool corpus_run_long(Corpus *corpus, const char *path, const unsigned char *text, size_t length) {
    LongDocument document = {.corpus = corpus, .path = path};
    Encoder *walker = encoder_create(corpus->tokenizer);
    bool good = flush(corpus);
    corpus->totals.n_documents++;
    corpus->totals.n_bytes += (int64_t)length;
    corpus->begins = true;
    good = good && put_token(corpus, corpus->options->first) &&
           encoder_walk(walker, text, length, corpus->options->with_special, take_segment,
                        &document, path, corpus->diag) &&
           put_token(corpus, corpus->options->last);
    encoder_destroy(walker);
    return good;
}

/* --- all of it --- */

static bool list_files(Corpus *corpus, Arena *arena, const char ***out_paths, int *out_count) {
    const char **paths = NULL, **names;
    int count = 0, capacity = 0;
    bool is_known = true;
    for (int i = 0; i < corpus->options->n_paths; i++) {
        const char *path = corpus->options->paths[i];
        struct stat st;
        bool is_folder = stat(path, &st) == 0 && S_ISDIR(st.st_mode);
        int n = is_folder ? folder_list(arena, path, &names, corpus->diag) : 1;
        if (n < 0) return false;
        for (int k = 0; k < n; k++) {
            const char *name = is_folder ? names[k] : path;
            ARENA_PUSH(arena, paths, count, capacity, name);
            if (stat(name, &st) == 0) corpus->bytes_all += st.st_size;
            is_known &= !corpus->options->reads_input || !corpus_is_pipe(name);
        }
    }
    if (!is_known) corpus->bytes_all = 0;
    *out_paths = paths;
    *out_count = count;
    return true;
}

static bool run_corpus(Corpus *corpus) {
    int n_threads = corpus->options->n_threads, n_paths = 0;
    const char **paths = NULL;
    Arena *arena = arena_create();
    corpus->capacity = JOBS_PER_THREAD * n_threads;
    corpus->jobs = memory_zeroed((size_t)corpus->capacity, sizeof(CorpusJob));
    corpus->encoders = memory_zeroed((size_t)n_threads, sizeof(Encoder *));
    for (int i = 0; i < n_threads; i++) corpus->encoders[i] = encoder_create(corpus->tokenizer);
    bool good = list_files(corpus, arena, &paths, &n_paths);
    for (int i = 0; good && i < n_paths; i++) good = corpus_add_file(corpus, paths[i]);
    good = good && flush(corpus);
    release_holds(corpus, true);
    for (int i = 0; i < n_threads; i++) encoder_destroy(corpus->encoders[i]);
    for (int i = 0; i < corpus->capacity; i++) corpus_job_release(&corpus->jobs[i]);
    free(corpus->encoders);
    free(corpus->jobs);
    free(corpus->holds);
    arena_destroy(arena);
    return good;
}

bool corpus_encode(const Tokenizer *tokenizer, const CorpusOptions *options, TokenTaker *take,
                   void *user, CorpusTotals *out, Diag *diag) {
    Corpus corpus = {
        .tokenizer = tokenizer, .options = options, .take = take, .user = user, .diag = diag};
    bool good = run_corpus(&corpus);
    *out = corpus.totals;
    return good;
}

bool corpus_count(const Tokenizer *tokenizer, const CorpusOptions *options, size_t most_bytes,
                  WordCounts *counts, int64_t *out_pruned, CorpusTotals *out, Diag *diag) {
    Corpus corpus = {.tokenizer = tokenizer,
                     .options = options,
                     .counts = counts,
                     .most_bytes = most_bytes,
                     .diag = diag};
    bool good = run_corpus(&corpus);
    *out_pruned = corpus.pruned;
    *out = corpus.totals;
    return good;
}
