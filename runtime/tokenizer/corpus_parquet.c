#include "runtime/tokenizer/corpus_parquet.h"

#include "ir/base/memory.h"
#include "ir/base/strbuf.h"
#include "runtime/data/parquet_rows.h"
#include "runtime/tokenizer/corpus_line.h"
#include "runtime/tokenizer/corpus_work.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_LISTED = 12 /* columns in a message */ };

/* A file whose jobs are to be done. */
typedef struct CorpusRows {
    Arena *arena;
    const char *path;
    ParquetFile file;
    ParquetUse *uses; /* [n_leaves] */
    int text;         /* the leaf that is all there is to read; -1: rows are objects */
} CorpusRows;

static void release_rows(void *owned) {
    CorpusRows *rows = owned;
    arena_destroy(rows->arena);
    free(rows);
}

static void release_dictionary(void *owned) {
    parquet_values_release(owned);
    free(owned);
}

static bool report(Diag *diag, const CorpusRows *rows, int leaf, int64_t row, const char *wrong) {
    diag_error(diag, (SourceLoc){rows->path, 0},
               "Parquet file: column '%.60s' %s (in the group of row %" PRId64 ")",
               rows->file.leaves[leaf].column, wrong, row);
    return false;
}

/* --- which columns --- */

static bool has_column(const ParquetFile *file, const char *name) {
    for (int i = 0; i < file->n_leaves; i++) {
        if (strcmp(file->leaves[i].column, name) == 0) return true;
    }
    return false;
}

static bool is_label(const CorpusOptions *options, const char *column) {
    if (strcmp(column, "label") == 0) return true;
    if (options->labels == CLASS_ONE) return false;
    return strcmp(column, "labels") == 0 || strcmp(column, "score") == 0 ||
           class_names_find(options->classes, column, strlen(column)) >= 0;
}

static bool is_read(const CorpusOptions *options, const char *column) {
    static const char *const ANSWERS[] = {"prompt", "chosen", "rejected", NULL};
    static const char *const LABELLED[] = {"prompt", "completion", "answer",
                                           "label",  "messages",   "conversations",
                                           "chosen", "rejected",   NULL};
    static const char *const OTHERS[] = {"text",   "messages", "conversations", "completion",
                                         "prompt", "chosen",   "rejected",      NULL};
    const char *const *names = options->classes       ? CORPUS_CLASS_KEYS
                               : options->texts       ? CORPUS_TEXTS_KEYS
                               : options->preferences ? ANSWERS
                               : options->unpaired    ? LABELLED
                                                      : OTHERS;
    if (options->classes && is_label(options, column)) return true;
    if (options->texts && strncmp(column, "negative_", 9) == 0) return true;
    if (options->field && !options->preferences && !options->unpaired)
        return strcmp(column, options->field) == 0;
    for (; *names; names++) {
        if (strcmp(column, *names) == 0) return true;
    }
    return false;
}

/* A column of texts that is read alone: all that a line has, too, would be. */
static int find_text(const ParquetFile *file, const CorpusOptions *options, bool counts) {
    const char *name = options->field ? options->field : "text";
    bool others = has_column(file, "messages") || has_column(file, "conversations") ||
                  (has_column(file, "prompt") && has_column(file, "completion")) ||
                  (counts && has_column(file, "chosen"));
    if (options->preferences || options->unpaired || options->classes || options->texts ||
        (others && !options->field)) {
        return -1;
    }
    for (int i = 0; i < file->n_leaves; i++) {
        const ParquetLeaf *leaf = &file->leaves[i];
        if (strcmp(leaf->column, name) == 0 && leaf->is_text && !leaf->is_nested) return i;
    }
    return -1;
}

static bool report_columns(const CorpusRows *rows, const CorpusOptions *options, Diag *diag) {
    StrBuf names = strbuf_create();
    const ParquetFile *file = &rows->file;
    int n_listed = 0;
    for (int i = 0; i < file->n_leaves; i++) {
        const char *name = file->leaves[i].column;
        if (i > 0 && strcmp(file->leaves[i - 1].column, name) == 0) continue;
        if (n_listed++ < MOST_LISTED) {
            strbuf_printf(&names, "%s%.60s", n_listed > 1 ? ", " : "", name);
        }
    }
    if (n_listed > MOST_LISTED) strbuf_put(&names, ", ...");
    diag_error(diag, (SourceLoc){rows->path, 0},
               "Parquet file: no texts or messages in %s%s%s; its columns are %s%s",
               options->field ? "a column '" : "columns of the names that are known",
               options->field ? options->field : "", options->field ? "'" : "", names.text,
               options->preferences || options->unpaired ? "" : " (--field names one)");
    strbuf_destroy(&names);
    return false;
}

/* Of numbers those that say what a text is, or whether a message counts. */
static bool is_wanted(const CorpusOptions *options, const ParquetLeaf *leaf) {
    if (options->classes && is_label(options, leaf->column)) return true;
    if (leaf->is_text || strcmp(leaf->name, leaf->is_nested ? "weight" : "label") == 0) return true;
    return !leaf->is_nested && strcmp(leaf->name, "score") == 0;
}

static bool choose_columns(CorpusRows *rows, const CorpusOptions *options, bool counts,
                           Diag *diag) {
    const ParquetFile *file = &rows->file;
    bool any = false;
    rows->uses = ARENA_ARRAY(rows->arena, ParquetUse, file->n_leaves + 1);
    rows->text = find_text(file, options, counts);
    for (int i = 0; i < file->n_leaves; i++) {
        const ParquetLeaf *leaf = &file->leaves[i];
        if (!is_read(options, leaf->column)) continue;
        bool readable = parquet_leaf_is_readable(leaf) && is_wanted(options, leaf);
        rows->uses[i] = readable          ? PARQUET_VALUES
                        : leaf->is_nested ? PARQUET_LEVELS
                                          : PARQUET_LEFT_OUT;
        any |= readable && leaf->is_text;
    }
    return any || report_columns(rows, options, diag);
}

/* --- a column of texts --- */

static bool add_pages(Corpus *corpus, CorpusRows *rows, int group) {
    const ParquetLeaf *leaf = &rows->file.leaves[rows->text];
    int64_t row = rows->file.groups[group].first_row + 1, first = row;
    ParquetValues *dictionary = NULL;
    ParquetPages pages;
    ParquetPage page;
    bool any;
    const char *wrong = parquet_pages_begin(&pages, &rows->file, group, rows->text);
    while (!wrong && !(wrong = parquet_pages_next(&pages, &page, &any)) && any) {
        if (page.kind == PAGE_DICTIONARY) {
            if (dictionary) corpus_let_go(corpus, dictionary);
            dictionary = memory_zeroed(1, sizeof(*dictionary));
            corpus_hold(corpus, dictionary, release_dictionary);
            wrong = parquet_page_read(&page, leaf, NULL, dictionary);
            continue;
        }
        CorpusJob *job = corpus_add_job(corpus, JOB_PAGE, rows->path, row, NULL, page.n_packed);
        if (!job) return false;
        job->rows = rows;
        job->page = page;
        job->dictionary = dictionary;
        row += page.n_values;
    }
    if (dictionary) corpus_let_go(corpus, dictionary);
    return !wrong || report(corpus->diag, rows, rows->text, first, wrong);
}

static bool run_page(CorpusJob *job, Encoder *encoder, const CorpusOptions *options, bool counts) {
    const CorpusRows *rows = job->rows;
    const ParquetLeaf *leaf = &rows->file.leaves[rows->text];
    const char *wrong = parquet_page_read(&job->page, leaf, job->dictionary, &job->values);
    if (wrong) return report(corpus_job_diag(job), rows, rows->text, job->line, wrong);
    for (size_t i = 0; i < job->values.n; i++) {
        const ParquetText *text = &job->values.texts[i];
        char where[512];
        size_t length = text->bytes ? text->length : 0;
        snprintf(where, sizeof(where), "%s:%" PRId64, rows->path, job->line + (int64_t)i);
        if (!corpus_job_run_document(job, encoder, options, counts, text->bytes, length, where)) {
            return false;
        }
    }
    return true;
}

/* --- rows as objects --- */

static bool run_rows(CorpusJob *job, Encoder *encoder, const CorpusOptions *options, bool counts) {
    const CorpusRows *rows = job->rows;
    ParquetRows objects = {.keeps_empty = options->labels == CLASS_SETS};
    int leaf = 0;
    const char *wrong =
        parquet_rows_read(&objects, &rows->file, job->group, rows->uses, &job->values, &leaf);
    bool good = !wrong || report(corpus_job_diag(job), rows, leaf, job->line, wrong);
    for (size_t i = 0; good && i < objects.n; i++) {
        good = corpus_object_run(job, encoder, options, counts, objects.items[i],
                                 job->line + (int64_t)i);
    }
    parquet_rows_release(&objects);
    return good;
}

/* --- files --- */

static bool add_group(Corpus *corpus, CorpusRows *rows, int group) {
    const ParquetGroup *of = &rows->file.groups[group];
    int64_t n_bytes = 0;
    if (rows->text >= 0) return add_pages(corpus, rows, group);
    for (int i = 0; i < rows->file.n_leaves; i++) {
        if (rows->uses[i] && of->chunks[i].n_bytes > 0) n_bytes += of->chunks[i].n_bytes;
    }
    CorpusJob *job = corpus_add_job(corpus, JOB_ROWS, rows->path, of->first_row + 1, NULL, 0);
    if (!job) return false;
    job->rows = rows;
    job->group = group;
    job->file_bytes = (double)n_bytes;
    return true;
}

bool corpus_add_parquet(Corpus *corpus, const char *path, const unsigned char *bytes,
                        size_t length) {
    if (corpus->options->images) {
        diag_error(corpus->diag, (SourceLoc){path, 0},
                   "is a Parquet file: texts with images are lines of a file whose name ends in "
                   ".jsonl");
        return false;
    }
    CorpusRows *rows = memory_zeroed(1, sizeof(*rows));
    rows->arena = arena_create();
    rows->path = path;
    corpus_hold(corpus, rows, release_rows);
    bool good = parquet_open(&rows->file, rows->arena, path, bytes, length, corpus->diag) &&
                choose_columns(rows, corpus->options, corpus->counts != NULL, corpus->diag);
    for (int i = 0; good && i < rows->file.n_groups; i++) good = add_group(corpus, rows, i);
    corpus_let_go(corpus, rows);
    return good;
}

bool corpus_parquet_run(CorpusJob *job, Encoder *encoder, const CorpusOptions *options,
                        bool counts) {
    return job->kind == JOB_PAGE ? run_page(job, encoder, options, counts)
                                 : run_rows(job, encoder, options, counts);
}
