/* How good vectors of texts are, and the vectors: of queries, which of all answers are nearest to
 * them; of scored pairs, how well cosines order them as their scores do. */
#ifndef FRONTEND_COMMANDS_EVALUATE_EMBED_H
#define FRONTEND_COMMANDS_EVALUATE_EMBED_H

#include "frontend/commands/train_embed.h"
#include "frontend/progress_line.h"
#include "ir/base/strbuf.h"
#include "runtime/data/blend.h"
#include "runtime/engine.h"
#include "runtime/tokenizer/tokenizer.h"

/* Texts of one --data. */
typedef struct EmbedSource {
    const char *path;
    TokenBuffer buffer;
    EmbedText *texts; /* [n_texts], from malloc, in the order of the file; scores among them */
    int64_t n_texts;
    int64_t n_vectors, n_tokens, n_cut; /* of texts that have vectors */
    float *vectors;                     /* [n_texts, width], from malloc; of a score nothing */
    int64_t n_queries, n_answers;       /* different ones */
    double first_right, reciprocal_rank, recall, gain; /* means over queries */
    int64_t n_pairs;                                   /* that have scores */
    double spearman, pearson;
} EmbedSource;

typedef struct EmbedEvaluation {
    TrainEmbed embed; /* reads: the plan makes vectors of texts */
    const CliArgs *args;
    const Plan *plan;
    EmbedSource sources[BLEND_MOST_SOURCES]; /* [n_sources] */
    int n_sources;
    int64_t width;
} EmbedEvaluation;

/* The plan's kind, and, where it makes vectors, the texts of all --data. False: reported; released
 * either way by evaluate_embed_release. */
bool evaluate_embed_open(const CliArgs *args, const Plan *plan, const Tokenizer *tokenizer,
                         EmbedEvaluation *out, Diag *diag);
bool evaluate_embed(EmbedEvaluation *e, Engine *engine, ProgressLine *line, Diag *diag);
void evaluate_embed_put(const EmbedEvaluation *e, StrBuf *out);
void evaluate_embed_put_json(const EmbedEvaluation *e, StrBuf *out); /* without its braces */
/* Writes --vectors, where it is given. False: reported. */
bool evaluate_embed_write(const EmbedEvaluation *e, Diag *diag);
void evaluate_embed_release(EmbedEvaluation *e);

#endif
