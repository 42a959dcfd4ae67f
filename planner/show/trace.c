#include "planner/show/trace.h"

#include "ir/base/json.h"

#include <math.h>
#include <stdio.h>

const char *trace_thread_name(TraceThread thread) {
    static const char *const NAMES[N_TRACE_THREADS] = {"compute", "send", "receive"};
    return NAMES[thread];
}

TraceThread trace_thread_of(const Task *task) {
    static const TraceThread THREADS[N_TASK_KINDS] = {[TASK_RECV_FORWARD] = TRACE_RECEIVE,
                                                      [TASK_SEND_FORWARD] = TRACE_SEND,
                                                      [TASK_RECV_BACKWARD] = TRACE_RECEIVE,
                                                      [TASK_SEND_BACKWARD] = TRACE_SEND};
    return THREADS[task->kind];
}

const char *trace_task_name(const Task *task, char *text, size_t size) {
    const char *word = task_kind_word((TaskKind)task->kind);
    if (task->kind == TASK_UPDATE) {
        snprintf(text, size, "%s", word);
    } else {
        snprintf(text, size, "%s%d.%d", word, task->chunk, task->micro);
    }
    return text;
}

const char *trace_process_name(const Plan *plan, int stage, int rank, char *text, size_t size) {
    if (mesh_rank_count(&plan->mesh) == plan->mesh.size[MESH_P] || rank < 0) {
        snprintf(text, size, "stage %d", stage);
    } else {
        snprintf(text, size, "stage %d rank %d", stage, rank);
    }
    return text;
}

TraceWriter trace_begin(StrBuf *out) {
    strbuf_put(out, "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[");
    return (TraceWriter){.out = out};
}

void trace_end(TraceWriter *writer) {
    strbuf_put(writer->out, "\n]}\n");
}

static void next_event(TraceWriter *writer) {
    strbuf_put(writer->out, writer->has_event ? ",\n" : "\n");
    writer->has_event = true;
}

void trace_put_thread(TraceWriter *writer, int process, int thread, const char *name) {
    next_event(writer);
    strbuf_printf(writer->out,
                  "{\"ph\":\"M\",\"pid\":%d,\"tid\":%d,\"name\":\"thread_name\","
                  "\"args\":{\"name\":",
                  process, thread);
    json_put_text(writer->out, name);
    strbuf_put(writer->out, "}}");
}

void trace_put_process(TraceWriter *writer, int process, const char *name) {
    next_event(writer);
    strbuf_printf(
        writer->out,
        "{\"ph\":\"M\",\"pid\":%d,\"name\":\"process_name\",\"args\":{\"name\":", process);
    json_put_text(writer->out, name);
    strbuf_put(writer->out, "}}");
    next_event(writer);
    strbuf_printf(writer->out,
                  "{\"ph\":\"M\",\"pid\":%d,\"name\":\"process_sort_index\","
                  "\"args\":{\"sort_index\":%d}}",
                  process, process);
    for (int thread = 0; thread < N_TRACE_THREADS; thread++) {
        trace_put_thread(writer, process, thread, trace_thread_name((TraceThread)thread));
    }
}

void trace_open_slice(TraceWriter *writer, int process, int thread, const char *name,
                      double begin_us, double end_us) {
    next_event(writer);
    strbuf_printf(writer->out, "{\"ph\":\"X\",\"pid\":%d,\"tid\":%d,\"name\":", process, thread);
    json_put_text(writer->out, name);
    /* Both ends are rounded, and not the length: slices that meet must not overlap. */
    double begin_ns = round(begin_us * 1e3), end_ns = round(end_us * 1e3);
    strbuf_printf(writer->out, ",\"ts\":%.3f,\"dur\":%.3f,\"args\":{", begin_ns * 1e-3,
                  (end_ns - begin_ns) * 1e-3);
}

void trace_close_slice(TraceWriter *writer) {
    strbuf_put(writer->out, "}}");
}

void trace_put_arrow(TraceWriter *writer, int number, const char *name, int from, double from_us,
                     int to, double to_us) {
    next_event(writer);
    strbuf_printf(writer->out,
                  "{\"ph\":\"s\",\"pid\":%d,\"tid\":%d,\"name\":\"%s\",\"cat\":\"message\","
                  "\"id\":%d,\"ts\":%.3f}",
                  from, TRACE_SEND, name, number, from_us);
    next_event(writer);
    strbuf_printf(writer->out,
                  "{\"ph\":\"f\",\"bp\":\"e\",\"pid\":%d,\"tid\":%d,\"name\":\"%s\","
                  "\"cat\":\"message\",\"id\":%d,\"ts\":%.3f}",
                  to, TRACE_RECEIVE, name, number, to_us);
}
