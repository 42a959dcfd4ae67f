#define _GNU_SOURCE /* memmem */
#include "runtime/tokenizer/corpus.h"

#include "ir/base/file.h"
#include "ir/base/memory.h"
#include "runtime/data/folder.h"
#include "runtime/data/token_mask.h"
#include "runtime/tokenizer/corpus_array.h"
#include "runtime/tokenizer/corpus_job.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    JOB_BYTES = 256 * 1024,
    CHUNK_BYTES = 256 * 1024,
    BEYOND_BYTES = CHUNK_BYTES,  /* that a chunk looks at behind its own */
    LONG_DOCUMENT = 1024 * 1024, /* is done by several threads */
    JOBS_PER_THREAD = 8,
};

typedef struct Corpus {
    const Tokenizer *tokenizer;
    const CorpusOptions *options;
    TokenTaker *take;
    void *user;
    WordCounts *counts; /* NULL: tokens are made */
    size_t most_bytes;
    int64_t pruned;
    CorpusTotals totals;
    int64_t bytes_done, bytes_all;
    bool begins;        /* the next token is a long document's first */
    Encoder **encoders; /* [n_threads] */
    CorpusJob *jobs;    /* [capacity] */
    int n_jobs, capacity;
    FileMap *maps; /* that jobs read: released with them */
    int n_maps, maps_capacity;
    Diag *diag;
} Corpus;

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

static void run_jobs(Corpus *corpus, void (*run)(CorpusJob *job, Encoder *encoder,
                                                 const CorpusOptions *options, bool counts)) {
    bool counts = corpus->counts != NULL;
#pragma omp parallel for schedule(dynamic) num_threads(corpus->options->n_threads)
    for (int i = 0; i < corpus->n_jobs; i++) {
        CorpusJob *job = &corpus->jobs[i];
        corpus_job_clear(job);
        run(job, corpus->encoders[corpus_job_thread()], corpus->options, counts);
    }
}

static void show_progress(const Corpus *corpus) {
    const CorpusOptions *options = corpus->options;
    if (options->progress) {
        options->progress(options->progress_user, corpus->bytes_done, corpus->bytes_all);
    }
}

static bool flush(Corpus *corpus) {
    bool good = true;
    run_jobs(corpus, corpus_job_run);
    for (int i = 0; i < corpus->n_jobs; i++) {
        good = good && take_result(corpus, &corpus->jobs[i], 0);
        corpus->bytes_done += (int64_t)corpus->jobs[i].length;
    }
    for (int i = 0; i < corpus->n_maps; i++) file_unmap(&corpus->maps[i]);
    corpus->n_jobs = corpus->n_maps = 0;
    show_progress(corpus);
    return good;
}

/* Where there is room. */
static void add_job(Corpus *corpus, CorpusJobKind kind, const char *path, int64_t line,
                    const unsigned char *text, size_t length) {
    CorpusJob *job = &corpus->jobs[corpus->n_jobs++];
    job->kind = kind;
    job->path = path;
    job->line = line;
    job->text = text;
    job->length = length;
}

/* Where jobs are full, does them; the file whose jobs they are stays mapped. */
static bool make_room(Corpus *corpus) {
    if (corpus->n_jobs < corpus->capacity) return true;
    FileMap last = corpus->maps[--corpus->n_maps];
    bool good = flush(corpus);
    corpus->maps[corpus->n_maps++] = last;
    return good;
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
            corpus_job_run_chunk(job, corpus->encoders[0], corpus->options, corpus->counts != NULL);
            mark = 0;
        }
        size_t skipped = job->failed ? 0 : chunk->mark_tokens[mark], end = chunk->end;
        if (mark > 0 && corpus->counts && !job->failed) {
            corpus_job_uncount(job, corpus->encoders[0], chunk->marks[mark]);
        }
        if (!take_result(corpus, job, skipped)) return false;
        corpus->bytes_done += (int64_t)(end - *at);
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
            add_job(corpus, JOB_CHUNK, path, 0, NULL, 0);
            corpus->jobs[corpus->n_jobs - 1].chunk = (Chunk){
                .text = segment->text, .length = length, .begin = at, .until = end, .seen = seen};
            at = end;
        }
        run_jobs(corpus, corpus_job_run_chunk);
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
    corpus->bytes_done += segment->text ? (int64_t)segment->length : 0;
    return take_result(corpus, job, 0);
}

static bool put_token(Corpus *corpus, uint32_t token) {
    if (corpus->counts || token == NO_TOKEN) return true;
    unsigned char mark = TOKEN_COUNTS;
    corpus->totals.n_special++;
    return take_tokens(corpus, &token, &mark, 1);
}

/* The walk itself is one thread's; it goes through gigabytes in a second. */
static bool run_long(Corpus *corpus, const char *path, const unsigned char *text, size_t length) {
    LongDocument document = {.corpus = corpus, .path = path};
    Encoder *walker = encoder_create(corpus->tokenizer);
    FileMap last = corpus->maps[--corpus->n_maps];
    bool good = flush(corpus);
    corpus->maps[corpus->n_maps++] = last;
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

/* --- files --- */

/* Jobs of whole lines. */
static bool add_lines(Corpus *corpus, const char *path, const unsigned char *text, size_t length) {
    int64_t line = 1;
    bool marked = length >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0; /* a byte order mark */
    for (size_t at = marked ? 3 : 0; at < length;) {
        size_t end = length - at > JOB_BYTES ? at + JOB_BYTES : length;
        const unsigned char *newline = memchr(text + end, '\n', length - end);
        end = end == length ? length : newline ? (size_t)(newline - text) + 1 : length;
        if (!make_room(corpus)) return false;
        add_job(corpus, JOB_LINES, path, line, text + at, end - at);
        for (const unsigned char *c = text + at; (c = memchr(c, '\n', (size_t)(text + end - c)));
             c++) {
            line++;
        }
        at = end;
    }
    return true;
}

/* How many lines end before `at`, and one: the number of its line. */
static int64_t line_at(const unsigned char *text, size_t at) {
    int64_t line = 1;
    for (const unsigned char *c = text; (c = memchr(c, '\n', (size_t)(text + at - c))); c++) line++;
    return line;
}

/* Jobs of whole objects of an array, of which the first begins at `at`. */
static bool add_objects(Corpus *corpus, const char *path, const unsigned char *text, size_t length,
                        size_t at) {
    int64_t line = line_at(text, at);
    while (at < length) {
        size_t begin = at;
        const char *wrong = NULL;
        while (!wrong && at < length && at - begin < JOB_BYTES) {
            size_t end = corpus_array_object_end(text, length, at);
            wrong = end ? corpus_array_next(text, length, end, &at) : "an object does not end";
        }
        if (wrong) {
            int64_t number = line_at(text, at);
            diag_error(corpus->diag, (SourceLoc){path, (int)number}, "JSON: %s", wrong);
            return false;
        }
        if (!make_room(corpus)) return false;
        add_job(corpus, JOB_OBJECTS, path, line, text + begin, at - begin);
        line += line_at(text + begin, at - begin) - 1;
    }
    return true;
}

/* Jobs of whole documents; long ones are done at once. */
static bool add_documents(Corpus *corpus, const char *path, const unsigned char *text,
                          size_t length) {
    const char *separator = corpus->options->separator;
    size_t separator_length = separator ? strlen(separator) : 0, begin = 0;
    bool can_chunk = encoder_can_chunk(corpus->tokenizer);
    for (size_t at = 0; at < length;) {
        const unsigned char *found =
            separator ? memmem(text + at, length - at, separator, separator_length) : NULL;
        size_t end = found ? (size_t)(found - text) : length;
        size_t next = found ? end + separator_length : length;
        bool is_long = can_chunk && end - at > LONG_DOCUMENT;
        size_t stop = is_long ? at : next; /* of the job before */
        if ((is_long || next == length || next - begin > JOB_BYTES) && stop > begin) {
            if (!make_room(corpus)) return false;
            add_job(corpus, JOB_DOCUMENTS, path, 0, text + begin, stop - begin);
            begin = stop;
        }
        if (is_long) {
            if (!run_long(corpus, path, text + at, end - at)) return false;
            begin = next;
        }
        at = next;
    }
    return true;
}

/* Bytes that do not count are not tokens that do not. */
static bool has_mask(const char *path) {
    Arena *arena = arena_create();
    bool found = access(token_mask_name(arena, path), F_OK) == 0;
    arena_destroy(arena);
    return found;
}

static bool ends_in(const char *path, const char *end) {
    size_t n = strlen(path), n_end = strlen(end);
    return n > n_end && strcmp(path + n - n_end, end) == 0;
}

/* Are the array's objects records, the first of which begins there? Those of a file that was named
 * have to be; in a folder there may be others, which are text like the rest. */
static bool has_records(const Corpus *corpus, const char *path, const FileMap *map, size_t first) {
    static const char *const FIELDS[] = {"text", "messages", "completion", "chosen"};
    const char *field = corpus->options->field;
    bool has = field && corpus_array_has_field(map->data, map->length_bytes, first, field);
    for (int i = 0; i < corpus->options->n_paths; i++) has |= path == corpus->options->paths[i];
    for (size_t i = 0; i < sizeof(FIELDS) / sizeof(FIELDS[0]); i++) {
        has = has || corpus_array_has_field(map->data, map->length_bytes, first, FIELDS[i]);
    }
    return has;
}

static bool add_file(Corpus *corpus, const char *path) {
    FileMap map;
    size_t first;
    if (has_mask(path)) {
        diag_error(corpus->diag, (SourceLoc){path, 0},
                   "has a mask beside it, of its bytes: text that becomes tokens cannot have one");
        return false;
    }
    if (!file_map(path, &map, corpus->diag)) return false;
    if (token_file_has_header(map.data, map.length_bytes)) {
        diag_error(corpus->diag, (SourceLoc){path, 0}, "is a file of tokens, not of text");
        file_unmap(&map);
        return false;
    }
    if (!token_file_check_text(path, map.data, map.length_bytes, corpus->diag)) {
        file_unmap(&map);
        return false;
    }
    if (corpus->n_maps == corpus->maps_capacity) {
        corpus->maps_capacity = 2 * corpus->maps_capacity + 16;
        corpus->maps = memory_grow(corpus->maps, (size_t)corpus->maps_capacity * sizeof(FileMap));
    }
    corpus->maps[corpus->n_maps++] = map;
    bool lines = ends_in(path, ".jsonl");
    if (ends_in(path, ".json") && corpus_array_begins(map.data, map.length_bytes, &first) &&
        has_records(corpus, path, &map, first)) {
        return add_objects(corpus, path, map.data, map.length_bytes, first);
    }
    if (corpus->options->preferences && !lines) {
        diag_error(corpus->diag, (SourceLoc){path, 0},
                   "pairs of answers are lines of a file whose name ends in .jsonl, or an array of "
                   "objects in one that ends in .json");
        return false;
    }
    return lines ? add_lines(corpus, path, map.data, map.length_bytes)
                 : add_documents(corpus, path, map.data, map.length_bytes);
}

/* --- all of it --- */

static bool list_files(Corpus *corpus, Arena *arena, const char ***out_paths, int *out_count) {
    const char **paths = NULL, **names;
    int count = 0, capacity = 0;
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
        }
    }
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
    for (int i = 0; good && i < n_paths; i++) good = add_file(corpus, paths[i]);
    good = good && flush(corpus);
    for (int i = 0; i < corpus->n_maps; i++) file_unmap(&corpus->maps[i]);
    for (int i = 0; i < n_threads; i++) encoder_destroy(corpus->encoders[i]);
    for (int i = 0; i < corpus->capacity; i++) corpus_job_release(&corpus->jobs[i]);
    free(corpus->encoders);
    free(corpus->jobs);
    free(corpus->maps);
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
