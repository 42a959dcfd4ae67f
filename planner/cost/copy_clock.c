#include "planner/cost/copy_clock.h"

static double later(double a, double b) {
    return a > b ? a : b;
}

void copy_clock_add(CopyClock *clock, double *done_us, const Node *node, double us) {
    if (node->op == OP_OFFLOAD) {
        if (clock->out_block != node->block + 1) clock->us = later(clock->us, clock->out_us);
        clock->out_block = node->block + 1;
        clock->out_us = done_us[node->id] = later(clock->us, clock->out_us) + us;
        return;
    }
    if (node->op == OP_FETCH) {
        clock->back_us = done_us[node->id] = later(clock->us, clock->back_us) + us;
        return;
    }
    for (int i = 0; i < node->n_inputs; i++) {
        const Node *from = node->inputs[i].node;
        if (from->op == OP_FETCH) clock->us = later(clock->us, done_us[from->id]);
    }
    clock->us += us;
    clock->work_us += us;
}

double copy_clock_waits_us(const CopyClock *clock) {
    double waits = later(clock->us, clock->out_us) - clock->work_us;
    return waits > 0 ? waits : 0;
}
