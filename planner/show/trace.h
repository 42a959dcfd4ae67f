/* Trace: timelines as Chrome trace events (the "JSON object format"), for Perfetto; one writer for
 * predicted steps (show_trace.c) and measured ones (perilune train --trace), so that both use the
 * same names: a process per stage or rank, with threads compute, send, receive and whatever else
 * runs beside them, and slices named after tasks.
 *
 * Written as text, not through a JSON tree: a plan of 64 stages and 512 micro-batches has some
 * 200 000 events. Times are in microseconds. Within a thread, slices come in order of beginning
 * and lie one after the other or one in another.
 */
#ifndef PLANNER_SHOW_TRACE_H
#define PLANNER_SHOW_TRACE_H

#include "planner/plan/plan.h"

/* Threads of every process; further streams are numbered from N_TRACE_THREADS on. */
typedef enum TraceThread { TRACE_COMPUTE, TRACE_SEND, TRACE_RECEIVE, N_TRACE_THREADS } TraceThread;
const char *trace_thread_name(TraceThread thread);
TraceThread trace_thread_of(const Task *task);

typedef struct TraceWriter {
    StrBuf *out;
    bool has_event;
} TraceWriter;

TraceWriter trace_begin(StrBuf *out);
void trace_end(TraceWriter *writer);

/* A process and its three threads. Names are escaped. */
void trace_put_process(TraceWriter *writer, int process, const char *name);
void trace_put_thread(TraceWriter *writer, int process, int thread, const char *name);

/* One slice, up to and with `"args":{`: the caller appends members (json_put_text escapes texts)
 * and calls trace_close_slice. */
void trace_open_slice(TraceWriter *writer, int process, int thread, const char *name,
                      double begin_us, double end_us);
void trace_close_slice(TraceWriter *writer);

/* An arrow between slices, from (process, send) to (process, receive). */
void trace_put_arrow(TraceWriter *writer, int number, const char *name, int from, double from_us,
                     int to, double to_us);

/* "F0.3": word, chunk, micro-batch; "U". Returns `text`. */
const char *trace_task_name(const Task *task, char *text, size_t size);

/* The process of a stage, or of one of its ranks where it has several: "stage 2", "stage 2 rank 9".
 */
const char *trace_process_name(const Plan *plan, int stage, int rank, char *text, size_t size);

#endif
