#include "runtime/rank_work.h"

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
