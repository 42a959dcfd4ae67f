/* What training says of data whose documents a plan's attention keeps apart, and what it refuses:
 * data and plan must agree on the token that ends a document. */
#ifndef FRONTEND_COMMANDS_TRAIN_DOCUMENTS_H
#define FRONTEND_COMMANDS_TRAIN_DOCUMENTS_H

#include "frontend/commands/train_text.h"
#include "planner/plan/plan.h"

typedef struct TrainDocuments {
    int64_t separator;        /* -1: attention knows no documents */
    bool apart;               /* it is between them, and no document's last token */
    int64_t n_looked, n_ends; /* tokens of a sample of the data, and ends of documents there */
    const char *text;         /* of the separator, for people; NULL: it has none */
} TrainDocuments;

/* The token that keeps documents apart, or -1. */
int64_t train_documents_separator(const Plan *plan);
/* Adds what is seen of `data` to *out, which is zeroed before the first. False, reported: --eot is
 * another token than the plan's, or nothing of `data` is one. */
bool train_documents_check(const TrainText *text, const CliArgs *args, const Plan *plan,
                           const char *path, const Dataset *data, TrainDocuments *out, Diag *diag);
/* One line, where there are documents. */
void train_documents_print(const TrainDocuments *documents);

#endif
