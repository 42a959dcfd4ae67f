/* The predicted step as an SVG: a lane per stage, a box per forward and backward.
 *
 * Positions are percentages, so zooming is only a wider svg; a label is marked with the zoom from
 * which it fits (z1, z2, z4 ...) and style rules show it. A plan of any size gives a page of a few
 * megabytes at most: what is left out is said.
 */
#include "planner/show_html.h"
#include "planner/trace.h"

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

typedef struct Timeline {
    const Facts *facts;
    int n_lanes, lanes[MAX_LANES]; /* stages drawn */
    int *lane_of;                  /* [stage], -1: not drawn */
    int n_head;                    /* tasks drawn at each end of a list, if not all */
    int zoom_most;
    double step_us;
} Timeline;

static double percent(const Timeline *tl, double us) {
    return tl->step_us > 0 ? 100 * us / tl->step_us : 0;
}

/* Zoom from which `text_px` of text fit into a box of `us`; above MAX_ZOOM: never. */
static int zoom_for(const Timeline *tl, double us, double text_px) {
    double px = percent(tl, us) / 100 * VIEW_PX;
    int zoom = 1;
    while (zoom <= MAX_ZOOM && px * zoom < text_px) zoom *= 2;
    return zoom;
}

static Timeline timeline_create(const Facts *facts) {
    const Plan *plan = facts->plan;
    Timeline tl = {.facts = facts, .step_us = facts->sim->step_us, .zoom_most = 1};
    int n_most = MAX_LANES, n_tasks = 1;
    for (int stage = 0; stage < plan->n_stages; stage++) {
        int n = plan->stages[stage].n_tasks;
        if (n > n_tasks) n_tasks = n;
    }
    int n_boxes = 2 * plan->n_micro * plan->n_chunks + 1;
    if (n_boxes > MAX_BOXES / n_most) n_most = MAX_BOXES / n_boxes > 3 ? MAX_BOXES / n_boxes : 3;
    tl.n_lanes = html_pick_stages(plan->n_stages, n_most, tl.lanes);
    tl.n_head = n_tasks;
    if (n_boxes > MAX_BOXES / tl.n_lanes) tl.n_head = MAX_BOXES / tl.n_lanes; /* of ~4 per box */
    tl.lane_of = ARENA_ARRAY(facts->arena, int, plan->n_stages);
    for (int stage = 0; stage < plan->n_stages; stage++) tl.lane_of[stage] = -1;
    for (int lane = 0; lane < tl.n_lanes; lane++) tl.lane_of[tl.lanes[lane]] = lane;
    double least_us = tl.step_us;
    for (int i = 0; i < plan->n_programs; i++) {
        for (int chunk = 0; chunk < plan->n_chunks; chunk++) {
            double us = facts->sim->costs[i].forward[chunk].us;
            if (us > 0 && us < least_us) least_us = us;
        }
    }
    tl.zoom_most = zoom_for(&tl, least_us, 40);
    if (tl.zoom_most < 4) tl.zoom_most = 4;
    if (tl.zoom_most > MAX_ZOOM) tl.zoom_most = MAX_ZOOM;
    return tl;
}

static bool is_drawn(const Timeline *tl, int stage, int task) {
    int n_tasks = tl->facts->plan->stages[stage].n_tasks;
    return task < tl->n_head || task >= n_tasks - tl->n_head;
}

static void put_label(StrBuf *out, const Timeline *tl, const TaskSpan *span, int y_px,
                      const char *text, int n_letters) {
    int zoom = zoom_for(tl, span->end_us - span->start_us, 7.0 * n_letters + 7);
    if (zoom > tl->zoom_most) return;
    strbuf_printf(out, "<text class=\"t z%d\" x=\"%.4f%%\" y=\"%d\">%s</text>", zoom,
                  percent(tl, (span->start_us + span->end_us) / 2), y_px + 16, text);
}

/* What to draw of a task: an update's waiting for other stages comes first and is left out. */
static TaskSpan drawn_span(const Timeline *tl, int stage, int index) {
    const Plan *plan = tl->facts->plan;
    TaskSpan span = *simulation_span(tl->facts->sim, stage, index);
    if (plan->stages[stage].tasks[index].kind != TASK_UPDATE) return span;
    const Cost *parts = tl->facts->sim->costs[plan->stages[stage].program].update;
    double us = 0;
    for (int i = 0; i < N_UPDATE_PARTS; i++) us += parts[i].us;
    if (span.end_us - us > span.start_us) span.start_us = span.end_us - us;
    return span;
}

static void put_box(StrBuf *out, const Timeline *tl, int stage, int index, int y_px) {
    const Task *task = &tl->facts->plan->stages[stage].tasks[index];
    const TaskSpan drawn = drawn_span(tl, stage, index), *span = &drawn;
    char name[40], start[UNIT_TEXT], length[UNIT_TEXT], css[16], label[16];
    trace_task_name(task, name, sizeof(name));
    int n_letters = 1;
    if (task->kind == TASK_UPDATE) {
        snprintf(css, sizeof(css), "U");
        snprintf(label, sizeof(label), "update");
        n_letters = 6;
    } else {
        snprintf(css, sizeof(css), "%c%d%d", task->kind == TASK_FORWARD ? 'F' : 'B', task->chunk,
                 task->micro % 3);
        n_letters = snprintf(label, sizeof(label), "%d", task->micro);
    }
    strbuf_printf(out,
                  "<rect class=\"%s\" x=\"%.4f%%\" y=\"%d\" width=\"%.4f%%\">"
                  "<title>%s · stage %d\n%s from %s</title></rect>",
                  css, percent(tl, span->start_us), y_px,
                  percent(tl, span->end_us - span->start_us), name, stage,
                  unit_us(span->end_us - span->start_us, length), unit_us(span->start_us, start));
    put_label(out, tl, span, y_px, label, n_letters);
}

/* A hatched box where tasks of a very long list are left out. */
static void put_cut(StrBuf *out, const Timeline *tl, int stage, int y_px) {
    int n_tasks = tl->facts->plan->stages[stage].n_tasks;
    if (n_tasks <= 2 * tl->n_head) return;
    double from = simulation_span(tl->facts->sim, stage, tl->n_head)->start_us;
    double to = simulation_span(tl->facts->sim, stage, n_tasks - tl->n_head)->start_us;
    strbuf_printf(out,
                  "<rect class=\"cut\" x=\"%.4f%%\" y=\"%d\" width=\"%.4f%%\"><title>%d tasks are "
                  "not drawn</title></rect>",
                  percent(tl, from), y_px, percent(tl, to - from), n_tasks - 2 * tl->n_head);
}

static void put_lane(StrBuf *out, const Timeline *tl, int lane) {
    int stage = tl->lanes[lane], y_px = lane * LANE_STEP_PX;
    const Stage *list = &tl->facts->plan->stages[stage];
    for (int i = 0; i < list->n_tasks; i++) {
        if (task_is_compute(&list->tasks[i]) && is_drawn(tl, stage, i)) {
            put_box(out, tl, stage, i, y_px);
        }
    }
    put_cut(out, tl, stage, y_px);
    strbuf_put(out, "\n");
}

/* Messages between stages that are both drawn. Returns how many there are and are not drawn. */
static int put_wires(StrBuf *out, const Timeline *tl) {
    const Simulation *sim = tl->facts->sim;
    int n_drawn = 0;
    for (int i = 0; i < sim->n_messages; i++) {
        const MessageSpan *message = &sim->messages[i];
        const Channel *link = &tl->facts->plan->channels[message->channel];
        int from = tl->lane_of[link->from], to = tl->lane_of[link->to];
        if (from < 0 || to < 0 || n_drawn == MAX_WIRES) continue;
        if (!is_drawn(tl, link->from, message->from_task) ||
            !is_drawn(tl, link->to, message->to_task)) {
            continue;
        }
        int from_px = from * LANE_STEP_PX + (from < to ? LANE_PX : 0);
        int to_px = to * LANE_STEP_PX + (from < to ? 0 : LANE_PX);
        strbuf_printf(out, "<line class=\"%s\" x1=\"%.4f%%\" y1=\"%d\" x2=\"%.4f%%\" y2=\"%d\"/>",
                      link->backward ? "wb" : "wf", percent(tl, message->start_us), from_px,
                      percent(tl, message->arrive_us), to_px);
        n_drawn++;
    }
    strbuf_put(out, "\n");
    return sim->n_messages - n_drawn;
}

/* 1, 2 or 5 times a power of ten, at least `us`. */
static double nice_step(double us) {
    double power = pow(10, floor(log10(us)));
    double ratio = us / power;
    return power * (ratio <= 1 ? 1 : ratio <= 2 ? 2 : ratio <= 5 ? 5 : 10);
}

/* Lines and times along the bottom; finer ones halve the step for each doubling of the zoom. */
static void put_axis(StrBuf *out, const Timeline *tl) {
    if (tl->step_us <= 0) return;
    int bottom_px = tl->n_lanes * LANE_STEP_PX;
    int parts = tl->zoom_most > 16 ? 16 : tl->zoom_most;
    double large_us = tl->step_us > 3 * 3600e6 ? 3600e6 : tl->step_us > 600e6 ? 60e6 : 1;
    double step_us = nice_step(tl->step_us / 8 / large_us) * large_us;
    int n_ticks = (int)(tl->step_us / step_us * parts);
    for (int i = 0; i <= n_ticks; i++) {
        int zoom = parts;
        for (int k = i; zoom > 1 && k % 2 == 0; k /= 2) zoom /= 2;
        if (i == 0) zoom = 1;
        char text[UNIT_TEXT];
        double at = percent(tl, i * step_us / parts);
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

static void put_legend(StrBuf *out, const Timeline *tl) {
    int n_chunks = tl->facts->plan->n_chunks;
    strbuf_put(out, "<div class=\"legend\">");
    for (int chunk = 0; chunk < n_chunks; chunk++) {
        for (int backward = 0; backward < 2; backward++) {
            strbuf_printf(out, "<span><i class=\"%c%d1\"></i>%s", backward ? 'B' : 'F', chunk,
                          backward ? "backward" : "forward");
            if (n_chunks > 1) strbuf_printf(out, " %d", chunk);
            strbuf_put(out, "</span>");
        }
    }
    strbuf_put(out, "<span><i class=\"k-update\"></i>update</span><span><i class=\"k-idle\"></i>"
                    "waiting or sending</span></div>\n");
}

static void put_omissions(StrBuf *out, const Timeline *tl, int n_wires_left) {
    const Plan *plan = tl->facts->plan;
    bool all_lanes = tl->n_lanes == plan->n_stages;
    if (all_lanes && n_wires_left == 0) return;
    strbuf_put(out, "<p class=\"note\">");
    if (!all_lanes) {
        strbuf_printf(out, "%d of %d stages are drawn, evenly spaced. ", tl->n_lanes,
                      plan->n_stages);
    }
    if (n_wires_left > 0) {
        strbuf_printf(out, "%d of %d messages are not drawn.", n_wires_left,
                      tl->facts->sim->n_messages);
    }
    strbuf_put(out, "</p>");
}

void html_put_timeline(StrBuf *out, const Facts *facts) {
    Timeline tl = timeline_create(facts);
    strbuf_put(
        out,
        "<section id=\"timeline\"><div class=\"tools\"><button id=\"zl\" aria-label=\"zoom "
        "out\">−</button><button id=\"zf\" aria-label=\"fit\">1×</button>"
        "<button id=\"zm\" aria-label=\"zoom in\">+</button></div><h2>Timeline of one step</h2>"
        "<p class=\"lead\">Each lane is a pipeline stage, each number a micro-batch; lines "
        "are messages between stages.</p>\n");
    put_legend(out, &tl);
    strbuf_printf(out,
                  "<div class=\"tl\" id=\"tl\" data-zoom=\"1\" data-most=\"%d\">"
                  "<div class=\"names\">",
                  tl.zoom_most);
    for (int lane = 0; lane < tl.n_lanes; lane++) {
        strbuf_printf(out, "<div>stage %d</div>", tl.lanes[lane]);
    }
    strbuf_printf(out,
                  "</div><div class=\"view\" tabindex=\"0\"><svg height=\"%d\" role=\"img\" "
                  "aria-label=\"timeline\">\n",
                  tl.n_lanes * LANE_STEP_PX + 24);
    put_axis(out, &tl);
    for (int lane = 0; lane < tl.n_lanes; lane++) {
        strbuf_printf(out, "<rect class=\"lane\" x=\"0\" y=\"%d\" width=\"100%%\"/>",
                      lane * LANE_STEP_PX);
    }
    int n_wires_left = put_wires(out, &tl); /* below the boxes: some cross many lanes */
    for (int lane = 0; lane < tl.n_lanes; lane++) put_lane(out, &tl, lane);
    strbuf_put(out, "</svg></div></div>\n");
    put_omissions(out, &tl, n_wires_left);
    html_close_section(out);
}
