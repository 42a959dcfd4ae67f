/* Texts of classes: documents (token_mask.h) whose last token is the number of their class, the
 * only one that counts, become windows of [seq] tokens, one in each; or stay documents, to be
 * packed. Where a text has more than a class its last `n_words` are that, and count: they become a
 * row of a table, whose number is in their place. Of texts that are longer than what fits their
 * ends are lost, of two that belong together the longer one's first; tokens around them stay.
 *
 * What a model sees: `pad` in the place of the class and of what is left of a row, and the class as
 * the label of the text's first or last token.
 */
#ifndef RUNTIME_DATA_CLASS_ROWS_H
#define RUNTIME_DATA_CLASS_ROWS_H

#include "runtime/data/token_buffer.h"

/* What texts have, [n, n_words]; items to be freed. */
typedef struct ClassTable {
    int64_t n, capacity;
    int n_words;
    uint32_t *items;
} ClassTable;

typedef struct ClassRowOptions {
    size_t seq; /* at least 2 */
    uint32_t pad;
    bool first;        /* are texts told of at their first token? Then none of them has `pad` */
    bool shuffles;     /* in a fixed order of chance: data may lie in the order of their classes */
    bool documents;    /* for pack_documents */
    ClassTable *table; /* NULL: texts have a class each */
} ClassRowOptions;

typedef struct ClassTotals {
    int64_t n_texts, n_tokens; /* before anything is cut, classes not among them */
    int64_t n_cut;
    int64_t n_empty; /* left out: there is nothing before the class */
} ClassTotals;

void class_add_totals(ClassTotals *sum, const ClassTotals *more);

/* counts [n_classes], which grow by the texts of each; they do not where there is a table. False:
 * no memory, no text, one with `pad`, or no room for any; reported. */
bool class_rows(TokenBuffer *buffer, const ClassRowOptions *options, int64_t *counts, int n_classes,
                ClassTotals *out, Diag *diag);

/* tokens, labels [seq], as a dataset gives them, -> as a model sees them. */
void class_row_finish(int32_t *tokens, int32_t *labels, int64_t seq, bool first, int32_t pad);

#endif
