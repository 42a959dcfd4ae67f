#include "planner/cost/message_clock.h"

MessageTimes message_times_create(const Graph *graph, Arena *arena) {
    return (MessageTimes){ARENA_ARRAY(arena, double, graph->n_nodes + 1),
                          ARENA_ARRAY(arena, const MessageClock *, graph->n_nodes + 1)};
}

void message_clock_add(MessageClock *clock, MessageTimes *times, const Node *node, double us) {
    double start = clock->us;
    for (int i = 0; i < node->n_inputs; i++) {
        int id = node->inputs[i].node->id;
        if (times->of[id] == clock && times->done_us[id] > start) start = times->done_us[id];
    }
    times->of[node->id] = clock;
    if (node_overlaps(node)) {
        if (start < clock->sent_us) start = clock->sent_us;
        times->done_us[node->id] = clock->sent_us = start + us;
        clock->message_us += us;
        return;
    }
    bool runs = OPS[node->op].flags & KERNEL; /* else nobody waits here */
    times->done_us[node->id] = start + us;
    if (!runs) return;
    if (!clock->begun) clock->lead_us += start - clock->us;
    clock->us = start + us;
    clock->work_us += us;
    clock->after_us += us;
    if (!op_multiplies(node->op)) return;
    clock->begun = true;
    clock->last_us = clock->us;
    clock->after_us = 0;
}

static double later(double a, double b) {
    return a > b ? a : b;
}

double message_clock_hidden_us(const MessageClock *clock) {
    double end = later(clock->us, clock->sent_us);
    double hidden = clock->work_us + clock->message_us - end;
    if (hidden > clock->message_us) hidden = clock->message_us; /* rounding */
    return hidden > 0 ? hidden : 0;
}

double message_clock_edge_us(const MessageClock *clock) {
    double end = later(clock->us, clock->sent_us);
    double between = clock->last_us - clock->lead_us + clock->after_us;
    return clock->begun ? later(end - later(between, clock->message_us), 0) : 0;
}
