#include "frontend/commands/train_stragglers.h"

#include "frontend/commands/straggler_text.h"
#include "ir/base/clock.h"
#include "ir/base/hash.h"
#include "planner/simulate/simulate.h"

#include <inttypes.h>
#include <math.h>

enum { MOST_COUNTED = 3 }; /* ranks that the run's end tells of */

bool train_stragglers_from_args(const CliArgs *args, TrainStragglers *out, Diag *diag) {
    *out =
        (TrainStragglers){.every = cli_int(args, OPT_STRAGGLERS, 0),
                          .threshold = cli_real(args, OPT_STRAGGLER_THRESHOLD, STRAGGLER_THRESHOLD),
                          .arena = args->arena,
                          .slowest = -1};
    if (cli_given(args, OPT_STRAGGLER_THRESHOLD) && !out->every) {
        diag_error(diag, NO_LOC,
                   "train: --straggler-threshold: says whom --stragglers N names; give both");
        return false;
    }
    if (out->every) out->json = strbuf_create();
    return true;
}

bool train_stragglers_predict(TrainStragglers *stragglers, const Plan *plan, const Device *device,
                              Diag *diag) {
    const Simulation *sim = simulate_plan(stragglers->arena, plan, device, diag);
    if (!sim) return false;
    double *seconds = ARENA_ARRAY(stragglers->arena, double, plan->n_stages);
    for (int s = 0; s < plan->n_stages; s++) seconds[s] = 1e-6 * sim->stages[s].busy_us;
    stragglers->predicted_seconds = seconds;
    stragglers->predicted_plan = plan;
    stragglers->predicted_with = device->profile;
    return true;
}

static void clear_window(TrainStragglers *stragglers) {
    stragglers->n_steps = stragglers->n_timed = stragglers->n_measured = 0;
    stragglers->step_seconds = stragglers->data_seconds = 0;
}

/* Where a ramp goes on to another plan, a window begins with it. */
static void follow_plan(TrainStragglers *stragglers, const Plan *plan) {
    if (stragglers->plan == plan) return;
    stragglers->plan = plan;
    stragglers->bytes = straggler_planned_bytes(plan, stragglers->arena);
    clear_window(stragglers);
    if (stragglers->times) return;
    stragglers->n_ranks = mesh_rank_count(&plan->mesh);
    stragglers->times = ARENA_ARRAY(stragglers->arena, int64_t, stragglers->n_ranks);
    stragglers->stage_seconds = ARENA_ARRAY(stragglers->arena, double, plan->n_stages);
}

void train_stragglers_begin(TrainStragglers *stragglers, Engine *engine, const Plan *plan,
                            int64_t step, bool is_first) {
    if (!stragglers->every) return;
    follow_plan(stragglers, plan);
    const bool ends = step % stragglers->every == 0;
    stragglers->is_first = is_first;
    stragglers->measures = engine_measures_for_free(engine) ? !is_first || ends : ends;
    engine_set_measuring(engine, stragglers->measures);
}

/* What a step takes is seen in those that are neither the run's first nor, where measuring costs
 * something, measured; unless there are no others. */
static void count_step(TrainStragglers *stragglers, const Engine *engine,
                       const StepMetrics *metrics, double data_seconds) {
    const bool typical =
        !stragglers->is_first && (!stragglers->measures || engine_measures_for_free(engine));
    stragglers->n_steps++;
    stragglers->n_measured += stragglers->measures;
    if (!typical && (stragglers->n_timed || !stragglers->measures)) return;
    stragglers->n_timed++;
    stragglers->step_seconds += metrics->seconds;
    stragglers->data_seconds += data_seconds;
}

/* In whatever order; 0: nobody. */
static uint64_t hash_named(const StragglerReport *report) {
    uint64_t hash = 0;
    for (int i = 0; i < report->n_stragglers; i++) {
        const int who[] = {report->stragglers[i].rank, report->stragglers[i].message};
        hash += hash_bytes(who, sizeof(who), 1);
    }
    return report->n_stragglers ? hash | 1 : 0;
}

/* Where others are named than by the last window. */
static void tell(TrainStragglers *stragglers, const StragglerContext *context,
                 const StragglerReport *report, int64_t step, Progress *progress, Arena *arena) {
    const uint64_t named = hash_named(report);
    if (named == stragglers->last_named) return;
    StrBuf text = strbuf_create();
    if (named) {
        straggler_put_lines(&text, context, report, step, arena);
    } else {
        strbuf_printf(&text, "slow    step %" PRId64 ": nobody any more\n", step);
    }
    progress_finish(progress);
    fputs(text.text, stderr);
    strbuf_destroy(&text);
    stragglers->last_named = named;
}

static void count_named(TrainStragglers *stragglers, const StragglerReport *report) {
    bool messages = false;
    for (int i = 0; i < report->n_stragglers; i++) {
        const Straggler *straggler = &report->stragglers[i];
        if (straggler->message < 0) stragglers->times[straggler->rank]++;
        messages |= straggler->message >= 0;
    }
    stragglers->message_times += messages;
    if (report->slowest < 0) return;
    const double ratio = report->ratio[report->slowest];
    if (stragglers->slowest >= 0 && ratio <= stragglers->slowest_ratio) return;
    stragglers->slowest = report->slowest;
    stragglers->slowest_ratio = ratio;
}

static void judge(TrainStragglers *stragglers, const RankWork *work, StepMetrics *metrics,
                  Progress *progress, bool quiet, Arena *arena) {
    const Plan *plan = stragglers->plan;
    const StragglerContext context = {.plan = plan,
                                      .layout = straggler_layout(plan, stragglers->threshold),
                                      .control = stragglers->options->control,
                                      .work = work,
                                      .n_steps = stragglers->n_steps,
                                      .bytes = stragglers->bytes,
                                      .predicted_seconds = plan == stragglers->predicted_plan
                                                               ? stragglers->predicted_seconds
                                                               : NULL};
    const StragglerReport report = find_stragglers(&context.layout, work, arena);
    const double *seconds = straggler_stage_seconds(&context, &report, arena);
    for (int s = 0; s < plan->n_stages; s++) stragglers->stage_seconds[s] = seconds[s];
    stragglers->n_windows++;
    count_named(stragglers, &report);
    if (!quiet) tell(stragglers, &context, &report, metrics->step, progress, arena);
    stragglers->json.length = 0;
    straggler_put_json(&stragglers->json, &context, &report, arena);
    metrics->stragglers = stragglers->json.text;
    if (report.slowest >= 0) metrics->slowest_ratio = report.ratio[report.slowest];
}

bool train_stragglers_end(TrainStragglers *stragglers, Engine *engine, StepMetrics *metrics,
                          double data_seconds, Progress *progress, bool quiet, Diag *diag) {
    if (!stragglers->every) return true;
    count_step(stragglers, engine, metrics, data_seconds);
    if (metrics->step % stragglers->every != 0 || !stragglers->n_measured) return true;
    const double begun = clock_now();
    const EngineOptions *options = stragglers->options;
    const double n_timed = stragglers->n_timed ? (double)stragglers->n_timed : 1;
    /* Of one process all ranks wait for the same samples. */
    const HostWork host = {.step_seconds = stragglers->step_seconds / n_timed,
                           .data_seconds =
                               options->control ? stragglers->data_seconds / n_timed : 0,
                           .device = options->device == DEVICE_CUDA ? options->device_ordinal : -1};
    Arena *arena = arena_create();
    RankWork *work = ARENA_ARRAY(arena, RankWork, stragglers->n_ranks);
    const bool good = engine_gather_work(engine, &host, work, diag);
    if (good && options->rank == 0) judge(stragglers, work, metrics, progress, quiet, arena);
    arena_destroy(arena);
    clear_window(stragglers);
    stragglers->seconds += clock_now() - begun;
    return good;
}

static void print_named(const TrainStragglers *stragglers) {
    int64_t *left = ARENA_ARRAY(stragglers->arena, int64_t, stragglers->n_ranks);
    int n_named = 0, n_told = 0;
    for (int r = 0; r < stragglers->n_ranks; r++) {
        left[r] = stragglers->times[r];
        n_named += left[r] > 0;
    }
    for (; n_told < n_named && n_told < MOST_COUNTED; n_told++) {
        int most = 0;
        for (int r = 1; r < stragglers->n_ranks; r++) {
            if (left[r] > left[most]) most = r;
        }
        const StragglerContext context = {.control = stragglers->options->control};
        printf("%s%s named %" PRId64 " time%s", n_told ? ", " : "",
               straggler_show_rank(&context, most).text, left[most], left[most] == 1 ? "" : "s");
        left[most] = 0;
    }
    if (n_named > n_told) printf(", %d more", n_named - n_told);
    if (stragglers->message_times) {
        printf("%smessages named %" PRId64 " time%s", n_told ? ", " : "", stragglers->message_times,
               stragglers->message_times == 1 ? "" : "s");
    }
    if (!n_named && !stragglers->message_times) printf("nobody named");
}

/* Of the stage that has most to do. */
static void print_predicted(const TrainStragglers *stragglers) {
    int busiest = 0;
    if (!stragglers->predicted_seconds || stragglers->plan != stragglers->predicted_plan) return;
    for (int s = 1; s < stragglers->plan->n_stages; s++) {
        if (stragglers->stage_seconds[s] > stragglers->stage_seconds[busiest]) busiest = s;
    }
    printf("work    %.2f ms a step", 1e3 * stragglers->stage_seconds[busiest]);
    if (stragglers->plan->n_stages > 1) printf(" in stage %d, which has most", busiest);
    printf("; predicted with %s: %.2f\n", stragglers->predicted_with,
           1e3 * stragglers->predicted_seconds[busiest]);
}

void train_stragglers_print(const TrainStragglers *stragglers) {
    if (!stragglers->every) return;
    if (!stragglers->n_windows) {
        printf("ranks   not compared: that takes %" PRId64 " steps\n", stragglers->every);
        return;
    }
    printf("ranks   compared %" PRId64 " time%s, in %.2f s: ", stragglers->n_windows,
           stragglers->n_windows == 1 ? "" : "s", stragglers->seconds);
    print_named(stragglers);
    if (stragglers->slowest >= 0) {
        const StragglerContext context = {.control = stragglers->options->control};
        printf("; most work in %s, %.2f times that of ranks alike",
               straggler_show_rank(&context, stragglers->slowest).text, stragglers->slowest_ratio);
    } else {
        printf("; no two ranks do the same work");
    }
    printf("\n");
    print_predicted(stragglers);
}

void train_stragglers_close(TrainStragglers *stragglers) {
    if (stragglers->every) strbuf_destroy(&stragglers->json);
}
