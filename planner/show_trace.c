/* The predicted step as Chrome trace events. Written as text, not through a JSON tree: a plan of 64
 * stages and 512 micro-batches has some 200 000 events. Within a thread events are in order and do
 * not overlap. */
#include "planner/show_facts.h"

#include <inttypes.h>

enum { THREAD_COMPUTE, THREAD_SEND, THREAD_RECEIVE, N_THREADS };

static int thread_of(const Task *task) {
    return task_is_compute(task) ? THREAD_COMPUTE
           : task_is_send(task)  ? THREAD_SEND
                                 : THREAD_RECEIVE;
}

static void put_metadata(StrBuf *out, const Plan *plan) {
    static const char *const THREADS[N_THREADS] = {"compute", "send", "receive"};
    for (int stage = 0; stage < plan->n_stages; stage++) {
        strbuf_printf(out,
                      "%s\n{\"ph\":\"M\",\"pid\":%d,\"name\":\"process_name\",\"args\":{\"name\":"
                      "\"stage %d\"}},\n{\"ph\":\"M\",\"pid\":%d,\"name\":\"process_sort_index\","
                      "\"args\":{\"sort_index\":%d}}",
                      stage ? "," : "", stage, stage, stage, stage);
        for (int thread = 0; thread < N_THREADS; thread++) {
            strbuf_printf(out,
                          ",\n{\"ph\":\"M\",\"pid\":%d,\"tid\":%d,\"name\":\"thread_name\","
                          "\"args\":{\"name\":\"%s\"}}",
                          stage, thread, THREADS[thread]);
        }
    }
}

static const Cost *cost_of(const Facts *facts, int stage, const Task *task) {
    const ProgramCost *cost = &facts->sim->costs[facts->plan->stages[stage].program];
    return task->kind == TASK_FORWARD ? &cost->forward[task->chunk] : &cost->backward[task->chunk];
}

static void put_stage(StrBuf *out, const Facts *facts, int stage) {
    const Plan *plan = facts->plan;
    for (int i = 0; i < plan->stages[stage].n_tasks; i++) {
        const Task *task = &plan->stages[stage].tasks[i];
        const TaskSpan *span = simulation_span(facts->sim, stage, i);
        char name[40];
        strbuf_printf(out,
                      ",\n{\"ph\":\"X\",\"pid\":%d,\"tid\":%d,\"name\":\"%s\",\"ts\":%.3f,"
                      "\"dur\":%.3f,\"args\":{",
                      stage, thread_of(task), facts_task_name(task, name, sizeof(name)),
                      span->start_us, span->end_us - span->start_us);
        int channel = task_is_compute(task) ? -1 : plan_find_channel(plan, stage, task);
        if (task->kind == TASK_UPDATE) {
            strbuf_printf(out, "\"parameters\":%" PRId64 "}}", facts->stages[stage].n_parameters);
        } else if (channel >= 0) {
            const Channel *link = &plan->channels[channel];
            strbuf_printf(out, "\"bytes\":%" PRId64 ",\"from\":%d,\"to\":%d}}", link->slot_bytes,
                          link->from, link->to);
        } else {
            const Cost *cost = cost_of(facts, stage, task);
            int chunk = task->chunk;
            strbuf_printf(out,
                          "\"micro_batch\":%d,\"chunk\":%d,\"flops\":%.6g,\"collective_us\":%.3f,"
                          "\"frame_bytes\":%" PRId64 "}}",
                          task->micro, chunk, cost->flops, cost->collective_us,
                          plan->programs[plan->stages[stage].program].frame_bytes[chunk]);
        }
    }
}

/* Arrows from a send to its receive: flow events, bound to the slices that contain them. */
static void put_messages(StrBuf *out, const Facts *facts) {
    const Plan *plan = facts->plan;
    for (int i = 0; i < facts->sim->n_messages; i++) {
        const MessageSpan *message = &facts->sim->messages[i];
        const Channel *link = &plan->channels[message->channel];
        const TaskSpan *from = simulation_span(facts->sim, link->from, message->from_task);
        const char *name = link->backward ? "gradient" : "activation";
        strbuf_printf(out,
                      ",\n{\"ph\":\"s\",\"pid\":%d,\"tid\":%d,\"name\":\"%s\",\"cat\":\"message\","
                      "\"id\":%d,\"ts\":%.3f}",
                      link->from, THREAD_SEND, name, i, from->start_us);
        strbuf_printf(out,
                      ",\n{\"ph\":\"f\",\"bp\":\"e\",\"pid\":%d,\"tid\":%d,\"name\":\"%s\","
                      "\"cat\":\"message\",\"id\":%d,\"ts\":%.3f}",
                      link->to, THREAD_RECEIVE, name, i, message->taken_us);
    }
}

bool show_trace(StrBuf *out, const Plan *plan, const Device *device, Diag *diag) {
    Arena *arena = arena_create();
    const Facts *facts = facts_create(arena, plan, device, diag);
    if (facts) {
        strbuf_put(out, "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[");
        put_metadata(out, plan);
        for (int stage = 0; stage < plan->n_stages; stage++) put_stage(out, facts, stage);
        put_messages(out, facts);
        strbuf_put(out, "\n]}\n");
    }
    arena_destroy(arena);
    return facts != NULL;
}
