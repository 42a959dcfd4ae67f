/* --stragglers: whom tables of times name, and whom they do not; what is said and logged of it; and
 * that times measured in real steps name a rank whose calls are slow, among threads and among
 * processes, without another bit in the losses.
 *
 * Would catch: ranks of other stages compared, a rank compared with itself, waiting taken for work,
 * noise taken for slowness, another rank, class or axis named, costs of stages that do not count.
 */
#include "frontend/commands/find_stragglers.h"
#include "frontend/commands/run_curve.h"
#include "frontend/commands/show_run.h"
#include "frontend/commands/straggler_text.h"
#include "ir/base/file.h"
#include "runtime/cpu/cpu_engine.h"
#include "runtime/metrics/run_log.h"
#include "tests/unit/control_job.h"
#include "tests/unit/train_fixture.h"

#include <jansson.h>

/* --- tables --- */

enum { MOST_RANKS = 16 };

typedef struct Table {
    Arena *arena;
    StragglerLayout layout;
    RankWork work[MOST_RANKS];
    StragglerReport report;
} Table;

/* Everyone's step is 100 ms: 50 of products, 20 of attention, 5 elementwise, 4 of update, 1 of
 * data; all messages 5 ms, of which most have waited for 1. */
static Table make_table(int t, int d, int p) {
    Table table = {.arena = arena_create(),
                   .layout = {.mesh = {.size = {t, 1, 1, d, 1, p}},
                              .n_micro = 4,
                              .n_chunks = 1,
                              .threshold = STRAGGLER_THRESHOLD}};
    for (int rank = 0; rank < t * d * p; rank++) {
        RankWork *work = &table.work[rank];
        *work = (RankWork){.n_steps = 10,
                           .device = rank % 8,
                           .step_seconds = 0.099,
                           .work_seconds = {0.05, 0.02, 0.005, 0.004, 0.001}};
        if (t > 1) work->message_seconds[MESH_T] = 0.005;
        if (d > 1) work->message_seconds[MESH_D] = 0.005;
        for (int m = MESSAGE_SEND_FORWARD; m < N_MESSAGE_CLASSES && p > 1; m++) {
            work->message_seconds[m] = 0.005;
        }
    }
    return table;
}

static const StragglerReport *judge(Table *table) {
    table->report = find_stragglers(&table->layout, table->work, table->arena);
    return &table->report;
}

static bool is_near(double x, double y) {
    return fabs(x - y) <= 1e-9;
}

/* The only one that is named is this rank, for this. */
static void check_only(const StragglerReport *report, int rank, WorkClass class, double ratio,
                       int n_alike) {
    CHECK(report->n_stragglers == 1, "%d named", report->n_stragglers);
    if (report->n_stragglers < 1) return;
    const Straggler *straggler = &report->stragglers[0];
    CHECK(straggler->rank == rank && straggler->message == -1, "rank %d, message %d",
          straggler->rank, straggler->message);
    CHECK(straggler->class == class, "class %s", work_class_name(straggler->class));
    CHECK(is_near(straggler->seconds / straggler->median_seconds, ratio), "ratio %.9g, not %.9g",
          straggler->seconds / straggler->median_seconds, ratio);
    CHECK(straggler->n_alike == n_alike, "%d alike", straggler->n_alike);
    CHECK(report->slowest == rank && is_near(report->ratio[rank], ratio), "slowest %d",
          report->slowest);
}

static void check_tables(void) {
    Table table = make_table(2, 2, 2);
    check_begin("nobody is named where all take the same");
    const StragglerReport *report = judge(&table);
    CHECK(report->n_stragglers == 0 && is_near(report->without_seconds, 0.1), "%d named, %g",
          report->n_stragglers, report->without_seconds);
    CHECK(is_near(report->ratio[7], 1) && is_near(report->own_seconds[7], 0.08), "%g, %g",
          report->ratio[7], report->own_seconds[7]);

    check_begin("a rank whose products take longer is named, for products, in its stage");
    table.work[5].work_seconds[WORK_PRODUCTS] += 0.02;
    report = judge(&table);
    check_only(report, 5, WORK_PRODUCTS, 0.1 / 0.08, 3);
    CHECK(is_near(report->stragglers[0].class_median_seconds, 0.05), "%g",
          report->stragglers[0].class_median_seconds);
    /* Its stage, that of the other being 75 ms: 95 + 75 / 4 instead of 75 + 75 / 4. */
    CHECK(is_near(report->without_seconds, 0.08), "without %g", report->without_seconds);

    check_begin("slower in a stage that does not count costs a share of the pipeline's ends");
    for (int rank = 0; rank < 4; rank++) table.work[rank].work_seconds[WORK_PRODUCTS] = 0.2;
    report = judge(&table);
    check_only(report, 5, WORK_PRODUCTS, 0.1 / 0.08, 3);
    CHECK(is_near(report->without_seconds, 0.1 - 0.02 / 4), "without %g", report->without_seconds);
    arena_destroy(table.arena);

    check_begin("update and data are classes, too, and count once");
    table = make_table(1, 4, 1);
    table.work[2].work_seconds[WORK_DATA] = 0.03;
    report = judge(&table);
    check_only(report, 2, WORK_DATA, 0.109 / 0.08, 3);
    CHECK(is_near(report->step_seconds, 0.129) && is_near(report->without_seconds, 0.1), "%g, %g",
          report->step_seconds, report->without_seconds);
    arena_destroy(table.arena);
}

static void check_small(void) {
    check_begin("of two ranks the slower one is named, beside the other");
    Table table = make_table(1, 2, 1);
    table.work[0].work_seconds[WORK_ATTENTION] += 0.02;
    check_only(judge(&table), 0, WORK_ATTENTION, 0.1 / 0.08, 1);
    arena_destroy(table.arena);

    check_begin("one rank a stage is compared with nobody, however slow");
    table = make_table(1, 1, 4);
    table.work[2].work_seconds[WORK_PRODUCTS] = 3;
    const StragglerReport *report = judge(&table);
    CHECK(report->n_stragglers == 0 && report->slowest == -1 && isnan(report->ratio[2]),
          "%d named, slowest %d", report->n_stragglers, report->slowest);
    arena_destroy(table.arena);

    check_begin("two that are as slow are both named, the costlier one first");
    table = make_table(1, 4, 1);
    table.work[1].work_seconds[WORK_PRODUCTS] += 0.02;
    table.work[3].work_seconds[WORK_PRODUCTS] += 0.02;
    report = judge(&table);
    CHECK(report->n_stragglers == 2 && report->stragglers[0].rank == 1 &&
              report->stragglers[1].rank == 3 && is_near(report->without_seconds, 0.08),
          "%d named, without %g", report->n_stragglers, report->without_seconds);
    table.work[3].work_seconds[WORK_PRODUCTS] += 0.02;
    report = judge(&table);
    CHECK(report->n_stragglers == 2 && report->stragglers[0].rank == 3, "%d named",
          report->n_stragglers);

    check_begin("at the threshold nobody is named, beyond it one is");
    for (int rank = 0; rank < 4; rank++) {
        const double seconds[N_WORK_CLASSES] = {0.0625};
        memcpy(table.work[rank].work_seconds, seconds, sizeof(seconds));
    }
    table.layout.threshold = 1.5;
    table.work[0].work_seconds[WORK_PRODUCTS] = 0.09375;
    CHECK(judge(&table)->n_stragglers == 0, "named at 1.5 times");
    table.work[0].work_seconds[WORK_PRODUCTS] = 0.094;
    CHECK(judge(&table)->n_stragglers == 1, "not named");
    arena_destroy(table.arena);
}

static void check_noise(void) {
    check_begin("what is within the noise of the steps, or of no account, names nobody");
    Table table = make_table(1, 4, 1);
    table.work[1].work_seconds[WORK_PRODUCTS] += 0.02;
    table.work[1].work_error = 0.0067;
    CHECK(judge(&table)->n_stragglers == 0, "named at 2.99 errors of its own");
    table.work[1].work_error = 0.0066;
    CHECK(judge(&table)->n_stragglers == 1, "not named at 3.03");
    for (int rank = 0; rank < 4; rank++) table.work[rank].work_error = 0.0048;
    CHECK(judge(&table)->n_stragglers == 0, "named at 2.95 errors of both");
    for (int rank = 0; rank < 4; rank++) {
        table.work[rank].work_error = 0;
        table.work[rank].step_seconds = 2.1;
    }
    CHECK(judge(&table)->n_stragglers == 0, "named for 0.95 %% of a step");
    arena_destroy(table.arena);

    check_begin("sums over steps have the mean's standard error");
    static const double STEPS[] = {1, 4, 4, 7}; /* variance 6 of 3: error sqrt(6 / 4) */
    WorkSums sums = {0};
    Node product = {.op = OP_MATMUL};
    for (int i = 0; i < 4; i++) {
        rank_work_add(&sums.sum, &product, TASK_FORWARD, STEPS[i], 0);
        rank_work_add(&sums.sum, NULL, TASK_FORWARD, 1, 0);
        rank_work_add(&sums.sum, &product, TASK_SEND_FORWARD, 3 * STEPS[i], STEPS[i]);
        work_sums_end_step(&sums);
    }
    const RankWork mean = work_sums_take(&sums);
    CHECK(mean.n_steps == 4 && is_near(mean.work_seconds[WORK_PRODUCTS], 4) &&
              is_near(mean.work_seconds[WORK_DATA], 1) &&
              is_near(mean.message_seconds[MESSAGE_SEND_FORWARD], 12) &&
              is_near(mean.waited_seconds[MESSAGE_SEND_FORWARD], 4),
          "means");
    CHECK(is_near(mean.work_error, sqrt(1.5)) &&
              is_near(mean.message_errors[MESSAGE_SEND_FORWARD], 2 * sqrt(1.5)),
          "errors %g, %g", mean.work_error, mean.message_errors[MESSAGE_SEND_FORWARD]);
    CHECK(work_sums_take(&sums).n_steps == 0, "sums are left");
}

/* The only one named is the group or link of these messages that begins with this rank. */
static void check_only_message(const Table *table, int rank, int message, double ratio,
                               const char *ranks) {
    const StragglerReport *report = &table->report;
    CHECK(report->n_stragglers == 1, "%d named", report->n_stragglers);
    if (report->n_stragglers < 1) return;
    const Straggler *straggler = &report->stragglers[0];
    bool flags[MOST_RANKS];
    StrBuf text = strbuf_create();
    straggler_put_ranks(&table->layout, straggler->message, straggler->rank, flags);
    control_put_ranks(&text, flags, report->n_ranks);
    CHECK(straggler->rank == rank && straggler->message == message && strcmp(text.text, ranks) == 0,
          "messages over %s of ranks %s", straggler_message_name(straggler->message), text.text);
    CHECK(is_near(straggler->seconds / straggler->median_seconds, ratio), "ratio %.9g",
          straggler->seconds / straggler->median_seconds);
    strbuf_destroy(&text);
}

static void check_messages(void) {
    check_begin("who waits for a slow rank is not slow, nor are their messages");
    Table table = make_table(2, 4, 1);
    table.work[3].work_seconds[WORK_PRODUCTS] += 0.02;
    for (int rank = 0; rank < 8; rank++) {
        if (rank != 3) table.work[rank].message_seconds[rank == 2 ? MESH_T : MESH_D] += 0.02;
    }
    const StragglerReport *report = judge(&table);
    check_only(report, 3, WORK_PRODUCTS, 0.1 / 0.08, 7);
    CHECK(is_near(report->waiting_seconds[2], 0.02) && is_near(report->waiting_seconds[3], 0) &&
              is_near(report->message_seconds[2], 0.01),
          "waiting %g, %g", report->waiting_seconds[2], report->waiting_seconds[3]);
    arena_destroy(table.arena);

    check_begin("a group all of whose members take longer in messages is named, with its axis");
    table = make_table(2, 4, 1); /* d: ranks 0 2 4 6 and 1 3 5 7 */
    for (int rank = 1; rank < 8; rank += 2) table.work[rank].message_seconds[MESH_D] = 0.02;
    report = judge(&table);
    check_only_message(&table, 1, MESH_D, 4, "1, 3, 5, 7");
    CHECK(is_near(report->without_seconds, 0.1 - 0.015), "without %g", report->without_seconds);
    const MessageFigures *figures = &report->messages[MESH_D];
    CHECK(figures->n_groups == 2 && figures->slowest == 1 &&
              is_near(figures->slowest_seconds, 0.02) && is_near(figures->median_seconds, 0.005) &&
              report->messages[MESH_T].n_groups == 4,
          "%d groups, the slowest %d", figures->n_groups, figures->slowest);

    check_begin("what is known to be waiting is not");
    for (int rank = 1; rank < 8; rank += 2) table.work[rank].waited_seconds[MESH_D] = 0.015;
    CHECK(judge(&table)->n_stragglers == 0, "named");
    arena_destroy(table.arena);

    check_begin("a slow link between stages is told from waiting for what the stage before does");
    table = make_table(1, 2, 3); /* stages: ranks 0 1, 2 3, 4 5 */
    for (int rank = 2; rank < 6; rank++) table.work[rank].message_seconds[MESSAGE_RECV_FORWARD] = 1;
    CHECK(judge(&table)->n_stragglers == 0, "named");
    table.work[3].message_seconds[MESSAGE_SEND_FORWARD] = 0.03;
    judge(&table);
    check_only_message(&table, 3, MESSAGE_SEND_FORWARD, 6, "3, 5");
    table.layout.goes_back = true;
    CHECK(judge(&table)->n_stragglers == 0, "a link is named where there are two ways");
    arena_destroy(table.arena);

    check_begin("stages that share weights are a group for each of their ranks");
    table = make_table(1, 4, 3);
    for (int rank = 0; rank < 12; rank++) {
        if (rank / 4 != 1) table.work[rank].message_seconds[MESSAGE_TIED] = 0.005;
    }
    table.work[2].message_seconds[MESSAGE_TIED] = 0.05;
    CHECK(judge(&table)->n_stragglers == 0, "named");
    table.work[10].message_seconds[MESSAGE_TIED] = 0.05;
    judge(&table);
    check_only_message(&table, 2, MESSAGE_TIED, 10, "2, 6, 10");
    arena_destroy(table.arena);
}

/* --- real steps --- */

static const ModelSetting TINY[] = {{"layers", "2"}, {"model", "16"}, {"heads", "2"},
                                    {"seq", "8"},    {"vocab", "32"}, {"dropout", "0"}};
static const Layout FLAT = {2, 2, 1, 1, 1, "1f1b", false, NULL, 0};
static const Layout DEEP = {1, 2, 2, 1, 1, "1f1b", false, NULL, 0};
enum { N_TINY = sizeof(TINY) / sizeof(TINY[0]), STEPS = 4, WORLD = 4 };

static bool start(Run *run, const Layout *layout) {
    return run_plan(run, "models/gpt.lua", TINY, N_TINY, layout, 4, false) && run_start(run);
}

/* A call that sleeps first: as if its device had been throttled. */
typedef struct SlowCall {
    CpuCall call;
    double seconds;
} SlowCall;

static bool run_slowly(const void *args) {
    const SlowCall *slow = args;
    sleep_s(slow->seconds);
    return slow->call.run(slow->call.args);
}

/* By a tenth of a second a step, on a busy machine more than noise: by calls of an op, over a mesh
 * axis if one is given. */
static void slow_down(Run *run, int rank, OpKind op, const char *axis) {
    CallList *list = &cpu_engine_rank(run->engine, rank)->train;
    int count = 0;
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < list->count; i++) {
            const Node *node = list->info[i].node;
            if (!node || node->op != op) continue;
            if (axis && strcmp(node_string(node, ATTR_mesh), axis) != 0) continue;
            if (pass == 0) {
                count++;
                continue;
            }
            SlowCall *slow = ARENA_NEW(run->arena, SlowCall);
            *slow = (SlowCall){list->calls[i], 0.1 / count};
            list->calls[i] = (CpuCall){run_slowly, slow};
        }
    }
    CHECK(count > 0, "rank %d has no such calls", rank);
}

static const HostWork HOST = {.step_seconds = 0.1, .device = -1};

/* Steps but the first, which takes longer, are measured. */
static bool take_steps(Run *run) {
    if (!run_steps(run, 1, 1e-3)) return false;
    engine_set_measuring(run->engine, true);
    return run_steps_from(run, 1, STEPS - 1, 1e-3);
}

/* And what rank 0 knows then. */
static bool measure(Run *run, RankWork *work) {
    return take_steps(run) && engine_gather_work(run->engine, &HOST, work, run->diag);
}

/* Of the plan's ranks: the costliest straggler. */
static Straggler find_first(const Run *run, const RankWork *work, StrBuf *lines) {
    const StragglerContext context = {.plan = run->plan,
                                      .layout = straggler_layout(run->plan, STRAGGLER_THRESHOLD),
                                      .work = work,
                                      .bytes = straggler_planned_bytes(run->plan, run->arena)};
    const StragglerReport report = find_stragglers(&context.layout, work, run->arena);
    straggler_put_lines(lines, &context, &report, STEPS, run->arena);
    return report.n_stragglers ? report.stragglers[0] : (Straggler){.rank = -1};
}

static void check_slow_rank(const Layout *layout, int rank, OpKind op, WorkClass class,
                            const char *expected) {
    char name[96];
    snprintf(name, sizeof(name), "a rank that is slow in %s is found, p=%d", work_class_name(class),
             layout->p);
    check_begin(name);
    Run slow, plain;
    RankWork work[WORLD];
    bool ready = start(&slow, layout);
    if (ready) slow_down(&slow, rank, op, NULL);
    ready = ready && measure(&slow, work);
    const bool also = start(&plain, layout) && run_steps(&plain, STEPS, 1e-3);
    CHECK(ready && also, "%s%s", diag_text(slow.diag), diag_text(plain.diag));
    if (ready && also) {
        StrBuf lines = strbuf_create();
        const Straggler first = find_first(&slow, work, &lines);
        CHECK(first.rank == rank && first.message == -1 && first.class == class, "%s",
              lines.length ? lines.text : "nobody");
        CHECK(lines.length && strstr(lines.text, expected), "'%s' in %s", expected,
              lines.length ? lines.text : "nothing");
        for (int s = 0; s < STEPS; s++) {
            CHECK(slow.losses[s] == plain.losses[s], "step %d: measured %.9g, plain %.9g", s,
                  slow.losses[s], plain.losses[s]);
        }
        CHECK(work[0].n_steps == STEPS - 1, "%lld steps", (long long)work[0].n_steps);
        strbuf_destroy(&lines);
    }
    run_close(&slow);
    run_close(&plain);
}

static void check_slow_messages(void) {
    check_begin("messages that are slow for a whole group are found");
    Run run;
    RankWork work[WORLD];
    bool ready = start(&run, &FLAT);
    for (int rank = 1; rank < WORLD && ready; rank += 2) { /* groups of d: 0 2 and 1 3 */
        slow_down(&run, rank, OP_ALL_REDUCE, "d");
    }
    ready = ready && measure(&run, work);
    CHECK(ready, "%s", diag_text(run.diag));
    if (ready) {
        StrBuf lines = strbuf_create();
        const Straggler first = find_first(&run, work, &lines);
        CHECK(first.rank == 1 && first.message == MESH_D &&
                  strstr(lines.text, "messages over d of ranks 1, 3: "),
              "%s", lines.length ? lines.text : "nobody");
        strbuf_destroy(&lines);
    }
    run_close(&run);
}

/* Each process keeps the times of its rank alone; rank 0 hears of the others'. */
static bool gather_processes(Job *job, int rank, char said[SAID_BYTES]) {
    Run run;
    RankWork work[WORLD] = {0};
    unsigned char *memory[WORLD];
    bool good = start(&run, &FLAT);
    if (good) slow_down(&run, 2, OP_ATTENTION, NULL);
    good = good && take_steps(&run);
    Control *control = join(job, rank, said);
    if (!good || !control) return false;
    for (int r = 0; r < WORLD; r++) {
        memory[r] = run.engine->ranks[r].memory;
        if (r != rank) run.engine->ranks[r].memory = NULL;
    }
    run.engine->control = control;
    HostWork host = HOST;
    host.device = 10 + rank;
    good = engine_gather_work(run.engine, &host, rank ? NULL : work, run.diag);
    StrBuf lines = strbuf_create();
    if (rank == 0) {
        const StragglerContext context = {.plan = run.plan,
                                          .layout = straggler_layout(run.plan, 1.1),
                                          .control = control,
                                          .work = work,
                                          .bytes = straggler_planned_bytes(run.plan, run.arena)};
        const StragglerReport report = find_stragglers(&context.layout, work, run.arena);
        straggler_put_lines(&lines, &context, &report, 2, run.arena);
    }
    snprintf(said, SAID_BYTES, "%d %s", good, lines.length ? lines.text : "");
    strbuf_destroy(&lines);
    for (int r = 0; r < WORLD; r++) run.engine->ranks[r].memory = memory[r];
    run.engine->control = NULL;
    run_close(&run);
    const bool closed = control_close(control);
    control_destroy(control);
    return closed && good;
}

static void check_processes(void) {
    check_begin("four processes: rank 0 names another's rank, with its host and GPU");
    Job job = job_create(WORLD, gather_processes);
    job.options.connect_s = job.options.operation_s = job.options.lost_s = 60; /* busy machines */
    job_start(&job);
    job_finish(&job);
    check_all_well(&job);
    check_said(&job, 0, "1 slow    step 2: rank 2 (host-2), GPU 12: ");
    check_said(&job, 0, "; most in attention, ");
}

/* --- what is written, and read --- */

static json_t *check_json(const Table *table, const StragglerContext *context) {
    StrBuf text = strbuf_create();
    json_error_t error;
    straggler_put_json(&text, context, &table->report, table->arena);
    json_t *root = json_loads(text.text, JSON_REJECT_DUPLICATES, &error);
    CHECK(root, "%s: %s", error.text, text.text);
    strbuf_destroy(&text);
    return root;
}

static double number_at(const json_t *object, const char *key, size_t i) {
    const json_t *array = json_object_get(object, key);
    return json_number_value(json_is_array(array) ? json_array_get(array, i) : array);
}

static void check_texts(void) {
    check_begin("an object of the log, and lines");
    Run run;
    CHECK(run_plan(&run, "models/gpt.lua", TINY, N_TINY, &FLAT, 4, false), "%s",
          diag_text(run.diag));
    Table table = make_table(2, 2, 1);
    for (int r = 0; r < 4; r++) table.work[r].device = -1;
    table.work[2].work_seconds[WORK_PRODUCTS] = 0.075;
    for (int r = 1; r < 4; r += 2) table.work[r].message_seconds[MESH_D] = 0.02;
    judge(&table);
    const double predicted = 0.07;
    const StragglerContext context = {.plan = run.plan,
                                      .layout = table.layout,
                                      .work = table.work,
                                      .n_steps = 10,
                                      .bytes = straggler_planned_bytes(run.plan, run.arena),
                                      .predicted_seconds = &predicted};
    json_t *root = check_json(&table, &context);
    CHECK(number_at(root, "steps", 0) == 10 && number_at(root, "ratio", 2) == 1.312 &&
              number_at(root, "work_ms", 2) == 105 && number_at(root, "waiting_ms", 0) == 0 &&
              number_at(root, "stage_ms", 0) == 104 && number_at(root, "predicted_ms", 0) == 70,
          "numbers");
    const json_t *messages = json_object_get(root, "messages");
    const json_t *d = json_object_get(messages, "d");
    CHECK(number_at(d, "groups", 0) == 2 && number_at(d, "of_rank", 0) == 1 &&
              fabs(number_at(d, "median_gb_per_s", 0) / number_at(d, "least_gb_per_s", 0) - 4) <
                  1e-2,
          "messages over d");
    const json_t *named = json_object_get(root, "named");
    const json_t *rank = json_array_get(named, 0), *group = json_array_get(named, 1);
    CHECK(json_array_size(named) == 2 && number_at(rank, "rank", 0) == 2 &&
              strcmp(json_string_value(json_object_get(rank, "class")), "products") == 0 &&
              number_at(rank, "class_ratio", 0) == 1.5 && number_at(rank, "alike", 0) == 3 &&
              strcmp(json_string_value(json_object_get(rank, "device")), "cpu") == 0 &&
              strcmp(json_string_value(json_object_get(group, "messages")), "d") == 0 &&
              strcmp(json_string_value(json_object_get(group, "ranks")), "1, 3") == 0,
          "who is named");
    json_decref(root);
    StrBuf lines = strbuf_create();
    straggler_put_lines(&lines, &context, &table.report, 20, table.arena);
    static const char EXPECTED[] =
        "slow    step 20: rank 2: 105 ms of own work a step, 1.31 times the median of 3 ranks "
        "alike; most in products, 75 ms instead of 50\n"
        "slow    step 20: messages over d of ranks 1, 3: 20 ms a step without waiting, 4.00 times "
        "those alike; ";
    CHECK(strncmp(lines.text, EXPECTED, strlen(EXPECTED)) == 0, "%s", lines.text);
    CHECK(strstr(lines.text, "a step of 100 ms would take about 60\n"), "%s", lines.text);
    strbuf_destroy(&lines);
    arena_destroy(table.arena);
    run_close(&run);
}

static void write_log(const char *path, const char *const *objects, int n, Diag *diag) {
    RunLog *log = run_log_open(path, diag);
    for (int i = 0; i < n && log; i++) {
        StepMetrics metrics = {.step = i + 1, .loss = 3, .stragglers = objects[i]};
        CHECK(run_log_write(log, &metrics, diag), "%s", diag_text(diag));
    }
    CHECK(log, "%s", diag_text(diag));
    run_log_close(log);
}

static void check_log(void) {
    check_begin("a run's log takes it, and its page draws ranks by windows");
    static const char *const OBJECTS[] = {
        NULL,
        "{\"ratio\":[1.0,1.4,null]}",
        "{\"ratio\":[1.0,2.5],\"named\":[]}",
        "{\"ratio\":[\"x\",-1,1e99,true,[1]]}",
        "{\"ratio\":{\"a\":1}}",
        "[1,2]",
        "7",
    };
    enum { N = sizeof(OBJECTS) / sizeof(OBJECTS[0]) };
    Diag *diag = diag_create();
    Arena *arena = arena_create();
    StrBuf page = strbuf_create();
    char path[] = "/tmp/perilune-stragglers-XXXXXX";
    const int fd = mkstemp(path);
    CHECK(fd >= 0, "no file");
    close(fd);
    write_log(path, OBJECTS, N, diag);
    const RunCurve *curve = run_curve_read(arena, path, diag);
    CHECK(curve, "%s", diag_text(diag));
    if (curve) {
        const RunHeat *heat = &curve->heat;
        CHECK(curve->n_steps == N && heat->count == 3 && heat->n_ranks == 5, "%d windows, %d ranks",
              heat->count, heat->n_ranks);
        CHECK(heat->windows[0].step == 2 && heat->windows[0].ratio[1] == 1.4f &&
                  isnan(heat->windows[0].ratio[2]) && isnan(heat->windows[2].ratio[2]),
              "ratios");
    }
    CHECK(show_run_html(&page, path, diag), "%s", diag_text(diag));
    CHECK(strstr(page.text, "<title>rank 1, step 3: 2.50</title>") &&
              strstr(page.text, "fill-opacity=1.00") && strstr(page.text, "full colour: 2.50"),
          "no heat map");
    CHECK(!strstr(page.text, "<title>rank 0, ") && !strstr(page.text, "<title>rank 2, "),
          "ranks that were not above others are drawn");
    page.length = 0;
    write_log(path, OBJECTS + 3, 1, diag);
    CHECK(show_run_html(&page, path, diag) && !strstr(page.text, "<rect class"), "%s",
          diag_text(diag));
    unlink(path);
    strbuf_destroy(&page);
    arena_destroy(arena);
    diag_destroy(diag);
}

int main(void) {
    check_processes();
    check_tables();
    check_small();
    check_noise();
    check_messages();
    check_slow_rank(&FLAT, 2, OP_MATMUL, WORK_PRODUCTS, "rank 2: ");
    check_slow_rank(&DEEP, 1, OP_ATTENTION_GRAD, WORK_ATTENTION, "rank 1, stage 0: ");
    check_slow_rank(&DEEP, 3, OP_ADAMW, WORK_UPDATE, "rank 3, stage 1: ");
    check_slow_messages();
    check_texts();
    check_log();
    return check_report();
}
