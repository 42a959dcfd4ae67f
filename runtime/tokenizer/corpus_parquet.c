#include "runtime/tokenizer/corpus_parquet.h"

#include "ir/base/memory.h"
#include "ir/base/strbuf.h"
#include "ir/base/utf8.h"
#include "runtime/tokenizer/corpus_line.h"
#include "runtime/tokenizer/corpus_work.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_LISTED = 12 /* columns in a message */ };

/* READ_VALUES: texts, or numbers that say something of texts. READ_LEVELS: what is neither within a
 * list's records, which says whether there is any. */
typedef enum LeafUse { READ_NOTHING, READ_VALUES, READ_LEVELS } LeafUse;

/* A file whose jobs are to be done. */
typedef struct CorpusRows {
    Arena *arena;
    const char *path;
    ParquetFile file;
    LeafUse *uses; /* [n_leaves] */
    int text;      /* the leaf that is all there is to read; -1: rows are objects */
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

static bool is_read(const CorpusOptions *options, const char *column) {
    static const char *const ANSWERS[] = {"prompt", "chosen", "rejected", NULL};
    static const char *const LABELLED[] = {"prompt", "completion", "answer",
                                           "label",  "messages",   "conversations",
                                           "chosen", "rejected",   NULL};
    static const char *const OTHERS[] = {"text",   "messages", "conversations", "completion",
                                         "prompt", "chosen",   "rejected",      NULL};
    const char *const *names = options->classes       ? CORPUS_CLASS_KEYS
                               : options->preferences ? ANSWERS
                               : options->unpaired    ? LABELLED
                                                      : OTHERS;
    if (options->classes && strcmp(column, "label") == 0) return true;
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
    if (options->preferences || options->unpaired || options->classes ||
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

static bool is_spelled(const char *name) {
    size_t n = strlen(name);
    return utf8_valid_bytes((const unsigned char *)name, n) == n;
}

/* Texts at the top, or in records of a list, whose names can be JSON's; of numbers those that say
 * what a text is, or whether a message counts. */
static bool is_readable(const ParquetLeaf *leaf) {
    bool number =
        leaf->number_bytes && strcmp(leaf->name, leaf->is_nested ? "weight" : "label") == 0;
    return (leaf->is_text || number) && leaf->most_repeated == leaf->is_nested &&
           is_spelled(leaf->name);
}

static bool choose_columns(CorpusRows *rows, const CorpusOptions *options, bool counts,
                           Diag *diag) {
    const ParquetFile *file = &rows->file;
    bool any = false;
    rows->uses = ARENA_ARRAY(rows->arena, LeafUse, file->n_leaves + 1);
    rows->text = find_text(file, options, counts);
    for (int i = 0; i < file->n_leaves; i++) {
        const ParquetLeaf *leaf = &file->leaves[i];
        if (!is_read(options, leaf->column)) continue;
        bool readable = is_readable(leaf);
        rows->uses[i] = readable ? READ_VALUES : leaf->is_nested ? READ_LEVELS : READ_NOTHING;
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

typedef struct Objects {
    json_t **items; /* [n] */
    size_t n, room;
    int64_t n_rows; /* that the group promises */
} Objects;

static json_t *object_at(Objects *objects, size_t row) {
    while (row >= objects->n) {
        if (objects->n == objects->room) {
            objects->room = 2 * objects->room + 64;
            objects->items = memory_grow(objects->items, objects->room * sizeof(json_t *));
        }
        json_t *object = json_object();
        if (!object) memory_exhausted(0);
        objects->items[objects->n++] = object;
    }
    return objects->items[row];
}

/* The object of a list's element, all made as needed. */
static json_t *element_at(json_t *row, const char *column, size_t i) {
    json_t *list = json_object_get(row, column);
    if (!json_is_array(list)) {
        list = json_array();
        if (!list || json_object_set_new(row, column, list) != 0) memory_exhausted(0);
    }
    while (json_array_size(list) <= i) {
        if (json_array_append_new(list, json_object()) != 0) memory_exhausted(0);
    }
    return json_array_get(list, i);
}

typedef struct Place {
    int64_t row; /* -1: before the first */
    size_t element;
} Place;

/* What is no text is marked, for it to be refused where it is not known. NULL, or what is wrong. */
static const char *put_value(json_t *object, const ParquetLeaf *leaf, const ParquetText *text) {
    if (!text->bytes) {
        bool spelled = is_spelled(leaf->name);
        if (json_object_set_new(object, spelled ? leaf->name : "?", json_true()) == 0) return NULL;
        memory_exhausted(0);
    }
    if (leaf->number_bytes) {
        double number = parquet_number(leaf, text);
        if (!isfinite(number)) return "has a number that is none";
        if (json_object_set_new(object, leaf->name, json_real(number)) == 0) return NULL;
        memory_exhausted(0);
    }
    json_t *string = json_stringn((const char *)text->bytes, text->length);
    if (!string) return "has text that is not UTF-8";
    if (json_object_set_new(object, leaf->name, string) != 0) memory_exhausted(0);
    return NULL;
}

/* NULL, or what is wrong. */
static const char *put_values(const ParquetLeaf *leaf, const ParquetValues *values, Place *place,
                              Objects *objects) {
    const char *wrong = NULL;
    for (size_t i = 0; !wrong && i < values->n; i++) {
        if (values->repeated[i] == 0) *place = (Place){.row = place->row + 1};
        if (values->repeated[i] == 1) place->element++;
        if (place->row < 0 || place->row >= objects->n_rows) return "has other rows than promised";
        json_t *object = object_at(objects, (size_t)place->row);
        if (leaf->is_nested && values->defined[i] < leaf->element_defined) continue; /* empty */
        if (leaf->is_nested) object = element_at(object, leaf->column, place->element);
        if (values->defined[i] < leaf->most_defined) continue;
        wrong = put_value(object, leaf, &values->texts[i]);
    }
    return wrong;
}

static const char *read_leaf(CorpusJob *job, int number, Objects *objects) {
    const ParquetFile *file = &job->rows->file;
    const ParquetLeaf *leaf = &file->leaves[number];
    bool texts = job->rows->uses[number] == READ_VALUES;
    ParquetValues dictionary = {0};
    ParquetPages pages;
    ParquetPage page;
    Place place = {.row = -1};
    bool any;
    const char *wrong = parquet_pages_begin(&pages, file, job->group, number);
    while (!wrong && !(wrong = parquet_pages_next(&pages, &page, &any)) && any) {
        if (page.kind == PAGE_DICTIONARY) {
            if (texts) wrong = parquet_page_read(&page, leaf, NULL, &dictionary);
            continue;
        }
        wrong = texts ? parquet_page_read(&page, leaf, &dictionary, &job->values)
                      : parquet_page_levels(&page, leaf, &job->values);
        if (!wrong) wrong = put_values(leaf, &job->values, &place, objects);
    }
    parquet_values_release(&dictionary);
    return wrong;
}

static bool run_rows(CorpusJob *job, Encoder *encoder, const CorpusOptions *options, bool counts) {
    const CorpusRows *rows = job->rows;
    Objects objects = {.n_rows = rows->file.groups[job->group].n_rows};
    bool good = true;
    for (int i = 0; good && i < rows->file.n_leaves; i++) {
        if (rows->uses[i] == READ_NOTHING) continue;
        const char *wrong = read_leaf(job, i, &objects);
        good = !wrong || report(corpus_job_diag(job), rows, i, job->line, wrong);
    }
    for (size_t i = 0; i < objects.n; i++) {
        good = good && corpus_object_run(job, encoder, options, counts, objects.items[i],
                                         job->line + (int64_t)i);
        json_decref(objects.items[i]);
    }
    free(objects.items);
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
