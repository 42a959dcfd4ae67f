/* A part of a corpus that one thread does by itself: documents, lines of JSON, objects of an array,
 * a stretch of one long document, or a part of a Parquet file. -> tokens or counts of words, and
 * what went wrong. */
#ifndef RUNTIME_TOKENIZER_CORPUS_JOB_H
#define RUNTIME_TOKENIZER_CORPUS_JOB_H

#include "runtime/data/parquet.h"
#include "runtime/tokenizer/corpus.h"
#include "runtime/tokenizer/line_text.h"

typedef enum CorpusJobKind {
    JOB_LINES,
    JOB_OBJECTS,
    JOB_DOCUMENTS,
    JOB_CHUNK,
    JOB_PAGE, /* of a Parquet file: a page of one column of texts */
    JOB_ROWS, /* of one: a group of rows, as objects */
} CorpusJobKind;

typedef struct CorpusJob {
    CorpusJobKind kind;
    const char *path;
    int64_t line; /* the first one's number */
    const unsigned char *text;
    size_t length;
    double file_bytes; /* that it stands for in the progress */
    Chunk chunk;
    struct CorpusRows *rows; /* of JOB_PAGE and JOB_ROWS (corpus_parquet.h) */
    ParquetPage page;
    const ParquetValues *dictionary; /* of the page; NULL: none */
    int group;
    ParquetValues values; /* used again and again */
    LineRoom room;        /* likewise, of JOB_LINES and JOB_OBJECTS */
    /* Results. */
    TokenList tokens;
    TokenMarks marks; /* of the first of them; of the others TOKEN_COUNTS */
    WordCounts counts;
    int64_t n_documents, n_bytes, n_special, n_unanswered, n_filled;
    bool failed;
    Diag *diag; /* one at most */
} CorpusJob;

void corpus_job_clear(CorpusJob *job);
void corpus_job_release(CorpusJob *job);
Diag *corpus_job_diag(CorpusJob *job);
/* Of a text without a token. False: it is refused; reported. */
bool corpus_job_may_be_empty(CorpusJob *job, const CorpusOptions *options, const char *where);
/* One document of plain text. */
bool corpus_job_run_document(CorpusJob *job, Encoder *encoder, const CorpusOptions *options,
                             bool counts, const unsigned char *text, size_t length,
                             const char *where);
/* The number of the calling thread. */
int corpus_job_thread(void);

/* Whatever it is. counts: words are counted, else tokens are made. */
void corpus_job_run(CorpusJob *job, Encoder *encoder, const CorpusOptions *options, bool counts);
void corpus_job_run_segment(CorpusJob *job, Encoder *encoder, const Segment *segment, bool counts);
/* Takes back the counts of a chunk's pieces before `until`. */
void corpus_job_uncount(CorpusJob *job, Encoder *encoder, size_t until);

#endif
