#include "frontend/commands/straggler_text.h"

#include "ir/base/json.h"
#include "planner/cost/cost.h"
#include "planner/cost/node_cost.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

enum { MOST_LINES = 4 };

/* --- as planned --- */

static void add_collectives(const Plan *plan, int stage, double *bytes) {
    const Graph *graph = plan->programs[plan->stages[stage].program].graph;
    for (int n = 0; n < graph->n_nodes; n++) {
        CollectiveCost cost;
        const Node *node = graph->nodes[n];
        if (!cost_collective(plan, node, &cost)) continue;
        const bool once = node->phase == PHASE_UPDATE || node_is_once(node);
        const int message = cost.stage_comm >= 0 ? MESSAGE_TIED : cost.mesh_axis;
        if (message >= 0) bytes[message] += cost.bytes * (once ? 1 : plan->n_micro);
    }
}

double *straggler_planned_bytes(const Plan *plan, Arena *arena) {
    double *bytes = ARENA_ARRAY(arena, double, plan->n_stages *N_MESSAGE_CLASSES);
    for (int stage = 0; stage < plan->n_stages; stage++) {
        double *of = bytes + (ptrdiff_t)stage * N_MESSAGE_CLASSES;
        const Stage *list = &plan->stages[stage];
        add_collectives(plan, stage, of);
        for (int t = 0; t < list->n_tasks; t++) {
            const TaskKind kind = list->tasks[t].kind;
            if (kind != TASK_SEND_FORWARD && kind != TASK_SEND_BACKWARD) continue;
            const int channel = plan_find_channel(plan, stage, &list->tasks[t]);
            if (channel < 0) continue;
            of[kind == TASK_SEND_FORWARD ? MESSAGE_SEND_FORWARD : MESSAGE_SEND_BACKWARD] +=
                (double)plan_channel_message_bytes(plan, channel);
        }
    }
    return bytes;
}

/* GB/s; 0: not known. */
static double rate(const StragglerContext *context, int rank, int message, double seconds) {
    const int stage = mesh_coord(&context->layout.mesh, rank).at[MESH_P];
    const double bytes = context->bytes[stage * N_MESSAGE_CLASSES + message];
    return seconds > 0 ? 1e-9 * bytes / seconds : 0;
}

/* --- words --- */

ShownRank straggler_show_rank(const StragglerContext *context, int rank) {
    if (context->control) return control_show_rank(context->control, rank);
    ShownRank shown;
    snprintf(shown.text, sizeof(shown.text), "rank %d", rank);
    return shown;
}

static const char *show_ranks(const StragglerContext *context, const Straggler *straggler,
                              Arena *arena) {
    const int n_ranks = mesh_rank_count(&context->layout.mesh);
    bool *flags = ARENA_ARRAY(arena, bool, n_ranks);
    StrBuf text = strbuf_create();
    straggler_put_ranks(&context->layout, straggler->message, straggler->rank, flags);
    control_put_ranks(&text, flags, n_ranks);
    const char *kept = arena_strdup(arena, text.text);
    strbuf_destroy(&text);
    return kept;
}

static void put_rank(StrBuf *out, const StragglerContext *context, const Straggler *straggler) {
    const int64_t device = context->work[straggler->rank].device;
    const int stage = mesh_coord(&context->layout.mesh, straggler->rank).at[MESH_P];
    strbuf_printf(out, "%s", straggler_show_rank(context, straggler->rank).text);
    if (device >= 0) strbuf_printf(out, ", GPU %" PRId64, device);
    if (context->layout.mesh.size[MESH_P] > 1) strbuf_printf(out, ", stage %d", stage);
    strbuf_printf(out, ": %.3g ms of own work a step, ", 1e3 * straggler->seconds);
    if (straggler->n_alike > 1) {
        strbuf_printf(out, "%.2f times the median of %d ranks alike",
                      straggler->seconds / straggler->median_seconds, straggler->n_alike);
    } else {
        strbuf_printf(out, "%.2f times that of the rank alike",
                      straggler->seconds / straggler->median_seconds);
    }
    strbuf_printf(out, "; most in %s, %.3g ms instead of %.3g", work_class_name(straggler->class),
                  1e3 * straggler->class_seconds, 1e3 * straggler->class_median_seconds);
}

static void put_message(StrBuf *out, const StragglerContext *context, const Straggler *straggler,
                        Arena *arena) {
    const double own = rate(context, straggler->rank, straggler->message, straggler->seconds);
    const double others =
        rate(context, straggler->rank, straggler->message, straggler->median_seconds);
    strbuf_printf(out, "messages over %s of ranks %s: %.3g ms a step without waiting, ",
                  straggler_message_name(straggler->message), show_ranks(context, straggler, arena),
                  1e3 * straggler->seconds);
    strbuf_printf(out, "%.2f times ", straggler->seconds / straggler->median_seconds);
    if (straggler->n_alike > 1) {
        strbuf_printf(out, "the median of %d others", straggler->n_alike);
    } else {
        strbuf_put(out, "those alike");
    }
    if (own > 0) strbuf_printf(out, "; %.3g GB/s instead of %.3g", own, others);
}

void straggler_put_lines(StrBuf *out, const StragglerContext *context,
                         const StragglerReport *report, int64_t step, Arena *arena) {
    const int n = report->n_stragglers < MOST_LINES ? report->n_stragglers : MOST_LINES;
    for (int i = 0; i < n; i++) {
        const Straggler *straggler = &report->stragglers[i];
        strbuf_printf(out, "slow    step %" PRId64 ": ", step);
        if (straggler->message < 0) {
            put_rank(out, context, straggler);
        } else {
            put_message(out, context, straggler, arena);
        }
        if (i + 1 < n) {
            strbuf_put(out, "\n");
            continue;
        }
        if (report->n_stragglers > n) {
            strbuf_printf(out, "; and %d more", report->n_stragglers - n);
        }
        strbuf_printf(out, "; a step of %.3g ms would take about %.3g\n",
                      1e3 * report->step_seconds, 1e3 * report->without_seconds);
    }
}

/* --- JSON --- */

static void put_number(StrBuf *out, double x, const char *format) {
    char text[48];
    snprintf(text, sizeof(text), format, x);
    strbuf_put(out, isfinite(x) ? text : "null");
}

static void put_array(StrBuf *out, const char *key, const double *values, int n, double scale,
                      const char *format) {
    strbuf_printf(out, ",\"%s\":[", key);
    for (int i = 0; i < n; i++) {
        if (i) strbuf_put(out, ",");
        put_number(out, scale * values[i], format);
    }
    strbuf_put(out, "]");
}

static void put_messages(StrBuf *out, const StragglerContext *context,
                         const StragglerReport *report) {
    int n = 0;
    for (int message = 0; message < N_MESSAGE_CLASSES; message++) {
        const MessageFigures *figures = &report->messages[message];
        if (!figures->n_groups) continue;
        strbuf_printf(out, n++ ? "," : ",\"messages\":{");
        json_put_text(out, straggler_message_name(message));
        strbuf_printf(out, ":{\"groups\":%d,\"median_gb_per_s\":%.4g,\"least_gb_per_s\":%.4g,",
                      figures->n_groups,
                      rate(context, figures->slowest, message, figures->median_seconds),
                      rate(context, figures->slowest, message, figures->slowest_seconds));
        strbuf_printf(out, "\"of_rank\":%d}", figures->slowest);
    }
    if (n) strbuf_put(out, "}");
}

static void put_named(StrBuf *out, const StragglerContext *context, const Straggler *straggler,
                      Arena *arena) {
    const double ratio = straggler->seconds / straggler->median_seconds;
    if (straggler->message >= 0) {
        strbuf_printf(out,
                      "{\"ranks\":\"%s\",\"messages\":", show_ranks(context, straggler, arena));
        json_put_text(out, straggler_message_name(straggler->message));
        strbuf_printf(out, ",\"ratio\":%.4g,\"ms\":%.4g,\"median_ms\":%.4g,\"alike\":%d}", ratio,
                      1e3 * straggler->seconds, 1e3 * straggler->median_seconds,
                      straggler->n_alike);
        return;
    }
    const int64_t device = context->work[straggler->rank].device;
    strbuf_printf(out, "{\"rank\":%d,\"who\":", straggler->rank);
    json_put_text(out, straggler_show_rank(context, straggler->rank).text);
    if (device >= 0) {
        strbuf_printf(out, ",\"device\":\"cuda:%" PRId64 "\"", device);
    } else {
        strbuf_put(out, ",\"device\":\"cpu\"");
    }
    strbuf_printf(out,
                  ",\"stage\":%d,\"ratio\":%.4g,\"work_ms\":%.4g,\"median_ms\":%.4g,\"alike\":%d,"
                  "\"class\":\"%s\",\"class_ratio\":",
                  mesh_coord(&context->layout.mesh, straggler->rank).at[MESH_P], ratio,
                  1e3 * straggler->seconds, 1e3 * straggler->median_seconds, straggler->n_alike,
                  work_class_name(straggler->class));
    put_number(out, straggler->class_seconds / straggler->class_median_seconds, "%.4g");
    strbuf_put(out, "}");
}

void straggler_put_json(StrBuf *out, const StragglerContext *context, const StragglerReport *report,
                        Arena *arena) {
    const int n_stages = context->plan->n_stages;
    strbuf_printf(out, "{\"steps\":%" PRId64 ",\"step_ms\":%.4g,\"without_ms\":%.4g",
                  context->n_steps, 1e3 * report->step_seconds, 1e3 * report->without_seconds);
    put_array(out, "ratio", report->ratio, report->n_ranks, 1, "%.3f");
    put_array(out, "work_ms", report->own_seconds, report->n_ranks, 1e3, "%.4g");
    put_array(out, "waiting_ms", report->waiting_seconds, report->n_ranks, 1e3, "%.4g");
    put_array(out, "stage_ms", straggler_stage_seconds(context, report, arena), n_stages, 1e3,
              "%.4g");
    if (context->predicted_seconds) {
        put_array(out, "predicted_ms", context->predicted_seconds, n_stages, 1e3, "%.4g");
    }
    put_messages(out, context, report);
    strbuf_put(out, ",\"named\":[");
    for (int i = 0; i < report->n_stragglers; i++) {
        if (i) strbuf_put(out, ",");
        put_named(out, context, &report->stragglers[i], arena);
    }
    strbuf_put(out, "]}");
}

/* --- by stage --- */

static int by_size(const void *a, const void *b) {
    const double *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

double *straggler_stage_seconds(const StragglerContext *context, const StragglerReport *report,
                                Arena *arena) {
    const Mesh *mesh = &context->layout.mesh;
    const int n_stages = mesh->size[MESH_P];
    double *medians = ARENA_ARRAY(arena, double, n_stages);
    double *values = ARENA_ARRAY(arena, double, report->n_ranks);
    for (int stage = 0; stage < n_stages; stage++) {
        int n = 0;
        for (int rank = 0; rank < report->n_ranks; rank++) {
            if (mesh_coord(mesh, rank).at[MESH_P] != stage) continue;
            values[n++] = report->own_seconds[rank] + report->message_seconds[rank] -
                          context->work[rank].work_seconds[WORK_DATA];
        }
        qsort(values, (size_t)n, sizeof(*values), by_size);
        medians[stage] = (values[(n - 1) / 2] + values[n / 2]) / 2;
    }
    return medians;
}
