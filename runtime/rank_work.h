/* What a rank's time goes into: its own work by class, and messages, in which it waits for others.
 *
 * A message takes as long as its slowest part: what a rank that comes early spends in it is waiting
 * for the one that comes last. Between processes no rank can tell alone which is which; all
 * together can (frontend/commands/find_stragglers.h). Threads of one process can.
 */
#ifndef RUNTIME_RANK_WORK_H
#define RUNTIME_RANK_WORK_H

#include "planner/plan/plan.h"

typedef enum WorkClass {
    WORK_PRODUCTS,
    WORK_ATTENTION,   /* and what stands for it in layers with a state */
    WORK_ELEMENTWISE, /* all other ops of micro-batches: norms, activations, embeddings, losses */
    WORK_UPDATE,      /* after the last micro-batch: norms of gradients, the optimizer */
    WORK_DATA,        /* reading samples, and inputs on their way to the rank */
    N_WORK_CLASSES
} WorkClass;
/* "products", "attention", "elementwise", "update", "data" */
const char *work_class_name(WorkClass class);

/* Collectives by mesh axis or group of axes, and what goes between stages. */
enum {
    MESSAGE_TIED = N_MESH_GROUPS, /* sums over the stages that share weights */
    MESSAGE_SEND_FORWARD,
    MESSAGE_RECV_FORWARD,
    MESSAGE_SEND_BACKWARD,
    MESSAGE_RECV_BACKWARD,
    N_MESSAGE_CLASSES
};

/* Of a mean step, among those that were measured. */
typedef struct RankWork {
    int64_t n_steps; /* that were measured */
    int64_t device;  /* the number of its GPU on its machine; -1: the processor */
    double step_seconds;
    double work_seconds[N_WORK_CLASSES];
    double message_seconds[N_MESSAGE_CLASSES]; /* with waiting */
    double waited_seconds[N_MESSAGE_CLASSES];  /* of them, what is known to be; 0: is not known */
    /* Standard errors of the sum over work_seconds, and of message_seconds without what is known to
     * be waiting, as means over steps; 0: not known, of one step. */
    double work_error, message_errors[N_MESSAGE_CLASSES];
} RankWork;

/* Sums over steps, of which the means are made. */
typedef struct WorkSums {
    RankWork sum, before; /* with the last step, and without */
    double work_squares, message_squares[N_MESSAGE_CLASSES];
} WorkSums;

/* A step has ended whose calls have been added to sums->sum. */
void work_sums_end_step(WorkSums *sums);
/* Of the steps since the last call; all is zero where there were none. */
RankWork work_sums_take(WorkSums *sums);

/* Of all classes of work. */
double rank_work_seconds(const RankWork *work);
/* Of messages, without what is known to be waiting. */
double rank_message_seconds(const RankWork *work, int message);

/* Adds a call's or command's time, and what of it is known to be waiting for other ranks. `node` as
 * EngineSpan has it: NULL is inputs. */
void rank_work_add(RankWork *work, const Node *node, TaskKind task, double seconds,
                   double waited_seconds);

#endif
