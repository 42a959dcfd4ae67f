/* Images that the plan's model sees: lines of data name them, texts have places for them, and the
 * pixels of a batch's are read when the batch is. What the loss says about it (label_share:
 * `image_token`, ...) and the data -> rows of what the engine takes. --images. */
#ifndef FRONTEND_COMMANDS_TRAIN_IMAGES_H
#define FRONTEND_COMMANDS_TRAIN_IMAGES_H

#include "frontend/commands/cli.h"
#include "planner/plan/plan.h"
#include "runtime/data/image_ahead.h"
#include "runtime/data/image_rows.h"
#include "runtime/data/image_store.h"
#include "runtime/engine.h"
#include "runtime/tokenizer/corpus.h"
#include "runtime/tokenizer/corpus_images.h"

typedef struct TrainImages {
    bool reads; /* does the model see images? */
    const Plan *plan;
    ImageRule rule;
    ImageStore *store;
    CorpusImages corpus;
    ImageTexts *texts; /* what stands for images, once there is a tokenizer */
    ImageRowOptions how;
    ImageTotals totals;       /* of all that was opened */
    int64_t window;           /* numbers of a row in the data: tokens, and which images */
    int32_t *tokens, *labels; /* [window] */
    ImageWanted *wanted;      /* [global_batch * rule.images]: of the batch that is being read */
    int64_t n_wanted;
    ImageAhead *ahead;     /* reads the next batch's meanwhile; NULL: nothing does */
    ImageWanted *expected; /* [global_batch * rule.images]: of the next batch */
    int64_t n_expected;
    bool shares;              /* several processes: this one reads what its rank needs, */
    int own;                  /* its part of the batch's; -1: none */
    int64_t n_read;           /* images, since training began */
    double seconds, of_batch; /* in which they were read: all of them, and the last batch's */
} TrainImages;

/* `share`: the plan's label_share, or NULL. False, reported: it makes no sense, or --images is
 * given and the model sees none. Released by train_images_release, either way. */
bool train_images_of(const CliArgs *args, const Plan *plan, const Node *share, TrainImages *out,
                     Diag *diag);
void train_images_release(TrainImages *images);
/* Does the plan's model see images? Then what is no --data is refused: `what` does not give any. */
bool train_images_refuse(const Plan *plan, const char *what, Diag *diag);

/* Can data of this path be read? plain: they are no text, or there is no tokenizer. */
bool train_images_check_options(const TrainImages *images, const CliArgs *args, const char *path,
                                bool plain, Diag *diag);
/* What the corpus is to be read with; nothing where the model sees none. */
void train_images_options(TrainImages *images, const CliArgs *args, const Tokenizer *tokenizer,
                          CorpusOptions *options);
/* Documents as rows. pad: the token behind a text. False, reported: an image is not there, rows
 * have no room for one, or the tokenizer lacks what stands around it. */
bool train_images_rows(TrainImages *images, const CliArgs *args, uint32_t pad, TokenBuffer *buffer,
                       Diag *diag);

/* What the numbers of such rows are below: tokens, and images behind them. */
int train_images_vocab(const TrainImages *images, int vocab);

/* Of training, once what was opened stays: which rows' images this process needs, and whether there
 * are cores to read the next batch's ahead. */
void train_images_start(TrainImages *images, const EngineOptions *options);
/* images->tokens and labels, as the dataset gave them, -> tokens [plan_row], labels [seq], which
 * are the batch's number `at`. Pixels come with train_images_give: until then `tokens` has to stay
 * where it is. False: reported at `path`. */
bool train_images_fill(TrainImages *images, const char *path, int64_t at, int32_t *tokens,
                       int32_t *labels, Diag *diag);
/* images->tokens are those of number `at` of the next batch; when all were told, they are read. */
void train_images_expect(TrainImages *images, int64_t at);
void train_images_look_ahead(TrainImages *images);
/* Reads the pixels of all rows that were filled. False: reported. */
bool train_images_give(TrainImages *images, Diag *diag);

void train_images_print(const TrainImages *images);
/* How long it took, at the end. */
void train_images_print_read(const TrainImages *images);

#endif
