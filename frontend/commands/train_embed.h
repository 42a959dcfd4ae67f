/* Texts that get vectors, where the plan's model makes them: what its loss says about groups of
 * them (label_share: `groups`, `count`, `length`, `first`, `pad`). */
#ifndef FRONTEND_COMMANDS_TRAIN_EMBED_H
#define FRONTEND_COMMANDS_TRAIN_EMBED_H

#include "frontend/commands/cli.h"
#include "planner/plan/plan.h"
#include "runtime/data/blend.h"
#include "runtime/data/embed_rows.h"
#include "runtime/tokenizer/corpus.h"

typedef struct TrainEmbed {
    bool reads; /* do labels say which text a token stands for? */
    bool first; /* at its first token? */
    EmbedRowOptions how;
    EmbedTotals totals;                       /* of all that was opened */
    EmbedPool *pools[2 * BLEND_MOST_SOURCES]; /* [n_pools]: of each file, in that order */
    int n_pools;
} TrainEmbed;

/* `share`: the plan's label_share, or NULL. False, reported: it is none that can be. */
bool train_embed_of(const Plan *plan, const Node *share, TrainEmbed *out, Diag *diag);

/* Options that go with data of another kind, or with texts for vectors only. False: reported. */
bool train_embed_check_options(const TrainEmbed *embed, const CliArgs *args, const char *path,
                               bool plain, Diag *diag);
/* What text of lines is taken as, groups of the plan's size or (any) whatever it is. */
void train_embed_options(const TrainEmbed *embed, const CliArgs *args, bool any,
                         CorpusOptions *out);
/* Documents in the buffer become rows. False: reported. */
bool train_embed_rows(TrainEmbed *embed, TokenBuffer *buffer, Diag *diag);
/* The pool of what was opened last, to be used as the groups of its first n_rows rows; NULL: the
 * plan makes no vectors. */
EmbedPool *train_embed_pool(TrainEmbed *embed, int64_t n_rows);
void train_embed_release(TrainEmbed *embed);
void train_embed_print(const TrainEmbed *embed);

#endif
