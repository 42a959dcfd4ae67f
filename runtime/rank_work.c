#include "runtime/rank_work.h"

#include <math.h>
#include <string.h>

const char *work_class_name(WorkClass class) {
    static const char *const names[N_WORK_CLASSES] = {[WORK_PRODUCTS] = "products",
                                                      [WORK_ATTENTION] = "attention",
                                                      [WORK_ELEMENTWISE] = "elementwise",
                                                      [WORK_UPDATE] = "update",
                                                      [WORK_DATA] = "data"};
    return names[class];
}

/* -1: no message. */
static int message_class(const Node *node, TaskKind task) {
    switch (task) {
    case TASK_SEND_FORWARD: return MESSAGE_SEND_FORWARD;
    case TASK_RECV_FORWARD: return MESSAGE_RECV_FORWARD;
    case TASK_SEND_BACKWARD: return MESSAGE_SEND_BACKWARD;
    case TASK_RECV_BACKWARD: return MESSAGE_RECV_BACKWARD;
    default: break;
    }
    if (!(OPS[node->op].flags & COLLECTIVE)) return -1;
    if (node->op == OP_STAGE_REDUCE) return MESSAGE_TIED;
    const char *axis = node_string(node, ATTR_mesh);
    return mesh_axis_find(axis, (int)strlen(axis));
}

static WorkClass work_class(const Node *node, TaskKind task) {
    if (task == TASK_UPDATE) return WORK_UPDATE;
    switch (node->op) {
    case OP_MATMUL: return WORK_PRODUCTS;
    case OP_ATTENTION:
    case OP_ATTENTION_GRAD:
    case OP_LINEAR_ATTENTION:
    case OP_LINEAR_ATTENTION_GRAD: return WORK_ATTENTION;
    default: return WORK_ELEMENTWISE;
    }
}

void rank_work_add(RankWork *work, const Node *node, TaskKind task, double seconds,
                   double waited_seconds) {
    const int message = node ? message_class(node, task) : -1;
    if (message >= 0) {
        work->message_seconds[message] += seconds;
        work->waited_seconds[message] += waited_seconds;
    } else {
        work->work_seconds[node ? work_class(node, task) : WORK_DATA] += seconds;
    }
}

double rank_work_seconds(const RankWork *work) {
    double seconds = 0;
    for (int i = 0; i < N_WORK_CLASSES; i++) seconds += work->work_seconds[i];
    return seconds;
}

double rank_message_seconds(const RankWork *work, int message) {
    return fmax(0, work->message_seconds[message] - work->waited_seconds[message]);
}

void work_sums_end_step(WorkSums *sums) {
    const double work = rank_work_seconds(&sums->sum) - rank_work_seconds(&sums->before);
    sums->work_squares += work * work;
    for (int i = 0; i < N_MESSAGE_CLASSES; i++) {
        const double message =
            rank_message_seconds(&sums->sum, i) - rank_message_seconds(&sums->before, i);
        sums->message_squares[i] += message * message;
    }
    sums->sum.n_steps++;
    sums->before = sums->sum;
}

static double standard_error(double squares, double sum, double n) {
    return n > 1 ? sqrt(fmax(0, squares / n - sum / n * (sum / n)) / (n - 1)) : 0;
}

RankWork work_sums_take(WorkSums *sums) {
    const RankWork *sum = &sums->sum;
    const double n = sum->n_steps ? (double)sum->n_steps : 1;
    RankWork mean = {.n_steps = sum->n_steps,
                     .work_error = standard_error(sums->work_squares, rank_work_seconds(sum), n)};
    for (int i = 0; i < N_WORK_CLASSES; i++) mean.work_seconds[i] = sum->work_seconds[i] / n;
    for (int i = 0; i < N_MESSAGE_CLASSES; i++) {
        mean.message_seconds[i] = sum->message_seconds[i] / n;
        mean.waited_seconds[i] = sum->waited_seconds[i] / n;
        mean.message_errors[i] =
            standard_error(sums->message_squares[i], rank_message_seconds(sum, i), n);
    }
    *sums = (WorkSums){0};
    return mean;
}
