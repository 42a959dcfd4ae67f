/* Showing a plan: that all forms give the plan's own figures and that a hostile name stays text.
 *
 * `test_show --write FOLDER` writes HTML pages of a small and a large plan there instead, for
 * tests/browser/test_html.sh. */
#include "ir/base/file.h"
#include "planner/show/show_facts.h"
#include "planner/simulate/simulate.h"
#include "tests/unit/check.h"
#include "tests/unit/plain_device.h"
#include "tests/unit/plan_fixture.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <time.h>

/* What an attacker would call a model. */
static const char HOSTILE[] = "gpt</title><script>alert(1)</script>\"'&\\\n\x01";

static const FixtureShape ONE = {1, 1, 1, 1, 4, 2, 64, 256, 32, 96, "1f1b", "one"};
static const FixtureShape SMALL = {2, 2, 4, 1, 8, 2, 512, 2048, 256, 1024, "1f1b", HOSTILE};
static const FixtureShape CHUNKS = {2, 1, 4, 2, 8, 2, 512, 2048, 256, 1024, "interleaved", "v"};
static const FixtureShape LARGE = {8, 2, 64, 1, 512, 2, 1024, 4096, 512, 1024, "1f1b", "large"};

typedef bool ShowFunction(StrBuf *out, const Plan *plan, const Device *device, Diag *diag);

static StrBuf show(ShowFunction *function, const Plan *plan, Diag *diag) {
    StrBuf out = strbuf_create();
    CHECK(function(&out, plan, &PLAIN_DEVICE, diag), "%s", diag_text(diag));
    return out;
}

static bool near(double a, double b) {
    return fabs(a - b) <= 1e-6 * fmax(1, fmax(fabs(a), fabs(b)));
}

/* Worked out on paper for one block: two products forward, four backward, per local shapes. */
static void test_cost(Arena *arena, Diag *diag) {
    check_begin("cost: flops and message bytes as on paper");
    Plan *plan = fixture_plan(arena, &SMALL, diag);
    ProgramCost cost = cost_program(plan, 1, &PLAIN_DEVICE, arena);
    double tokens = 2.0 * 256, product = 2 * tokens * 512 * 2048 / 2; /* ffn over t = 2 */
    double gelu = tokens * 2048 / 2, add = tokens * 512;
    CHECK(near(cost.forward[0].flops, 2 * (2 * product + gelu + add)), "forward %g",
          cost.forward[0].flops);
    CHECK(near(cost.backward[0].flops, 2 * (4 * product + gelu + add)), "backward %g",
          cost.backward[0].flops);
    double message_us = 2 * 5 + tokens * 512 * 4 / 5e9 * 1e6; /* ring of two: 2 steps of half */
    CHECK(near(cost.forward[0].collective_us, 2 * message_us), "collectives %g us, not %g",
          cost.forward[0].collective_us, 2 * message_us);
    CHECK(cost.joins_pipeline && !cost.joins_tied, "a middle stage holds no tied weight");
    double least_us = cost.forward[0].flops / 60e9 * 1e6;
    CHECK(cost.forward[0].us > least_us && cost.forward[0].us < 2 * least_us, "%g us",
          cost.forward[0].us);
}

static void test_one_rank(Arena *arena, Diag *diag) {
    check_begin("simulate: one rank's step is the sum of its tasks");
    Plan *plan = fixture_plan(arena, &ONE, diag);
    Simulation *sim = simulate_plan(arena, plan, &PLAIN_DEVICE, diag);
    CHECK(sim, "%s", diag_text(diag));
    if (!sim) return;
    const ProgramCost *cost = &sim->costs[0];
    double sum = 4 * (cost->forward[0].us + cost->backward[0].us);
    for (int i = 0; i < N_UPDATE_PARTS; i++) sum += cost->update[i].us;
    CHECK(near(sim->step_us, sum), "%g us, not %g", sim->step_us, sum);
    CHECK(sim->bubble_fraction < 1e-9, "bubble %g", sim->bubble_fraction);
}

/* With free messages and equal stages the bubble is (p - 1) / (v m + p - 1) of the time before the
 * update (Narayanan et al. 2021, section 2.2). */
static void test_bubble(Arena *arena, const FixtureShape *shape, const char *name, Diag *diag) {
    check_begin(name);
    Plan *plan = fixture_plan(arena, shape, diag);
    for (int stage = 0; stage < plan->n_stages; stage++) plan->stages[stage].program = 1;
    Device device = PLAIN_DEVICE;
    device.link_latency_us = 0;
    device.link_bytes_per_second = 1e30;
    Simulation *sim = simulate_plan(arena, plan, &device, diag);
    CHECK(sim, "%s", diag_text(diag));
    if (!sim) return;
    double update_us = 0, start_us = sim->step_us;
    for (int i = 0; i < N_UPDATE_PARTS; i++) update_us += sim->costs[1].update[i].us;
    start_us -= update_us;
    int v = plan->n_chunks, p = plan->n_stages, m = plan->n_micro;
    double want = (double)(p - 1) / (v * m + p - 1);
    double bubble = 1 - (sim->stages[0].busy_us - update_us) / start_us;
    CHECK(fabs(bubble - want) < 1e-6, "bubble %.4f, not %.4f", bubble, want);
}

static void test_messages(Arena *arena, Diag *diag) {
    check_begin("simulate: messages and tasks respect time");
    Plan *plan = fixture_plan(arena, &CHUNKS, diag);
    Simulation *sim = simulate_plan(arena, plan, &PLAIN_DEVICE, diag);
    CHECK(sim, "%s", diag_text(diag));
    if (!sim) return;
    CHECK(sim->n_messages == 2 * (2 * 4 - 1) * 8, "%d messages", sim->n_messages);
    for (int i = 0; i < sim->n_messages; i++) {
        const MessageSpan *message = &sim->messages[i];
        const Channel *link = &plan->channels[message->channel];
        double latency_us, us = cost_message_us(&PLAIN_DEVICE, plan, link->from, link->to,
                                                (double)link->slot_bytes, &latency_us);
        CHECK(message->arrive_us >= message->start_us + us - 1e-6, "message %d too fast", i);
        CHECK(message->taken_us >= message->arrive_us, "message %d taken early", i);
        const Task *send = &plan->stages[link->from].tasks[message->from_task];
        const Task *receive = &plan->stages[link->to].tasks[message->to_task];
        CHECK(send->micro == receive->micro && task_is_send(send), "message %d: other ends", i);
        const TaskSpan *reader = simulation_span(sim, link->to, message->to_task + 1);
        CHECK(reader->start_us >= message->arrive_us, "message %d read early", i);
    }
    for (int stage = 0; stage < plan->n_stages; stage++) {
        for (int i = 1; i < plan->stages[stage].n_tasks; i++) {
            const TaskSpan *span = simulation_span(sim, stage, i);
            CHECK(span->start_us >= span[-1].end_us && span->end_us >= span->start_us,
                  "stage %d task %d overlaps the one before", stage, i);
            CHECK(span->end_us <= sim->step_us + 1e-6, "stage %d task %d after the end", stage, i);
        }
        double sum =
            sim->stages[stage].busy_us + sim->stages[stage].send_us + sim->stages[stage].idle_us;
        CHECK(near(sum, sim->step_us), "stage %d: times do not add up", stage);
    }
}

static void test_stuck(Arena *arena) {
    check_begin("simulate: a list that cannot end is reported");
    Diag *diag = diag_create();
    Plan *plan = fixture_plan(arena, &SMALL, diag);
    Task *tasks = plan->stages[0].tasks;
    while (!task_is_send(tasks)) tasks++;
    *tasks = (Task){TASK_FORWARD, 0, tasks->micro}; /* sends one fewer than stage 1 receives */
    CHECK(!simulate_plan(arena, plan, &PLAIN_DEVICE, diag), "it ended");
    CHECK(strstr(diag_text(diag), "waits forever at its task"), "%s", diag_text(diag));
    StrBuf out = strbuf_create();
    CHECK(!show_html(&out, plan, &PLAIN_DEVICE, diag) && out.length == 0, "a page was made");
    strbuf_destroy(&out);
    diag_destroy(diag);
}

static void test_speed(const Plan *plan, Arena *arena, Diag *diag) {
    check_begin("simulate: 64 stages x 512 micro-batches within a second");
    struct timespec start, end;
    clock_gettime(CLOCK_MONOTONIC, &start);
    Simulation *sim = simulate_plan(arena, plan, &PLAIN_DEVICE, diag);
    clock_gettime(CLOCK_MONOTONIC, &end);
    double ms =
        (double)(end.tv_sec - start.tv_sec) * 1e3 + (double)(end.tv_nsec - start.tv_nsec) / 1e6;
    CHECK(sim, "%s", diag_text(diag));
    CHECK(ms < 1000, "%.0f ms", ms);
}

static json_t *parse(const StrBuf *text) {
    json_error_t error;
    json_t *json = json_loadb(text->text, text->length, 0, &error);
    CHECK(json, "line %d: %s", error.line, error.text);
    return json;
}

static json_int_t get_int(const json_t *object, const char *key) {
    const json_t *value = json_object_get(object, key);
    CHECK(json_is_integer(value), "%s is missing", key);
    return json_integer_value(value);
}

static void test_json(Arena *arena, Diag *diag) {
    check_begin("json: agrees with the plan");
    Plan *plan = fixture_plan(arena, &SMALL, diag);
    StrBuf text = show(show_json, plan, diag);
    json_t *root = parse(&text);
    const json_t *model = json_object_get(root, "model");
    CHECK(strcmp(json_string_value(json_object_get(model, "name")), HOSTILE) == 0, "name");
    CHECK(get_int(model, "parameters") == plan->n_parameters, "parameters");
    CHECK(get_int(json_object_get(root, "mesh"), "ranks") == 16, "ranks");
    const json_t *stages = json_object_get(root, "stages");
    CHECK(json_array_size(stages) == 4, "stages");
    json_int_t n_parameters = 0, all_bytes = 0;
    for (int i = 0; i < plan->n_stages; i++) {
        const json_t *stage = json_array_get(stages, (size_t)i);
        const json_t *classes = json_object_get(stage, "class_bytes");
        const json_t *tasks = json_object_get(stage, "tasks");
        json_int_t sum = 0;
        for (int k = 0; k < N_BUFFER_CLASSES; k++) {
            sum += get_int(classes, buffer_class_name((BufferClass)k));
        }
        CHECK(sum == plan->stages[i].arena_bytes, "stage %d: classes do not sum to the arena", i);
        CHECK(get_int(stage, "arena_bytes") == plan->stages[i].arena_bytes, "arena of %d", i);
        CHECK(get_int(tasks, "F") == 8 && get_int(tasks, "B") == 8, "tasks of stage %d", i);
        CHECK(get_int(tasks, "total") == plan->stages[i].n_tasks, "tasks of stage %d", i);
        n_parameters += get_int(stage, "parameters");
        all_bytes += 4 * get_int(stage, "arena_bytes");
    }
    CHECK(n_parameters == plan->n_parameters + 1024 * 512, "tied weights count on both stages");
    CHECK(get_int(json_object_get(root, "memory"), "all_arena_bytes") == all_bytes, "all arenas");
    json_decref(root);
    strbuf_destroy(&text);
}

static void test_tuned(Arena *arena, Diag *diag) {
    check_begin("a device section is told in one line, and in the JSON");
    Plan *plan = fixture_plan(arena, &ONE, diag);
    StrBuf text = show(show_text, plan, diag), json = show(show_json, plan, diag);
    json_t *root = parse(&json);
    CHECK(!strstr(text.text, "\ntuned"), "%s", text.text);
    CHECK(json_is_null(json_object_get(root, "tuned")), "tuned, where nothing was");
    json_decref(root);
    strbuf_destroy(&text);
    strbuf_destroy(&json);
    PlanAlgo algos[14] = {{.layout = {.m = 1}}};
    PlanAttention attentions[2] = {{.kernels = ATTENTION_CUDNN}, {.kernels = ATTENTION_WGMMA}};
    plan->device = (PlanDevice){.name = "NVIDIA\nH200",
                                .arch = "sm_90",
                                .library_version = 130100,
                                .n_algos = 14,
                                .n_attentions = 2,
                                .algos = algos,
                                .attentions = attentions};
    text = show(show_text, plan, diag), json = show(show_json, plan, diag);
    CHECK(strstr(text.text,
                 "\ntuned     for NVIDIA?H200 (cuBLASLt 13.1): 14 products, 2 attentions "
                 "(1 cudnn, 1 wgmma)\n"),
          "%s", text.text);
    root = parse(&json);
    const json_t *tuned = json_object_get(root, "tuned");
    CHECK(get_int(tuned, "products") == 14 && get_int(tuned, "cublaslt") == 130100, "figures");
    CHECK(strcmp(json_string_value(json_object_get(tuned, "device")), "NVIDIA\nH200") == 0, "name");
    const json_t *kernels = json_object_get(tuned, "attention_kernels");
    CHECK(get_int(kernels, "cudnn") == 1 && get_int(kernels, "mma") == 0 &&
              get_int(kernels, "wgmma") == 1,
          "kernels");
    json_decref(root);
    strbuf_destroy(&text);
    strbuf_destroy(&json);
}

/* Bytes on paper: stage 0 reduces 2 blocks x 2 x 8 times 1 MiB over t, plus the embedding's. */
static void test_traffic(Arena *arena, Diag *diag) {
    check_begin("traffic: per communicator as on paper");
    Plan *plan = fixture_plan(arena, &SMALL, diag);
    Facts *facts = facts_create(arena, plan, &PLAIN_DEVICE, diag);
    CHECK(facts && facts->n_traffic == 6, "%d rows", facts ? facts->n_traffic : -1);
    if (!facts) return;
    double activation = 2.0 * 256 * 512 * 4;
    const Traffic *t = &facts->traffic[0], *d = &facts->traffic[1], *pipe = &facts->traffic[4];
    CHECK(t->n_calls == 8 * 5 && near(t->rank_bytes, 8 * 5 * activation), "t: %g", t->rank_bytes);
    CHECK(t->n_groups == 8 && t->group_size == 2, "t: %d x %d", t->n_groups, t->group_size);
    CHECK(near(t->total_bytes, 4 * 8 * (5 + 4 + 4 + 4) * activation), "t: %g", t->total_bytes);
    CHECK(d->n_calls == 5, "d: %d calls", (int)d->n_calls);
    CHECK(strcmp(facts->traffic[3].name, "tied wte") == 0, "%s", facts->traffic[3].name);
    CHECK(facts->traffic[3].n_calls == 1 && facts->traffic[3].n_groups == 4, "tied");
    CHECK(pipe->n_calls == 8 && near(pipe->rank_bytes, 8 * activation), "pipeline");
    CHECK(pipe->n_groups == 12 && near(pipe->total_bytes, 12 * 8 * activation), "pipeline");
}

/* Events of one (stage, thread) must come in order and not overlap; arrows must pair up. */
static void test_trace(Arena *arena, const FixtureShape *shape, const char *name, Diag *diag) {
    check_begin(name);
    Plan *plan = fixture_plan(arena, shape, diag);
    StrBuf text = show(show_trace, plan, diag);
    json_t *root = parse(&text), *event;
    double end_us[64][3] = {{0}};
    int n_tasks = 0, n_arrows = 0;
    size_t i;
    json_array_foreach(json_object_get(root, "traceEvents"), i, event) {
        const char *phase = json_string_value(json_object_get(event, "ph"));
        if (*phase == 's') n_arrows++;
        if (*phase == 'f') n_arrows--;
        if (*phase != 'X') continue;
        json_int_t stage = get_int(event, "pid"), thread = get_int(event, "tid");
        double start = json_real_value(json_object_get(event, "ts"));
        CHECK(llround(start * 1e3) >= llround(end_us[stage][thread] * 1e3),
              "stage %d overlaps at %.3f", (int)stage, start);
        end_us[stage][thread] = start + json_real_value(json_object_get(event, "dur"));
        n_tasks++;
    }
    int want = 0;
    for (int stage = 0; stage < plan->n_stages; stage++) want += plan->stages[stage].n_tasks;
    CHECK(n_tasks == want, "%d tasks, not %d", n_tasks, want);
    CHECK(n_arrows == 0, "%d arrows without end", n_arrows);
    json_decref(root);
    strbuf_destroy(&text);
}

static void test_text(const Plan *large, Arena *arena, Diag *diag) {
    check_begin("text: within 100 columns, alike stages in one row, names cannot break lines");
    Plan *plans[] = {fixture_plan(arena, &ONE, diag), fixture_plan(arena, &SMALL, diag),
                     fixture_plan(arena, &CHUNKS, diag), (Plan *)large};
    for (int i = 0; i < 4; i++) {
        StrBuf text = show(show_text, plans[i], diag);
        int n_lines = 0;
        for (const char *line = text.text; *line; n_lines++) {
            size_t length = strcspn(line, "\n");
            CHECK(length <= 100, "plan %d: %zu columns: %.*s", i, length, (int)length, line);
            CHECK(strcspn(line, "\x01\t\r") >= length, "a control character");
            line += length + (line[length] == '\n');
        }
        CHECK(n_lines <= 40, "plan %d: %d lines", i, n_lines);
        if (i == 3) CHECK(strstr(text.text, "\n1-62 "), "stages are not grouped");
        strbuf_destroy(&text);
    }
}

static void test_dot(Arena *arena, Diag *diag) {
    check_begin("dot: balanced, quoted, one node per op");
    Plan *plan = fixture_plan(arena, &SMALL, diag);
    StrBuf text = show(show_dot, plan, diag);
    int depth = 0, n_labels = 0;
    bool quoted = false;
    for (const char *c = text.text; *c; c++) {
        if (quoted && *c == '\\') {
            c++;
        } else if (*c == '"') {
            quoted = !quoted;
        } else if (!quoted) {
            depth += (*c == '{') - (*c == '}');
        }
        CHECK(!quoted || *c != '\n', "a string runs over its line");
    }
    CHECK(depth == 0 && !quoted, "unbalanced: %d", depth);
    for (const char *at = text.text; (at = strstr(at, ", label=\"")); at++) n_labels++;
    int n_nodes = 0;
    for (int i = 0; i < plan->n_programs; i++) n_nodes += plan->programs[i].graph->n_nodes;
    CHECK(n_labels == n_nodes, "%d labels for %d nodes", n_labels, n_nodes);
    strbuf_destroy(&text);
}

static void test_html(const Plan *large, Arena *arena, Diag *diag) {
    check_begin("html: escaped, self-contained, of bounded size");
    StrBuf text = show(show_html, fixture_plan(arena, &SMALL, diag), diag);
    CHECK(!strstr(text.text, "<script>alert"), "a name became markup");
    CHECK(strstr(text.text, "&lt;script&gt;alert(1)"), "the name is missing");
    CHECK(!strstr(text.text, "://") && !strstr(text.text, "url("), "a link leaves the file");
    strbuf_destroy(&text);
    text = show(show_html, large, diag);
    CHECK(text.length < 4 << 20, "%zu bytes", text.length);
    CHECK(strstr(text.text, "of 64 stages are drawn"), "does not say what is left out");
    strbuf_destroy(&text);
}

static bool write_pages(const char *folder, Arena *arena, Diag *diag) {
    static const struct {
        const char *name;
        const FixtureShape *shape;
    } PAGES[] = {{"one", &ONE}, {"small", &SMALL}, {"chunks", &CHUNKS}, {"large", &LARGE}};
    for (size_t i = 0; i < sizeof(PAGES) / sizeof(*PAGES); i++) {
        StrBuf text = strbuf_create();
        Plan *plan = fixture_plan(arena, PAGES[i].shape, diag);
        char *path = arena_printf(arena, "%s/%s.html", folder, PAGES[i].name);
        bool written = show_html(&text, plan, &PLAIN_DEVICE, diag) &&
                       file_write(path, text.text, text.length, diag);
        strbuf_destroy(&text);
        if (!written) return false;
    }
    return true;
}

int main(int argc, char **argv) {
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    int status = 0;
    if (argc == 3 && strcmp(argv[1], "--write") == 0) {
        status = write_pages(argv[2], arena, diag) ? 0 : 1;
        diag_print(diag, stderr);
    } else {
        const Plan *large = fixture_plan(arena, &LARGE, diag);
        test_cost(arena, diag);
        test_one_rank(arena, diag);
        test_bubble(arena, &SMALL, "simulate: the bubble of 1F1B is the paper's", diag);
        test_bubble(arena, &CHUNKS, "simulate: the bubble of interleaved 1F1B is the paper's",
                    diag);
        test_messages(arena, diag);
        test_stuck(arena);
        test_speed(large, arena, diag);
        test_json(arena, diag);
        test_tuned(arena, diag);
        test_traffic(arena, diag);
        test_trace(arena, &SMALL, "trace: events in order, 1F1B", diag);
        test_trace(arena, &CHUNKS, "trace: events in order, interleaved", diag);
        test_text(large, arena, diag);
        test_dot(arena, diag);
        test_html(large, arena, diag);
        status = check_report();
    }
    diag_destroy(diag);
    arena_destroy(arena);
    return status;
}
