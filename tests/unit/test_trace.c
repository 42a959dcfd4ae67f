/* Traces of steps: every call once, in order, on one clock, messages after they were sent; the
 * step is a step like any other; the file has the names of the predicted one. */
#include "tests/unit/check.h"
#include "tests/unit/plain_device.h"
#include "tests/unit/train_fixture.h"

#include "frontend/commands/train_trace.h"
#include "planner/show/show.h"
#include "planner/show/trace.h"

#include <jansson.h>

static const ModelSetting TINY[] = {
    {"layers", "4"}, {"model", "32"}, {"heads", "4"}, {"seq", "16"}, {"vocab", "64"}};
enum { N_TINY = sizeof(TINY) / sizeof(TINY[0]) };

static const Layout LAYOUTS[] = {
    {1, 1, 1, 4, 1, "1f1b", false, NULL, 0},
    {2, 1, 2, 2, 1, "1f1b", true, NULL, 0},
    {1, 2, 2, 1, 2, "interleaved", false, NULL, 0},
    {1, 1, 4, 2, 1, "gpipe", false, NULL, 0},
};
enum { N_LAYOUTS = sizeof(LAYOUTS) / sizeof(LAYOUTS[0]) };

static bool start(Run *run, const Layout *layout) {
    return run_plan(run, "models/gpt.lua", TINY, N_TINY, layout, 16, false) && run_start(run);
}

static Task task_of(const EngineSpan *span) {
    return (Task){(uint8_t)span->task, (uint8_t)span->chunk, span->micro};
}

/* Spans of a rank follow its stage's task list. */
static void check_tasks(const Plan *plan, const EngineSpan *spans, int first, int end) {
    int stage = mesh_coord(&plan->mesh, spans[first].rank).at[MESH_P];
    const Stage *list = &plan->stages[stage];
    int t = -1;
    for (int i = first; i < end; i++) {
        Task task = task_of(&spans[i]);
        const Task *now = t >= 0 ? &list->tasks[t] : NULL;
        bool same = now && now->kind == task.kind && now->chunk == task.chunk &&
                    (now->micro == task.micro || now->kind == TASK_UPDATE);
        if (same) continue;
        t++;
        CHECK(t < list->n_tasks && list->tasks[t].kind == task.kind &&
                  list->tasks[t].chunk == task.chunk,
              "rank %d: call %d belongs to %s%d.%d, which is not task %d", spans[i].rank, i - first,
              task_kind_word(spans[i].task), task.chunk, task.micro, t);
    }
    CHECK(t == list->n_tasks - 1, "rank %d: %d of %d tasks", spans[first].rank, t + 1,
          list->n_tasks);
}

static void check_spans(const Run *run, const EngineSpan *spans, int count) {
    int n_ranks = mesh_rank_count(&run->plan->mesh), n_seen = 0;
    for (int first = 0; first < count;) {
        int end = first;
        double last = 0;
        for (; end < count && spans[end].rank == spans[first].rank; end++) {
            const EngineSpan *span = &spans[end];
            CHECK(span->begin_us >= last - 1e-6 && span->end_us >= span->begin_us,
                  "rank %d: %g to %g after %g", span->rank, span->begin_us, span->end_us, last);
            CHECK(span->wait_us >= 0 && span->wait_us <= span->end_us - span->begin_us + 1,
                  "waits %g of %g", span->wait_us, span->end_us - span->begin_us);
            last = span->end_us;
        }
        CHECK(spans[first].rank == n_seen, "rank %d comes as number %d", spans[first].rank, n_seen);
        CHECK(n_seen > 0 || end - first == engine_call_count(run->engine), "%d calls, not %lld",
              end - first, (long long)engine_call_count(run->engine));
        CHECK(last > 0 && last < 60e6, "rank %d ends at %g", spans[first].rank, last);
        check_tasks(run->plan, spans, first, end);
        n_seen++;
        first = end;
    }
    CHECK(n_seen == n_ranks, "%d ranks, not %d", n_seen, n_ranks);
}

typedef struct Seen {
    char names[512][24];
    int count;
} Seen;

static void add_name(Seen *seen, const char *name) {
    for (int i = 0; i < seen->count; i++) {
        if (strcmp(seen->names[i], name) == 0) return;
    }
    if (seen->count < 512) snprintf(seen->names[seen->count++], 24, "%s", name);
}

static bool has_name(const Seen *seen, const char *name) {
    for (int i = 0; i < seen->count; i++) {
        if (strcmp(seen->names[i], name) == 0) return true;
    }
    return false;
}

/* Names of tasks' slices, and of threads; arrows must have two ends and
 * not go back in time; slices of a thread nest. */
static void read_trace(const char *text, Seen *tasks, Seen *threads, int *out_arrows) {
    json_error_t error;
    json_t *root = json_loads(text, 0, &error), *event;
    double outer_end[32][32] = {{0}}, sent[512] = {0};
    size_t i;
    CHECK(root, "no JSON: %s", error.text);
    *out_arrows = 0;
    json_array_foreach(json_object_get(root, "traceEvents"), i, event) {
        const char *phase = json_string_value(json_object_get(event, "ph"));
        const char *name = json_string_value(json_object_get(event, "name"));
        int pid = (int)json_integer_value(json_object_get(event, "pid"));
        int tid = (int)json_integer_value(json_object_get(event, "tid"));
        double ts = json_real_value(json_object_get(event, "ts"));
        int id = (int)json_integer_value(json_object_get(event, "id")) % 512;
        if (*phase == 'M' && strcmp(name, "thread_name") == 0) {
            add_name(threads,
                     json_string_value(json_object_get(json_object_get(event, "args"), "name")));
        } else if (*phase == 's') {
            sent[id] = ts;
            ++*out_arrows;
        } else if (*phase == 'f') {
            CHECK(ts >= sent[id] - 0.002, "message %d is taken at %g, sent at %g", id, ts,
                  sent[id]);
        } else if (*phase == 'X') {
            double end = ts + json_real_value(json_object_get(event, "dur"));
            double *outer = &outer_end[pid % 32][tid % 32];
            CHECK(ts >= *outer - 0.003 || end <= *outer + 0.003, "%s straddles a slice", name);
            json_t *args = json_object_get(event, "args");
            bool is_call = json_object_size(args) == 0 || json_object_get(args, "node");
            if (is_call) continue;
            add_name(tasks, name);
            *outer = end;
        }
    }
    json_decref(root);
}

static void check_file(const Run *run, const EngineSpan *spans, int count) {
    StrBuf measured = strbuf_create(), predicted = strbuf_create();
    static Seen measured_tasks, predicted_tasks, measured_threads, predicted_threads;
    int n_measured = 0, n_predicted = 0, n_task_names = 0;
    measured_tasks.count = predicted_tasks.count = 0;
    measured_threads.count = predicted_threads.count = 0;
    train_trace_print(&measured, run->plan, spans, count);
    CHECK(show_trace(&predicted, run->plan, &PLAIN_DEVICE, run->diag), "%s", diag_text(run->diag));
    read_trace(measured.text, &measured_tasks, &measured_threads, &n_measured);
    read_trace(predicted.text, &predicted_tasks, &predicted_threads, &n_predicted);
    for (int i = 0; i < predicted_tasks.count; i++) {
        CHECK(has_name(&measured_tasks, predicted_tasks.names[i]), "%s was not measured",
              predicted_tasks.names[i]);
        n_task_names++;
    }
    CHECK(n_task_names > 2, "%d names", n_task_names);
    CHECK(measured_threads.count == predicted_threads.count, "%d threads, %d predicted",
          measured_threads.count, predicted_threads.count);
    int per_stage = run->plan->mesh.size[MESH_T] * run->plan->mesh.size[MESH_D];
    CHECK(n_measured == n_predicted * per_stage, "%d arrows, %d predicted", n_measured,
          n_predicted);
    strbuf_destroy(&measured);
    strbuf_destroy(&predicted);
}

static void check_layouts(void) {
    for (int l = 0; l < N_LAYOUTS; l++) {
        char name[96];
        Run run;
        EngineSpan *spans;
        int count = 0;
        snprintf(name, sizeof(name), "a traced step has every call once, in order: layout %d", l);
        check_begin(name);
        bool ready = start(&run, &LAYOUTS[l]) && run_steps(&run, 2, 1e-3) &&
                     engine_trace_step(run.engine, run.arena, &spans, &count, run.diag);
        CHECK(ready, "%s", diag_text(run.diag));
        if (ready) check_spans(&run, spans, count);
        check_begin("its file has the names and arrows of the predicted one");
        if (ready) check_file(&run, spans, count);
        run_close(&run);
    }
}

/* Steps 1, 2, trace, 4 against 1, 2, 2 again, 4: the same bits. Evaluation in between is no
 * matter. */
static void check_is_a_step(void) {
    check_begin("a traced step is a step like any other");
    Run traced, plain;
    EngineSpan *spans;
    int count;
    StepResult result;
    bool ready = start(&traced, &LAYOUTS[1]) && run_steps(&traced, 2, 1e-3);
    bool also = start(&plain, &LAYOUTS[1]) && run_steps(&plain, 2, 1e-3);
    CHECK(ready && also, "%s%s", diag_text(traced.diag), diag_text(plain.diag));
    if (ready && also) {
        size_t n = (size_t)(plain.plan->global_batch * plain.plan->seq);
        int32_t *tokens = ARENA_ARRAY(plain.arena, int32_t, n);
        int32_t *labels = ARENA_ARRAY(plain.arena, int32_t, n);
        double loss;
        fill_batch(plain.plan, 1, tokens, labels);
        CHECK(engine_evaluate(traced.engine, tokens, labels, &loss, traced.diag), "evaluation");
        CHECK(engine_trace_step(traced.engine, traced.arena, &spans, &count, traced.diag), "%s",
              diag_text(traced.diag));
        CHECK(engine_step(plain.engine, 3, tokens, labels, 1e-3, &result, plain.diag), "%s",
              diag_text(plain.diag));
        CHECK(run_steps_from(&traced, 3, 1, 1e-3) && run_steps_from(&plain, 3, 1, 1e-3), "a step");
        CHECK(traced.losses[3] == plain.losses[3], "%.9g, %.9g", traced.losses[3], plain.losses[3]);
    }
    run_close(&traced);
    run_close(&plain);
}

static void check_no_step(void) {
    check_begin("without a step before there is nothing to trace");
    Run run;
    EngineSpan *spans;
    int count;
    bool ready = start(&run, &LAYOUTS[0]);
    CHECK(ready, "%s", diag_text(run.diag));
    CHECK(!ready || !engine_trace_step(run.engine, run.arena, &spans, &count, run.diag), "traced");
    CHECK(strstr(diag_text(run.diag), "there was none"), "%s", diag_text(run.diag));
    run_close(&run);
}

/* Names from a plan's text are anyone's: they must not break the JSON. */
static void check_names(void) {
    check_begin("odd names stay within their strings");
    StrBuf out = strbuf_create();
    TraceWriter writer = trace_begin(&out);
    trace_put_process(&writer, 0, "a\"b\\c\n\x01\xff");
    trace_end(&writer);
    json_error_t error;
    json_t *root = json_loads(out.text, 0, &error);
    CHECK(root, "%s: %s", error.text, out.text);
    json_decref(root);
    strbuf_destroy(&out);
}

int main(void) {
    check_layouts();
    check_is_a_step();
    check_no_step();
    check_names();
    return check_report();
}
