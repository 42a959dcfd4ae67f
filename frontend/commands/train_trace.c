#include "frontend/commands/train_trace.h"

#include "frontend/units.h"
#include "ir/base/file.h"
#include "ir/base/json.h"
#include "ir/op.h"
#include "planner/show/trace.h"
#include "planner/simulate/simulate.h"

#include <string.h>

enum { MAX_STREAMS = 32, LEAST_WAIT_US = 1 };

/* The streams that one rank used; each is a thread of the trace. */
typedef struct Streams {
    int count;
    const char *names[MAX_STREAMS];
} Streams;

static int find_stream(Streams *streams, const char *name) {
    for (int i = 0; i < streams->count; i++) {
        if (strcmp(streams->names[i], name) == 0) return i;
    }
    if (streams->count == MAX_STREAMS) return MAX_STREAMS - 1;
    streams->names[streams->count] = name;
    return streams->count++;
}

static int stage_of(const Plan *plan, int rank) {
    return mesh_coord(&plan->mesh, rank).at[MESH_P];
}

static Task task_of(const EngineSpan *span) {
    return (Task){(uint8_t)span->task, (uint8_t)span->chunk, span->micro};
}

static bool same_task(const EngineSpan *a, const EngineSpan *b) {
    return a->task == b->task && a->chunk == b->chunk && a->micro == b->micro;
}

static void put_call(TraceWriter *writer, const Plan *plan, const EngineSpan *span, int thread) {
    const Node *node = span->node;
    const char *name = node ? OPS[node->op].name : "input";
    trace_open_slice(writer, span->rank, thread, name, span->begin_us, span->end_us);
    if (node) {
        strbuf_printf(writer->out, "\"node\":%d", node->id);
        if (node->block != NO_BLOCK) {
            const Stage *stage = &plan->stages[stage_of(plan, span->rank)];
            strbuf_printf(writer->out, ",\"block\":%d",
                          stage->first_block[node->chunk] + node->block);
        }
        if (node->loc.file) {
            char place[300];
            snprintf(place, sizeof(place), "%s:%d", node->loc.file, node->loc.line);
            strbuf_put(writer->out, ",\"at\":");
            json_put_text(writer->out, place);
        }
    }
    trace_close_slice(writer);
    if (span->wait_us < LEAST_WAIT_US) return;
    double end_us = span->begin_us + span->wait_us;
    trace_open_slice(writer, span->rank, thread, "wait", span->begin_us,
                     end_us < span->end_us ? end_us : span->end_us);
    trace_close_slice(writer);
}

/* The calls of one stream, `count` spans of one rank given: each task's within a slice of its. */
static void put_stream(TraceWriter *writer, const Plan *plan, const EngineSpan *spans, int count,
                       const char *stream, int thread) {
    for (int i = 0; i < count; i++) {
        const EngineSpan *first = &spans[i], *last = first;
        char name[40];
        if (strcmp(first->stream, stream) != 0) continue;
        int end = i + 1; /* other streams' calls may lie between */
        for (; end < count; end++) {
            if (strcmp(spans[end].stream, stream) != 0) continue;
            if (!same_task(&spans[end], first)) break;
            last = &spans[end];
        }
        Task task = task_of(first);
        trace_open_slice(writer, first->rank, thread, trace_task_name(&task, name, sizeof(name)),
                         first->begin_us, last->end_us);
        strbuf_printf(writer->out, "\"micro_batch\":%d,\"chunk\":%d", first->micro, first->chunk);
        trace_close_slice(writer);
        for (; i < end; i++) {
            if (strcmp(spans[i].stream, stream) == 0) put_call(writer, plan, &spans[i], thread);
        }
        i = end - 1;
    }
}

static int rank_end(const EngineSpan *spans, int count, int first) {
    int end = first;
    while (end < count && spans[end].rank == spans[first].rank) end++;
    return end;
}

/* The next message that `rank` sends or receives through a channel, from `from` on; -1: none. */
static int next_message(const Plan *plan, const EngineSpan *spans, int from, int end, int channel) {
    for (int i = from; i < end; i++) {
        Task task = task_of(&spans[i]);
        if (!spans[i].node || task_is_compute(&task)) continue;
        if (plan_find_channel(plan, stage_of(plan, spans[i].rank), &task) == channel) return i;
    }
    return -1;
}

/* Messages of a channel arrive in the order in which they are sent. */
static void put_arrows(TraceWriter *writer, const Plan *plan, const EngineSpan *spans,
                       const int *firsts) {
    int n_ranks = mesh_rank_count(&plan->mesh), number = 0;
    for (int c = 0; c < plan->n_channels; c++) {
        const Channel *channel = &plan->channels[c];
        for (int rank = 0; rank < n_ranks; rank++) {
            MeshCoord to = mesh_coord(&plan->mesh, rank);
            if (to.at[MESH_P] != channel->from) continue;
            to.at[MESH_P] = channel->to;
            int peer = mesh_rank(&plan->mesh, to);
            int sent = firsts[rank], taken = firsts[peer];
            for (;;) {
                sent = next_message(plan, spans, sent, firsts[rank + 1], c);
                taken = next_message(plan, spans, taken, firsts[peer + 1], c);
                if (sent < 0 || taken < 0) break;
                trace_put_arrow(writer, number++, channel->backward ? "gradient" : "activation",
                                rank, spans[sent].begin_us, peer, spans[taken].end_us);
                sent++, taken++;
            }
        }
    }
}

void train_trace_print(StrBuf *out, const Plan *plan, const EngineSpan *spans, int count) {
    TraceWriter writer = trace_begin(out);
    Arena *arena = arena_create();
    int n_ranks = mesh_rank_count(&plan->mesh);
    int *firsts = ARENA_ARRAY(arena, int, n_ranks + 1); /* 0 where a rank has no spans */
    for (int first = 0; first < count;) {
        int rank = spans[first].rank, end = rank_end(spans, count, first);
        Streams streams = {N_TRACE_THREADS, {0}};
        char name[40];
        for (int i = 0; i < N_TRACE_THREADS; i++) {
            streams.names[i] = trace_thread_name((TraceThread)i);
        }
        for (int i = first; i < end; i++) find_stream(&streams, spans[i].stream);
        trace_put_process(&writer, rank,
                          trace_process_name(plan, stage_of(plan, rank), rank, name, sizeof(name)));
        for (int s = N_TRACE_THREADS; s < streams.count; s++) {
            trace_put_thread(&writer, rank, s, streams.names[s]);
        }
        for (int s = 0; s < streams.count; s++) {
            put_stream(&writer, plan, spans + first, end - first, streams.names[s], s);
        }
        firsts[rank] = first;
        firsts[rank + 1] = end;
        first = end;
    }
    put_arrows(&writer, plan, spans, firsts);
    trace_end(&writer);
    arena_destroy(arena);
}

/* --- predicted against measured --- */

typedef enum Share {
    SHARE_FORWARD,
    SHARE_BACKWARD,
    SHARE_UPDATE,
    SHARE_MESSAGES,
    SHARE_WAITING,
    N_SHARES
} Share;

typedef struct Shares {
    double step_us;
    double of[N_SHARES]; /* of all ranks' time; sums to 1 */
} Shares;

static const Share SHARE_OF_TASK[N_TASK_KINDS] = {
    [TASK_RECV_FORWARD] = SHARE_MESSAGES, [TASK_FORWARD] = SHARE_FORWARD,
    [TASK_SEND_FORWARD] = SHARE_MESSAGES, [TASK_RECV_BACKWARD] = SHARE_MESSAGES,
    [TASK_BACKWARD] = SHARE_BACKWARD,     [TASK_SEND_BACKWARD] = SHARE_MESSAGES,
    [TASK_WEIGHTS] = SHARE_BACKWARD,      [TASK_UPDATE] = SHARE_UPDATE,
};

/* Sums of us become shares; what is left of the ranks' time is waiting. */
static void finish_shares(Shares *shares, int n_ranks) {
    double all = shares->step_us * n_ranks, left = 1;
    for (int s = 0; s < SHARE_WAITING; s++) {
        shares->of[s] = all > 0 ? shares->of[s] / all : 0;
        left -= shares->of[s];
    }
    shares->of[SHARE_WAITING] = left > 0 ? left : 0;
}

/* Of what ran on compute streams, and the messages of the pipeline: what other streams did at the
 * same time is not anyone's waiting. */
static Shares measured_shares(const Plan *plan, const EngineSpan *spans, int count) {
    Shares shares = {0};
    for (int i = 0; i < count; i++) {
        const EngineSpan *span = &spans[i];
        Task task = task_of(span);
        if (span->end_us > shares.step_us) shares.step_us = span->end_us;
        if (task_is_compute(&task) && strcmp(span->stream, "compute") != 0) continue;
        shares.of[SHARE_OF_TASK[span->task]] += span->end_us - span->begin_us - span->wait_us;
    }
    finish_shares(&shares, mesh_rank_count(&plan->mesh));
    return shares;
}

static bool predicted_shares(const Plan *plan, const Device *device, Arena *arena, Shares *out,
                             Diag *diag) {
    const Simulation *sim = simulate_plan(arena, plan, device, diag);
    if (!sim) return false;
    *out = (Shares){.step_us = sim->step_us};
    for (int s = 0; s < plan->n_stages; s++) {
        double update_us = sim->stages[s].busy_us;
        for (int t = 0; t < plan->stages[s].n_tasks; t++) {
            const Task *task = &plan->stages[s].tasks[t];
            if (!task_is_work(task)) continue;
            const TaskSpan *span = simulation_span(sim, s, t);
            out->of[SHARE_OF_TASK[task->kind]] += span->end_us - span->start_us;
            update_us -= span->end_us - span->start_us;
        }
        out->of[SHARE_UPDATE] += update_us;
        out->of[SHARE_MESSAGES] += sim->stages[s].send_us;
    }
    finish_shares(out, plan->n_stages);
    return true;
}

static void print_shares(const char *label, const Shares *shares) {
    printf(
        "%s%9.2f ms a step: forward %.0f %%, backward %.0f %%, update %.0f %%, messages %.0f %%, "
        "waiting %.0f %%\n",
        label, shares->step_us / 1e3, 100 * shares->of[SHARE_FORWARD],
        100 * shares->of[SHARE_BACKWARD], 100 * shares->of[SHARE_UPDATE],
        100 * shares->of[SHARE_MESSAGES], 100 * shares->of[SHARE_WAITING]);
}

bool train_trace(Engine *engine, const Plan *plan, const Device *device, const char *path,
                 bool quiet, Diag *diag) {
    Arena *arena = arena_create();
    EngineSpan *spans;
    int count;
    Shares predicted;
    bool good = engine_trace_step(engine, arena, &spans, &count, diag) &&
                predicted_shares(plan, device, arena, &predicted, diag);
    if (good) {
        StrBuf text = strbuf_create();
        train_trace_print(&text, plan, spans, count);
        good = file_write(path, text.text, text.length, diag);
        strbuf_destroy(&text);
    }
    if (good && !quiet) {
        Shares measured = measured_shares(plan, spans, count);
        print_shares("measured ", &measured);
        print_shares("predicted", &predicted);
        printf("         %s %s\n", device->profile ? "with" : "for",
               device->profile ? device->profile : device->name);
        printf("wrote   %s\n", path);
    }
    arena_destroy(arena);
    return good;
}
