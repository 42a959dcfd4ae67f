/* The predicted step as an SVG: a lane per stage, a box per forward and backward.
 *
 * Positions are percentages, so zooming is only a wider svg; a label is marked with the zoom from
 * which it fits (z1, z2, z4 ...) and style rules show it. A plan of any size gives a page of a few
 * megabytes at most: what is left out is said.
 */
#include "planner/show/show_html.h"
#include "planner/show/trace.h"

#include <math.h>

enum {
    MAX_LANES = 16,
    MAX_BOXES = 8400, /* boxes in all; about 250 bytes each */
    MAX_WIRES = 8400,
    MAX_ZOOM = 128,
    LANE_PX = 24,
    LANE_STEP_PX = 30,
    VIEW_PX = 1120, /* the drawing's width at zoom 1 on a 1280 px screen */
};

typedef struct View {
    const Timeline *of;
    int n_lanes, lanes[MAX_LANES]; /* stages drawn */
    int *lane_of;                  /* [stage], -1: not drawn */
    int n_head;                    /* tasks drawn at each end of a list, if not all */
    int zoom_most;
    double step_us;
} View;

static double percent(const View *view, double us) {
    return view->step_us > 0 ? 100 * us / view->step_us : 0;
}

/* Zoom from which `text_px` of text fit into a box of `us`; above MAX_ZOOM: never. */
static int zoom_for(const View *view, double us, double text_px) {
    double px = percent(view, us) / 100 * VIEW_PX;
    int zoom = 1;
    while (zoom <= MAX_ZOOM && px * zoom < text_px) zoom *= 2;
    return zoom;
}

static View view_create(const Timeline *of, int *lane_of) {
    View view = {.of = of, .lane_of = lane_of, .step_us = of->step_us, .zoom_most = 1};
    int n_most = MAX_LANES, n_tasks = 1, n_boxes = 1;
    for (int stage = 0; stage < of->n_stages; stage++) {
        const TimelineStage *list = &of->stages[stage];
        int n = 0;
        for (int i = 0; i < list->n_tasks; i++) n += task_is_compute(&list->tasks[i]);
        if (n > n_boxes) n_boxes = n;
        if (list->n_tasks > n_tasks) n_tasks = list->n_tasks;
    }
    if (n_boxes > MAX_BOXES / n_most) n_most = MAX_BOXES / n_boxes > 3 ? MAX_BOXES / n_boxes : 3;
    view.n_lanes = html_pick_stages(of->n_stages, n_most, view.lanes);
    view.n_head = n_tasks;
    if (n_boxes > MAX_BOXES / view.n_lanes) view.n_head = MAX_BOXES / view.n_lanes; /* ~4 a box */
    for (int stage = 0; stage < of->n_stages; stage++) lane_of[stage] = -1;
    for (int lane = 0; lane < view.n_lanes; lane++) lane_of[view.lanes[lane]] = lane;
    double least_us = of->least_us > 0 && of->least_us < of->step_us ? of->least_us : of->step_us;
    view.zoom_most = zoom_for(&view, least_us, 40);
    if (view.zoom_most < 4) view.zoom_most = 4;
    if (view.zoom_most > MAX_ZOOM) view.zoom_most = MAX_ZOOM;
    return view;
}

static bool is_drawn(const View *view, int stage, int task) {
    int n_tasks = view->of->stages[stage].n_tasks;
    return task < view->n_head || task >= n_tasks - view->n_head;
}

static void put_label(StrBuf *out, const View *view, const TaskSpan *span, int y_px,
                      const char *text, int n_letters) {
    int zoom = zoom_for(view, span->end_us - span->start_us, 7.0 * n_letters + 7);
    if (zoom > view->zoom_most) return;
    strbuf_printf(out, "<text class=\"t z%d\" x=\"%.4f%%\" y=\"%d\">%s</text>", zoom,
                  percent(view, (span->start_us + span->end_us) / 2), y_px + 16, text);
}

/* What to draw of a task: an update's waiting for other stages comes first and is left out. */
static TaskSpan drawn_span(const View *view, int stage, int index) {
    const TimelineStage *list = &view->of->stages[stage];
    TaskSpan span = list->spans[index];
    if (list->tasks[index].kind != TASK_UPDATE || list->update_us <= 0) return span;
    if (span.end_us - list->update_us > span.start_us) {
        span.start_us = span.end_us - list->update_us;
    }
    return span;
}

static void put_box(StrBuf *out, const View *view, int stage, int index, int y_px) {
    const Task *task = &view->of->stages[stage].tasks[index];
    const TaskSpan drawn = drawn_span(view, stage, index), *span = &drawn;
    char name[40], start[UNIT_TEXT], length[UNIT_TEXT], css[16], label[16];
    trace_task_name(task, name, sizeof(name));
    int n_letters = 1;
    if (task->kind == TASK_UPDATE) {
        snprintf(css, sizeof(css), "U");
        snprintf(label, sizeof(label), "update");
        n_letters = 6;
    } else {
        snprintf(css, sizeof(css), "%s%d%d", task_kind_word((TaskKind)task->kind), task->chunk,
                 task->micro % 3);
        n_letters = snprintf(label, sizeof(label), "%d", task->micro);
    }
    strbuf_printf(out,
                  "<rect class=\"%s\" x=\"%.4f%%\" y=\"%d\" width=\"%.4f%%\">"
                  "<title>%s · stage %d\n%s from %s</title></rect>",
                  css, percent(view, span->start_us), y_px,
                  percent(view, span->end_us - span->start_us), name, stage,
                  unit_us(span->end_us - span->start_us, length), unit_us(span->start_us, start));
    put_label(out, view, span, y_px, label, n_letters);
}

/* A hatched box where tasks of a very long list are left out. */
static void put_cut(StrBuf *out, const View *view, int stage, int y_px) {
    int n_tasks = view->of->stages[stage].n_tasks;
    if (n_tasks <= 2 * view->n_head) return;
    double from = view->of->stages[stage].spans[view->n_head].start_us;
    double to = view->of->stages[stage].spans[n_tasks - view->n_head].start_us;
    strbuf_printf(out,
                  "<rect class=\"cut\" x=\"%.4f%%\" y=\"%d\" width=\"%.4f%%\"><title>%d tasks are "
                  "not drawn</title></rect>",
                  percent(view, from), y_px, percent(view, to - from), n_tasks - 2 * view->n_head);
}

/* Messages of axis d: a thin bar, because tasks may run beside them. */
static void put_data(StrBuf *out, const View *view, const TaskSpan *span, int stage, int y_px) {
    char start[UNIT_TEXT], length[UNIT_TEXT];
    double us = span->end_us - span->start_us;
    if (us <= 0) return;
    strbuf_printf(out,
                  "<rect class=\"D\" x=\"%.4f%%\" y=\"%d\" width=\"%.4f%%\"><title>gradients over "
                  "d · stage %d\n%s from %s</title></rect>",
                  percent(view, span->start_us), y_px + LANE_PX - 6, percent(view, us), stage,
                  unit_us(us, length), unit_us(span->start_us, start));
}

static void put_lane(StrBuf *out, const View *view, int lane) {
    int stage = view->lanes[lane], y_px = lane * LANE_STEP_PX;
    const TimelineStage *list = &view->of->stages[stage];
    for (int i = 0; i < list->n_tasks; i++) {
        if (task_is_compute(&list->tasks[i]) && is_drawn(view, stage, i)) {
            put_box(out, view, stage, i, y_px);
        }
    }
    put_cut(out, view, stage, y_px);
    for (int chunk = 0; view->of->data_spans && chunk < view->of->n_chunks; chunk++) {
        put_data(out, view, &view->of->data_spans[stage * view->of->n_chunks + chunk], stage, y_px);
    }
    strbuf_put(out, "\n");
}

/* Messages between stages that are both drawn. Returns how many there are and are not drawn. */
static int put_wires(StrBuf *out, const View *view) {
    const Timeline *of = view->of;
    int n_drawn = 0;
    for (int i = 0; i < of->n_messages; i++) {
        const MessageSpan *message = &of->messages[i];
        const TimelineLink *link = &of->links[message->channel];
        int from = view->lane_of[link->from], to = view->lane_of[link->to];
        if (from < 0 || to < 0 || n_drawn == MAX_WIRES) continue;
        if (!is_drawn(view, link->from, message->from_task) ||
            !is_drawn(view, link->to, message->to_task)) {
            continue;
        }
        int from_px = from * LANE_STEP_PX + (from < to ? LANE_PX : 0);
        int to_px = to * LANE_STEP_PX + (from < to ? 0 : LANE_PX);
        strbuf_printf(out, "<line class=\"%s\" x1=\"%.4f%%\" y1=\"%d\" x2=\"%.4f%%\" y2=\"%d\"/>",
                      link->backward ? "wb" : "wf", percent(view, message->start_us), from_px,
                      percent(view, message->arrive_us), to_px);
        n_drawn++;
    }
    strbuf_put(out, "\n");
    return of->n_messages - n_drawn;
}

/* 1, 2 or 5 times a power of ten, at least `us`. */
static double nice_step(double us) {
    double power = pow(10, floor(log10(us)));
    double ratio = us / power;
    return power * (ratio <= 1 ? 1 : ratio <= 2 ? 2 : ratio <= 5 ? 5 : 10);
}

/* Lines and times along the bottom; finer ones halve the step for each doubling of the zoom. */
static void put_axis(StrBuf *out, const View *view) {
    if (view->step_us <= 0) return;
    int bottom_px = view->n_lanes * LANE_STEP_PX;
    int parts = view->zoom_most > 16 ? 16 : view->zoom_most;
    double large_us = view->step_us > 3 * 3600e6 ? 3600e6 : view->step_us > 600e6 ? 60e6 : 1;
    double step_us = nice_step(view->step_us / 8 / large_us) * large_us;
    int n_ticks = (int)(view->step_us / step_us * parts);
    for (int i = 0; i <= n_ticks; i++) {
        int zoom = parts;
        for (int k = i; zoom > 1 && k % 2 == 0; k /= 2) zoom /= 2;
        if (i == 0) zoom = 1;
        char text[UNIT_TEXT];
        double at = percent(view, i * step_us / parts);
        if (at > 96.5 && i > 0) continue; /* the text would be cut off */
        if (zoom == 1) {
            strbuf_printf(out,
                          "<line class=\"tick\" x1=\"%.4f%%\" x2=\"%.4f%%\" y1=\"0\" "
                          "y2=\"%d\"/>",
                          at, at, bottom_px + 4);
        }
        strbuf_printf(out, "<text class=\"a z%d\" x=\"%.4f%%\" y=\"%d\"%s>%s</text>", zoom, at,
                      bottom_px + 16, i ? " text-anchor=\"middle\"" : "",
                      unit_us(i * step_us / parts, text));
    }
    strbuf_put(out, "\n");
}

static bool has_weights(const Timeline *of) {
    for (int i = 0; of->n_stages && i < of->stages[0].n_tasks; i++) {
        if (of->stages[0].tasks[i].kind == TASK_WEIGHTS) return true;
    }
    return false;
}

static void put_legend(StrBuf *out, const View *view) {
    static const char *const KINDS[] = {"forward", "backward", "gradients of weights"};
    int n_chunks = view->of->n_chunks, n_kinds = has_weights(view->of) ? 3 : 2;
    strbuf_put(out, "<div class=\"legend\">");
    for (int chunk = 0; chunk < n_chunks; chunk++) {
        for (int kind = 0; kind < n_kinds; kind++) {
            strbuf_printf(out, "<span><i class=\"%c%d1\"></i>%s", "FBW"[kind], chunk, KINDS[kind]);
            if (n_chunks > 1) strbuf_printf(out, " %d", chunk);
            strbuf_put(out, "</span>");
        }
    }
    strbuf_put(out, "<span><i class=\"k-update\"></i>update</span><span><i class=\"k-idle\"></i>"
                    "waiting or sending</span>");
    if (view->of->data_spans) {
        strbuf_put(out, "<span><i class=\"k-message\"></i>gradients over d</span>");
    }
    strbuf_put(out, "</div>\n");
}

static void put_omissions(StrBuf *out, const View *view, int n_wires_left) {
    int n_stages = view->of->n_stages;
    bool all_lanes = view->n_lanes == n_stages;
    if (all_lanes && n_wires_left == 0) return;
    strbuf_put(out, "<p class=\"note\">");
    if (!all_lanes) {
        strbuf_printf(out, "%d of %d stages are drawn, evenly spaced. ", view->n_lanes, n_stages);
    }
    if (n_wires_left > 0) {
        strbuf_printf(out, "%d of %d messages are not drawn.", n_wires_left, view->of->n_messages);
    }
    strbuf_put(out, "</p>");
}

void html_put_timeline(StrBuf *out, const Timeline *of) {
    Arena *arena = arena_create();
    View created = view_create(of, ARENA_ARRAY(arena, int, of->n_stages)), *view = &created;
    strbuf_put(
        out,
        "<section id=\"timeline\"><div class=\"tools\"><button id=\"zl\" aria-label=\"zoom "
        "out\">−</button><button id=\"zf\" aria-label=\"fit\">1×</button>"
        "<button id=\"zm\" aria-label=\"zoom in\">+</button></div><h2>Timeline of one step</h2>"
        "<p class=\"lead\">Each lane is a pipeline stage, each number a micro-batch; lines "
        "are messages between stages.</p>\n");
    put_legend(out, view);
    strbuf_printf(out,
                  "<div class=\"tl\" id=\"tl\" data-zoom=\"1\" data-most=\"%d\">"
                  "<div class=\"names\">",
                  view->zoom_most);
    for (int lane = 0; lane < view->n_lanes; lane++) {
        strbuf_printf(out, "<div>stage %d</div>", view->lanes[lane]);
    }
    strbuf_printf(out,
                  "</div><div class=\"view\" tabindex=\"0\"><svg height=\"%d\" role=\"img\" "
                  "aria-label=\"timeline\">\n",
                  view->n_lanes * LANE_STEP_PX + 24);
    put_axis(out, view);
    for (int lane = 0; lane < view->n_lanes; lane++) {
        strbuf_printf(out, "<rect class=\"lane\" x=\"0\" y=\"%d\" width=\"100%%\"/>",
                      lane * LANE_STEP_PX);
    }
    int n_wires_left = put_wires(out, view); /* below the boxes: some cross many lanes */
    for (int lane = 0; lane < view->n_lanes; lane++) put_lane(out, view, lane);
    strbuf_put(out, "</svg></div></div>\n");
    put_omissions(out, view, n_wires_left);
    html_close_section(out);
    arena_destroy(arena);
}

void html_put_plan_timeline(StrBuf *out, const Facts *facts) {
    const Plan *plan = facts->plan;
    const Simulation *sim = facts->sim;
    Timeline of = {.n_stages = plan->n_stages,
                   .n_chunks = plan->n_chunks,
                   .step_us = sim->step_us,
                   .least_us = sim->step_us,
                   .n_messages = sim->n_messages,
                   .messages = sim->messages};
    TimelineStage *stages = ARENA_ARRAY(facts->arena, TimelineStage, plan->n_stages);
    for (int stage = 0; stage < plan->n_stages; stage++) {
        const Stage *list = &plan->stages[stage];
        const ProgramCost *cost = &sim->costs[list->program];
        stages[stage] = (TimelineStage){.n_tasks = list->n_tasks,
                                        .tasks = list->tasks,
                                        .spans = simulation_span(sim, stage, 0)};
        for (int i = 0; i < N_UPDATE_PARTS; i++) stages[stage].update_us += cost->update[i].us;
        for (int chunk = 0; chunk < plan->n_chunks; chunk++) {
            double us = cost->forward[chunk].us;
            if (us > 0 && us < of.least_us) of.least_us = us;
        }
    }
    TimelineLink *links = ARENA_ARRAY(facts->arena, TimelineLink, plan->n_channels + 1);
    for (int i = 0; i < plan->n_channels; i++) {
        const Channel *channel = &plan->channels[i];
        links[i] = (TimelineLink){channel->from, channel->to, channel->backward};
    }
    of.stages = stages;
    of.links = links;
    html_put_timeline(out, &of);
}
