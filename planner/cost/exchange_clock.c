#include "planner/cost/exchange_clock.h"

ExchangeTimes exchange_times_create(const Graph *graph, Arena *arena) {
    return (ExchangeTimes){ARENA_ARRAY(arena, double, graph->n_nodes + 1),
                           ARENA_ARRAY(arena, const ExchangeClock *, graph->n_nodes + 1)};
}

void exchange_clock_add(ExchangeClock *clock, ExchangeTimes *times, const Node *node, double us) {
    double start = clock->us;
    for (int i = 0; i < node->n_inputs; i++) {
        int id = node->inputs[i].node->id;
        if (times->of[id] == clock && times->done_us[id] > start) start = times->done_us[id];
    }
    times->of[node->id] = clock;
    if (node_is_exchange(node)) {
        if (start < clock->sent_us) start = clock->sent_us;
        times->done_us[node->id] = clock->sent_us = start + us;
        clock->exchange_us += us;
        return;
    }
    bool runs = OPS[node->op].flags & KERNEL; /* else nobody waits here */
    times->done_us[node->id] = start + us;
    if (!runs) return;
    clock->us = start + us;
    clock->work_us += us;
}

double exchange_clock_hidden_us(const ExchangeClock *clock) {
    double end = clock->us > clock->sent_us ? clock->us : clock->sent_us;
    double hidden = clock->work_us + clock->exchange_us - end;
    if (hidden > clock->exchange_us) hidden = clock->exchange_us; /* rounding */
    return hidden > 0 ? hidden : 0;
}
