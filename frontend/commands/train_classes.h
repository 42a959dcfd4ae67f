/* Texts of classes, where the plan's model tells them: what its loss says about them (label_share:
 * `classes`, `first`, `pad`, `between`), and how well they are told. */
#ifndef FRONTEND_COMMANDS_TRAIN_CLASSES_H
#define FRONTEND_COMMANDS_TRAIN_CLASSES_H

#include "planner/plan/plan.h"
#include "runtime/data/class_rows.h"
#include "runtime/engine.h"

typedef struct TrainClasses {
    bool reads; /* are labels classes of texts? */
    const char *names;
    int n, between;
    int64_t end;         /* of texts; -1: any token, or none */
    ClassRowOptions how; /* but `documents` and `shuffles` */
    bool packs_apart;    /* does attention keep texts in one row apart? */
    bool may_lack;       /* texts may have no class: their number is n */
    ClassTotals totals;  /* of all that was opened */
    int64_t *counts;     /* [n + 1]: texts of each class, and without one */
} TrainClasses;

/* `share`: the plan's label_share, or NULL. False, reported: it is none that can be. */
bool train_classes_of(const Plan *plan, const Node *share, Arena *arena, TrainClasses *out,
                      Diag *diag);
/* Is the plan's end of texts what ends them in the data? False: reported. */
bool train_classes_check_end(const TrainClasses *classes, uint32_t last, Diag *diag);
/* Documents in the buffer become rows, or texts to be packed. False: reported. */
bool train_classes_rows(TrainClasses *classes, bool packs, bool whole, TokenBuffer *buffer,
                        Diag *diag);
void train_classes_print(const TrainClasses *classes);

/* How texts were told. */
typedef struct ClassResult {
    int64_t n_texts; /* with a class */
    double loss;     /* summed */
    int64_t n_right;
    int64_t *texts, *told, *right; /* [n]: of each class: texts, texts told to be it, rightly so */
} ClassResult;

ClassResult class_result_create(const TrainClasses *classes, Arena *arena);
/* Takes the probabilities [n] of the next text and what it is (n: not known). */
typedef void ClassTaker(void *user, const float *probabilities, int class);
/* Adds n_rows rows: tokens, labels [n_rows, seq], as a model sees them. take may be NULL. All
 * processes call it. False: reported. */
bool train_classes_tell(const TrainClasses *classes, const Plan *plan, Engine *engine,
                        const int32_t *tokens, const int32_t *labels, int64_t n_rows,
                        ClassResult *to, ClassTaker *take, void *user, Diag *diag);
/* The mean over classes that texts have, or are told to have, of F1 = 2 right / (texts + told). */
double class_result_f1(const ClassResult *result, int class);
double class_result_mean_f1(const ClassResult *result, int n);

#endif
