/* A corpus in work: files are cut into jobs (corpus_file.c, corpus_parquet.c), which several
 * threads do and whose results are taken in order (corpus.c). */
#ifndef RUNTIME_TOKENIZER_CORPUS_WORK_H
#define RUNTIME_TOKENIZER_CORPUS_WORK_H

#include "ir/base/file.h"
#include "runtime/tokenizer/corpus_job.h"

enum {
    JOB_BYTES = 256 * 1024,
    LONG_DOCUMENT = 1024 * 1024, /* is done by several threads */
};

/* Memory that jobs read. */
typedef struct CorpusHold {
    const void *key;
    FileMap map;
    void *owned;
    void (*release)(void *owned);
    bool in_use; /* more jobs may come that read it; else it goes once those that are there ran */
} CorpusHold;

typedef struct Corpus {
    const Tokenizer *tokenizer;
    const CorpusOptions *options;
    TokenTaker *take;
    void *user;
    WordCounts *counts; /* NULL: tokens are made */
    size_t most_bytes;
    int64_t pruned;
    CorpusTotals totals;
    double bytes_done; /* of files */
    int64_t bytes_all;
    double file_bytes;  /* that a byte of a job stands for: less than one where it was packed */
    bool is_pipe;       /* the file in work, whose name says nothing */
    bool begins;        /* the next token is a long document's first */
    Encoder **encoders; /* [n_threads] */
    CorpusJob *jobs;    /* [capacity] */
    int n_jobs, capacity;
    CorpusHold *holds;
    int n_holds, holds_capacity;
    Diag *diag;
} Corpus;

/* "-", which is standard input, or a pipe. */
bool corpus_is_pipe(const char *path);
/* Jobs of all of a file, text or not. Reports. */
bool corpus_add_file(Corpus *corpus, const char *path);
/* Of one that is Parquet's, whose map is held. */
bool corpus_add_parquet(Corpus *corpus, const char *path, const unsigned char *bytes,
                        size_t length);

/* Kept until it is let go and the jobs that are there then are done. */
void corpus_hold_map(Corpus *corpus, const FileMap *map);
void corpus_hold(Corpus *corpus, void *owned, void (*release)(void *owned));
void corpus_let_go(Corpus *corpus, const void *key); /* the map's data, or what is owned */

/* A job to be filled in; where there is no room, those that are there are done first. NULL: that
 * failed; reported. */
CorpusJob *corpus_add_job(Corpus *corpus, CorpusJobKind kind, const char *path, int64_t line,
                          const unsigned char *text, size_t length);
/* A document of more than LONG_DOCUMENT bytes, at once. */
bool corpus_run_long(Corpus *corpus, const char *path, const unsigned char *text, size_t length);

#endif
