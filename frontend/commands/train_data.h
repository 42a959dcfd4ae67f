/* What a run is trained and validated on: one or several sources, in fixed shares, and which of
 * their labels count. --data, --data-weight, --val, --val-fraction and the plan -> samples. */
#ifndef FRONTEND_COMMANDS_TRAIN_DATA_H
#define FRONTEND_COMMANDS_TRAIN_DATA_H

#include "frontend/commands/train_answers.h"
#include "frontend/commands/train_diffusion.h"
#include "frontend/commands/train_documents.h"
#include "frontend/commands/train_images.h"
#include "frontend/commands/train_prompts.h"
#include "frontend/commands/train_skips.h"
#include "frontend/commands/train_stored.h"
#include "frontend/commands/train_text.h"
#include "planner/plan/plan.h"
#include "runtime/data/blend.h"
#include "runtime/data/masked_lm.h"

/* Data for one of the two, and what to call them. */
typedef struct TrainPart {
    const char *path, *name; /* name: short, unlike the others' */
    Dataset *data;
    double share;       /* of the samples, in training */
    double label_share; /* of the labels that count, which losses are means over */
    EmbedPool *pool;    /* of groups of texts; NULL: data are no such, or are validated on */
    float *scores;      /* [windows, 2]: of pairs and answers, the reference's; NULL: none asked */
} TrainPart;

typedef struct TrainData {
    const CliArgs *args;
    const Plan *plan;
    int full_batch; /* sequences; the plan may become one of a smaller global batch for a while */
    TrainText text;
    TrainSource source;
    TrainPairs pairs;
    TrainAnswers answers; /* of the batch that was read, where the pairs are none */
    TrainClasses classes;
    TrainEmbed embed;
    TrainImages images;
    TrainPrompts prompts;     /* where training writes answers; then there are no other data */
    float *reference;         /* [global_batch]: of the batch that was read; NULL: not asked for */
    TrainDocuments documents; /* of all sources together */
    Dataset
        *files[2 * BLEND_MOST_SOURCES]; /* [n_files]: to be closed, as are parts that are none */
    int n_files;
    TrainPart train[BLEND_MOST_SOURCES]; /* [n_train] */
    TrainPart val[BLEND_MOST_SOURCES];   /* [n_val]; none: no validation */
    int n_train, n_val;
    Blend blend;
    bool is_whole; /* opened by train_data_open_whole */
    bool masked;   /* labels may be DATASET_NO_LABEL */
    TrainDiffusion diffusion;
    TrainStored stored; /* what a teacher said of them */
    MaskedLm hidden;    /* tokens that are labels; rate 0: labels are the tokens that follow */
    double train_entropy, val_entropy;
} TrainData;

/* What can be said without looking at a file. */
bool train_data_options(const CliArgs *args, Diag *diag);

/* False: reported. Released by train_data_close, either way. */
bool train_data_open(const CliArgs *args, const Plan *plan, TrainData *out, Diag *diag);
/* The same with all of each --data as a source of validation, for a loss that nothing is trained
 * for: its train parts are the same ones. */
bool train_data_open_whole(const CliArgs *args, const Plan *plan, TrainData *out, Diag *diag);
void train_data_close(TrainData *data);

/* Samples that a global batch has: rows, or pairs of them. */
int64_t train_data_batch(const TrainData *data);
/* Global sample `index` of the endless sequence, as sample number `at` of a batch: tokens
 * [global_batch, plan_row], labels [global_batch, seq] and data->reference. Quickest in order. */
bool train_data_sample(TrainData *data, int64_t index, int64_t at, int32_t *tokens, int32_t *labels,
                       Diag *diag);
/* The same of the batch that follows, of a model that sees images: data->images is told which ones.
 */
bool train_data_look_ahead(TrainData *data, int64_t index, int64_t at, Diag *diag);

/* Window i of a validation source, likewise; the same at every call. */
bool train_data_window(TrainData *data, int source, int64_t i, int64_t at, int32_t *tokens,
                       int32_t *labels, Diag *diag);

/* The batch is complete: gives the engine what its next step (`trains`) or evaluation reads of it
 * beside tokens and labels. False: reported. */
bool train_data_give(TrainData *data, Engine *engine, bool trains, Diag *diag);

/* What a checkpoint says about its data, so that another is noticed: UTF-8, `size` bytes at most.
 */
void train_data_name(const TrainData *data, char *text, size_t size);

int64_t train_data_mapped_bytes(const TrainData *data);
/* The loss of knowing frequencies only, as it is told beside losses: of validation where there is
 * one. */
void train_data_print_entropy(const TrainData *data);
void train_data_print(const TrainData *data);
/* How much of each source samples [first, end) were, but for those left out. */
void train_data_print_samples(const TrainData *data, const TrainSkips *skips, int64_t first,
                              int64_t end);

#endif
