/* One line of a .jsonl file, or an object of an array: a text, a prompt and its completion, or a
 * conversation. */
#ifndef RUNTIME_TOKENIZER_CORPUS_LINE_H
#define RUNTIME_TOKENIZER_CORPUS_LINE_H

#include "runtime/tokenizer/corpus_job.h"

#include <jansson.h>

/* line [length]: without its end; `number`: of its first line, in errors. False: reported. */
bool corpus_line_run(CorpusJob *job, Encoder *encoder, const CorpusOptions *options, bool counts,
                     const unsigned char *line, size_t length, int64_t number);

/* Keys of texts that have classes, beside `label`; ends with NULL. */
extern const char *const CORPUS_CLASS_KEYS[];

/* Keys of texts that belong together; ends with NULL. Besides there are negative_1 and so on. */
extern const char *const CORPUS_TEXTS_KEYS[];

/* An object that was made of something else; `number`: as above. */
bool corpus_object_run(CorpusJob *job, Encoder *encoder, const CorpusOptions *options, bool counts,
                       const json_t *object, int64_t number);

#endif
