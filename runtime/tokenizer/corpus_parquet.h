/* Rows of Parquet files as documents. One column of texts is encoded page by page; of rows that
 * have several (prompts and answers) or lists (messages) objects are made, which are what the lines
 * of a .jsonl file would be. */
#ifndef RUNTIME_TOKENIZER_CORPUS_PARQUET_H
#define RUNTIME_TOKENIZER_CORPUS_PARQUET_H

#include "runtime/tokenizer/corpus_job.h"

/* Of JOB_PAGE and JOB_ROWS; with what they count or make. False: reported. */
bool corpus_parquet_run(CorpusJob *job, Encoder *encoder, const CorpusOptions *options,
                        bool counts);

#endif
