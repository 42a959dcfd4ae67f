/* What an object of lines says of its text beside the text: the class it has, the set of those that
 * it has, or a number of each.
 *
 * Sets and numbers are words of 32 bits: the first is 1, or 0 where nothing is said; behind it a
 * set has a bit of each class, the first one's the lowest of its word, and numbers are bits of f32.
 */
#ifndef RUNTIME_TOKENIZER_CORPUS_LABELS_H
#define RUNTIME_TOKENIZER_CORPUS_LABELS_H

#include "ir/base/diag.h"
#include "runtime/tokenizer/corpus.h"

#include <jansson.h>

/* How many words a text's labels are. */
int class_label_words(ClassLabels labels, int n_classes);
/* The number of class i of the words, of a set 0 or 1. */
float class_label_at(ClassLabels labels, const uint32_t *words, int i);

/* -1: there is none; reported. */
int corpus_read_class(const json_t *object, const CorpusOptions *options, SourceLoc loc,
                      Diag *diag);
/* words [class_label_words]. False: reported. */
bool corpus_read_labels(const json_t *object, const CorpusOptions *options, uint32_t *words,
                        SourceLoc loc, Diag *diag);

#endif
