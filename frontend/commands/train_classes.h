/* Texts of classes, where the plan's model tells them: what its loss says about them (label_share:
 * `classes`, `first`, `pad`, `between`), and how well they are told. */
#ifndef FRONTEND_COMMANDS_TRAIN_CLASSES_H
#define FRONTEND_COMMANDS_TRAIN_CLASSES_H

#include "ir/class_names.h"
#include "planner/plan/plan.h"
#include "runtime/data/class_rows.h"
#include "runtime/engine.h"

typedef struct TrainClasses {
    bool reads; /* are labels classes of texts? */
    ClassLabels labels;
    const char *names;
    int n, between;
    int64_t end;         /* of texts; -1: any token, or none */
    ClassRowOptions how; /* but `documents` and `shuffles` */
    bool packs_apart;    /* does attention keep texts in one row apart? */
    bool may_lack;       /* texts may have no class: their number is n */
    ClassTotals totals;  /* of all that was opened */
    int64_t *counts;     /* [n + 1]: texts of each class, and without one */
    ClassTable table;    /* of sets or numbers: labels are its rows */
    int64_t n_of_data;   /* of these, the first ones: those of --data, not of --val */
    double threshold;    /* of sets: a class is told where its probability is as much */
    /* What the plan's loss reads besides of a batch, made of its labels; NULL: nothing. */
    float *targets;        /* [global_batch, seq, n] */
    int32_t *batch_labels; /* [global_batch, seq] */
    double *weights;       /* [n]; NULL: all count alike */
    bool balanced;         /* weights are those of train_classes_weigh */
    double smoothing;
} TrainClasses;

/* `share`: the plan's label_share, or NULL. False, reported: it is none that can be. */
bool train_classes_of(const Plan *plan, const Node *share, Arena *arena, TrainClasses *out,
                      Diag *diag);
/* Is the plan's end of texts what ends them in the data? False: reported. */
bool train_classes_check_end(const TrainClasses *classes, uint32_t last, Diag *diag);
/* Documents in the buffer become rows, or texts to be packed. False: reported. */
bool train_classes_rows(TrainClasses *classes, bool packs, bool whole, TokenBuffer *buffer,
                        Diag *diag);
void train_classes_release(TrainClasses *classes);
void train_classes_print(const TrainClasses *classes);
/* Balanced weights, (texts / classes) / (texts of the class), by what was opened so far. False:
 * reported. */
bool train_classes_weigh(TrainClasses *classes, Diag *diag);
/* Labels [seq], as a model sees them, become number `at` of a batch. */
void train_classes_take(TrainClasses *classes, const int32_t *labels, int64_t at);
/* The batch's targets. Weights are divided by their mean over its texts. */
void train_classes_give(TrainClasses *classes, const Plan *plan, Engine *engine);
/* What text `label`, a row of the table, has of class i. */
float train_classes_at(const TrainClasses *classes, int32_t label, int i);
/* May be false where texts may lack what is told of them. */
bool train_classes_knows(const TrainClasses *classes, int32_t label);

/* How texts were told. */
typedef struct ClassResult {
    int64_t n_texts;               /* with a class */
    double loss;                   /* summed; of numbers squares of errors */
    int64_t n_right;               /* of sets those that are exactly so */
    int64_t *texts, *told, *right; /* [n]: of each class: texts, texts told to be it, rightly so */
    /* Of sets and numbers, where they are kept: [n_texts, n], logits or numbers, and what it is. */
    bool keeps;
    int64_t capacity;
    float *numbers, *given;
} ClassResult;

ClassResult class_result_create(const TrainClasses *classes, Arena *arena);
void class_result_release(ClassResult *result);
/* Takes what is told of the next text, [n]: probabilities, or numbers; and its label: the class (n:
 * not known), or a row of the table. */
typedef void ClassTaker(void *user, const float *told, int32_t label);
/* Adds n_rows rows: tokens, labels [n_rows, seq], as a model sees them. take may be NULL. All
 * processes call it. False: reported. */
bool train_classes_tell(const TrainClasses *classes, const Plan *plan, Engine *engine,
                        const int32_t *tokens, const int32_t *labels, int64_t n_rows,
                        ClassResult *to, ClassTaker *take, void *user, Diag *diag);
/* The mean over classes that texts have, or are told to have, of F1 = 2 right / (texts + told). */
double class_result_f1(const ClassResult *result, int class);
double class_result_mean_f1(const ClassResult *result, int n);

#endif
