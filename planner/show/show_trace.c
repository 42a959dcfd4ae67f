/* The predicted step as a trace: one process per stage, its ranks being alike. */
#include "planner/show/show_facts.h"
#include "planner/show/trace.h"

#include <inttypes.h>

static const Cost *cost_of(const Facts *facts, int stage, const Task *task) {
    const ProgramCost *cost = &facts->sim->costs[facts->plan->stages[stage].program];
    return task->kind == TASK_FORWARD    ? &cost->forward[task->chunk]
           : task->kind == TASK_BACKWARD ? &cost->backward[task->chunk]
                                         : &cost->weights[task->chunk];
}

static void put_arguments(StrBuf *out, const Facts *facts, int stage, const Task *task) {
    const Plan *plan = facts->plan;
    int channel = task_is_compute(task) ? -1 : plan_find_channel(plan, stage, task);
    if (task->kind == TASK_UPDATE) {
        strbuf_printf(out, "\"parameters\":%" PRId64, facts->stages[stage].n_parameters);
    } else if (channel >= 0) {
        const Channel *link = &plan->channels[channel];
        strbuf_printf(out, "\"bytes\":%" PRId64 ",\"from\":%d,\"to\":%d", link->slot_bytes,
                      link->from, link->to);
    } else {
        const Cost *cost = cost_of(facts, stage, task);
        int chunk = task->chunk;
        strbuf_printf(out,
                      "\"micro_batch\":%d,\"chunk\":%d,\"flops\":%.6g,\"collective_us\":%.3f,"
                      "\"frame_bytes\":%" PRId64,
                      task->micro, chunk, cost->flops, cost->collective_us,
                      plan->programs[plan->stages[stage].program].frame_bytes[chunk]);
    }
}

static void put_stage(TraceWriter *writer, const Facts *facts, int stage) {
    const Plan *plan = facts->plan;
    for (int i = 0; i < plan->stages[stage].n_tasks; i++) {
        const Task *task = &plan->stages[stage].tasks[i];
        const TaskSpan *span = simulation_span(facts->sim, stage, i);
        char name[40];
        trace_open_slice(writer, stage, (int)trace_thread_of(task),
                         trace_task_name(task, name, sizeof(name)), span->start_us, span->end_us);
        put_arguments(writer->out, facts, stage, task);
        trace_close_slice(writer);
    }
}

/* Arrows from a send to its receive: flow events, bound to the slices that contain them. */
static void put_messages(TraceWriter *writer, const Facts *facts) {
    const Plan *plan = facts->plan;
    for (int i = 0; i < facts->sim->n_messages; i++) {
        const MessageSpan *message = &facts->sim->messages[i];
        const Channel *link = &plan->channels[message->channel];
        const TaskSpan *from = simulation_span(facts->sim, link->from, message->from_task);
        trace_put_arrow(writer, i, link->backward ? "gradient" : "activation", link->from,
                        from->start_us, link->to, message->taken_us);
    }
}

bool show_trace(StrBuf *out, const Plan *plan, const Device *device, Diag *diag) {
    Arena *arena = arena_create();
    const Facts *facts = facts_create(arena, plan, device, diag);
    if (facts) {
        char name[40];
        TraceWriter writer = trace_begin(out);
        for (int stage = 0; stage < plan->n_stages; stage++) {
            trace_put_process(&writer, stage,
                              trace_process_name(plan, stage, -1, name, sizeof(name)));
        }
        for (int stage = 0; stage < plan->n_stages; stage++) put_stage(&writer, facts, stage);
        put_messages(&writer, facts);
        trace_end(&writer);
    }
    arena_destroy(arena);
    return facts != NULL;
}
