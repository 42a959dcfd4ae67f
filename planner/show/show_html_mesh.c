/* The mesh as a picture, and the programs as text. */
#include "ir/op.h"
#include "planner/show/show_html.h"

#include <string.h>

enum {
    MOST_STAGES = 8,
    MOST_ROWS = 8,
    MOST_CELLS = 8,
    PICTURE_PX = 530,
    LEAST_CELL_PX = 13,
    MAX_LINES = 3000
};

/* What is drawn of one direction: the first n - 1 and the last when there are more than fit. */
typedef struct Shown {
    int n, size;
} Shown;

static Shown show_of(int size, int most) {
    return (Shown){size < most ? size : most, size};
}

static int shown_at(Shown shown, int position) {
    return shown.n < shown.size && position == shown.n - 1 ? shown.size - 1 : position;
}

/* A gap before the last one when some are left out. */
static double shown_offset(Shown shown, int position, double step, double gap) {
    bool after_gap = shown.n < shown.size && position == shown.n - 1;
    return position * step + (after_gap ? gap : 0);
}

typedef struct MeshPicture {
    Shown t, d, p;
    double cell, gap, stage_width, stage_gap, stage_height, x0;
    bool has_numbers;
} MeshPicture;

static MeshPicture picture_of(const Mesh *mesh) {
    MeshPicture pic = {.t = show_of(mesh->size[MESH_T], MOST_CELLS),
                       .d = show_of(mesh_size(mesh, MESH_DEC) * mesh->size[MESH_R], MOST_ROWS),
                       .gap = 3,
                       .stage_gap = 16};
    int n_fit = PICTURE_PX / (pic.t.n * LEAST_CELL_PX + 40); /* so that a cell can be pointed at */
    pic.p = show_of(mesh->size[MESH_P], n_fit < 3 ? 3 : n_fit > MOST_STAGES ? MOST_STAGES : n_fit);
    double extra = pic.t.n < pic.t.size ? 12 : 0;
    double per_stage = (PICTURE_PX - (pic.p.n < pic.p.size ? 20 : 0)) / (double)pic.p.n -
                       pic.stage_gap - 14 - extra;
    pic.cell = per_stage / pic.t.n - pic.gap;
    if (pic.cell > 46) pic.cell = 46;
    if (pic.cell < 4) pic.cell = 4;
    pic.has_numbers = pic.cell >= 22;
    pic.stage_width = pic.t.n * (pic.cell + pic.gap) - pic.gap + 14 + extra;
    pic.stage_height =
        pic.d.n * (pic.cell + pic.gap) - pic.gap + 14 + (pic.d.n < pic.d.size ? 12 : 0);
    return pic;
}

static void put_cells(StrBuf *out, const Mesh *mesh, const MeshPicture *pic, int stage,
                      double left) {
    for (int row = 0; row < pic->d.n; row++) {
        for (int column = 0; column < pic->t.n; column++) {
            MeshCoord at = {{0}};
            at.at[MESH_T] = shown_at(pic->t, column);
            at.at[MESH_P] = stage;
            int n_rows = mesh_size(mesh, MESH_DEC); /* of a replica */
            at.at[MESH_R] = shown_at(pic->d, row) / n_rows;
            at = mesh_member_coord(mesh, at, MESH_DEC, shown_at(pic->d, row) % n_rows);
            char context[24] = "", experts[24] = "", replicas[24] = "";
            if (mesh->size[MESH_C] > 1) {
                snprintf(context, sizeof(context), "c=%d, ", at.at[MESH_C]);
            }
            if (mesh->size[MESH_E] > 1) {
                snprintf(experts, sizeof(experts), "e=%d, ", at.at[MESH_E]);
            }
            if (mesh->size[MESH_R] > 1) {
                snprintf(replicas, sizeof(replicas), "r=%d, ", at.at[MESH_R]);
            }
            int rank = mesh_rank(mesh, at);
            double step = pic->cell + pic->gap;
            double x = left + 7 + shown_offset(pic->t, column, step, 12);
            double y = 29 + shown_offset(pic->d, row, step, 12);
            strbuf_printf(
                out,
                "<rect class=\"cell\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\""
                " style=\"fill:oklch(%.3f .1 %d)\"><title>rank %d: t=%d, %s%sd=%d, %sp=%d"
                "</title></rect>",
                x, y, pic->cell, pic->cell, row % 2 ? 0.62 : 0.54, 256, rank, at.at[MESH_T],
                context, experts, at.at[MESH_D], replicas, stage);
            if (pic->has_numbers && rank < 1000) {
                strbuf_printf(out, "<text class=\"id\" x=\"%.1f\" y=\"%.1f\">%d</text>",
                              x + pic->cell / 2, y + pic->cell / 2 + 3.5, rank);
            }
        }
    }
}

static void put_dots(StrBuf *out, double x, double y, bool across) {
    for (int i = -1; i <= 1; i++) {
        strbuf_printf(out, "<circle class=\"tip\" cx=\"%.1f\" cy=\"%.1f\" r=\"1.3\"/>",
                      x + (across ? i * 5 : 0), y + (across ? 0 : i * 4));
    }
}

static void put_stage_card(StrBuf *out, const Mesh *mesh, const MeshPicture *pic, int position) {
    int stage = shown_at(pic->p, position);
    double step = pic->stage_width + pic->stage_gap;
    double left = pic->x0 + shown_offset(pic->p, position, step, 20), top = 22;
    bool wide = pic->stage_width >= 52;
    strbuf_printf(out, "<text x=\"%.1f\" y=\"13\" text-anchor=\"middle\">%s%d</text>",
                  left + pic->stage_width / 2, wide ? "stage " : "", stage);
    strbuf_printf(out,
                  "<rect class=\"card\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" "
                  "rx=\"7\"/>",
                  left, top, pic->stage_width, pic->stage_height);
    put_cells(out, mesh, pic, stage, left);
    double cell_step = pic->cell + pic->gap, middle = top + pic->stage_height / 2;
    if (pic->t.n < pic->t.size) {
        put_dots(out, left + 7 + (pic->t.n - 1) * cell_step + 5, middle, true);
    }
    if (pic->d.n < pic->d.size) {
        put_dots(out, left + pic->stage_width / 2, top + 7 + (pic->d.n - 1) * cell_step + 4.5,
                 false);
    }
    if (position == 0) return;
    bool after_gap = pic->p.n < pic->p.size && position == pic->p.n - 1;
    if (after_gap) {
        put_dots(out, left - pic->stage_gap / 2 - 10, middle, true);
        return;
    }
    strbuf_printf(out,
                  "<path class=\"wire\" d=\"M%.1f %.1fh%.1f\"/><path class=\"tip\" d=\"M%.1f %.1f"
                  "l-5 -3.2v6.4z\"/>",
                  left - pic->stage_gap + 2, middle, pic->stage_gap - 5, left - 2, middle);
}

/* The first group along a mesh axis: "8 groups of 2: ranks 0, 1; ...". */
static void put_group(StrBuf *out, const Mesh *mesh, int axis, const char *label) {
    int size = mesh->size[axis], n_listed = size < 6 ? size : 6;
    int n_groups = mesh_rank_count(mesh) / (size > 0 ? size : 1);
    strbuf_printf(out, "<dt>%s, %s</dt><dd class=\"num\">", label, mesh_axis_name(axis));
    if (size == 1) {
        strbuf_put(out, "whole on every rank</dd>");
        return;
    }
    strbuf_printf(out, "%d group%s of %d%s: ", n_groups, n_groups == 1 ? "" : "s", size,
                  n_groups == 1 ? "" : ", the first");
    for (int i = 0; i < n_listed; i++) {
        MeshCoord at = {{0}};
        at.at[axis] = i;
        strbuf_printf(out, "%s%d", i ? ", " : "ranks ", mesh_rank(mesh, at));
    }
    strbuf_put(out, n_listed < size ? " …</dd>" : "</dd>");
}

void html_put_mesh(StrBuf *out, const Mesh *mesh) {
    int n_ranks = mesh_rank_count(mesh);
    MeshPicture pic = picture_of(mesh);
    double width = pic.p.n * (pic.stage_width + pic.stage_gap) - pic.stage_gap +
                   (pic.p.n < pic.p.size ? 20 : 0);
    bool c = mesh->size[MESH_C] > 1, e = mesh->size[MESH_E] > 1;
    const char *again = mesh->size[MESH_R] > 1 ? ", r" : "";
    char text[256];
    snprintf(text, sizeof(text),
             "A square is a rank. A row splits every tensor (t), a column %sthe batch (d%s%s)%s, "
             "stages the layers (p).",
             e   ? "experts (e, ranks that follow one another) and "
             : c ? "each sequence (c, ranks that follow one another) and "
                 : "",
             e ? ", e" : "", again, e ? ", and each sequence (c)" : "");
    html_open_section(out, "mesh", "Mesh", text);
    strbuf_printf(
        out,
        "<svg class=\"mesh\" viewBox=\"0 0 %.0f %.0f\" style=\"width:%.0fpx;max-width:100%%"
        "\" role=\"img\" aria-label=\"mesh\">",
        width + 2, pic.stage_height + 26, width + 2);
    pic.x0 = 1;
    for (int i = 0; i < pic.p.n; i++) put_stage_card(out, mesh, &pic, i);
    strbuf_put(out, "</svg>");
    strbuf_printf(out, "<p class=\"note\">%d tensor × ", mesh->size[MESH_T]);
    if (mesh->size[MESH_C] > 1) strbuf_printf(out, "%d context × ", mesh->size[MESH_C]);
    if (mesh->size[MESH_E] > 1) strbuf_printf(out, "%d expert × ", mesh->size[MESH_E]);
    strbuf_printf(out, "%d data × ", mesh->size[MESH_D]);
    if (mesh->size[MESH_R] > 1) strbuf_printf(out, "%d replica × ", mesh->size[MESH_R]);
    strbuf_printf(out, "%d pipeline = %d rank%s", mesh->size[MESH_P], n_ranks,
                  n_ranks == 1 ? "." : "s.");
    if (pic.t.n < pic.t.size || pic.d.n < pic.d.size || pic.p.n < pic.p.size) {
        strbuf_printf(out, " %d are drawn.", pic.t.n * pic.d.n * pic.p.n);
    }
    strbuf_put(out, "</p><dl class=\"facts groups\">");
    put_group(out, mesh, MESH_T, "Tensor");
    if (mesh->size[MESH_C] > 1) put_group(out, mesh, MESH_C, "Context");
    if (mesh->size[MESH_E] > 1) put_group(out, mesh, MESH_E, "Expert");
    put_group(out, mesh, MESH_D, "Data");
    if (mesh->size[MESH_R] > 1) put_group(out, mesh, MESH_R, "Replica");
    put_group(out, mesh, MESH_P, "Pipeline");
    strbuf_put(out, "</dl>");
    html_close_section(out);
}

static const char *op_css(const Node *node) {
    unsigned flags = OPS[node->op].flags;
    if (flags & COLLECTIVE) return "co";
    if (node->op == OP_SEND || node->op == OP_RECV) return "io";
    if (flags & LEAF) return "le";
    if (node->op == OP_MATMUL || node->op == OP_ATTENTION || node->op == OP_ATTENTION_GRAD) {
        return "mm";
    }
    return "";
}

/* One printed node with its op's name set apart. */
static void put_node(StrBuf *out, const Graph *graph, const Node *node) {
    StrBuf line = strbuf_create();
    node_print(&line, graph, node);
    const char *name = OPS[node->op].name;
    char call[64];
    snprintf(call, sizeof(call), "%s(", name);
    char *at = strstr(line.text, call);
    if (at) {
        *at = '\0';
        html_put(out, line.text);
        strbuf_printf(out, "<b class=\"%s\">%s</b>", op_css(node), name);
        html_put(out, at + strlen(name));
    } else {
        html_put(out, line.text);
    }
    if (line.length && out->text[out->length - 1] != '\n') strbuf_put(out, "\n");
    strbuf_destroy(&line);
}

static void put_program_stages(StrBuf *out, const Plan *plan, int program) {
    bool first = true;
    int n_stages = 0;
    for (int stage = 0; stage < plan->n_stages; stage++) {
        n_stages += plan->stages[stage].program == program;
    }
    strbuf_put(out, n_stages == 1 ? "stage " : "stages ");
    for (int stage = 0; stage < plan->n_stages; stage++) {
        if (plan->stages[stage].program != program) continue;
        int last = stage;
        while (last + 1 < plan->n_stages && plan->stages[last + 1].program == program) last++;
        strbuf_printf(out, last > stage ? "%s%d–%d" : "%s%d", first ? "" : ", ", stage, last);
        stage = last;
        first = false;
    }
}

static void put_program(StrBuf *out, const Facts *facts, int index) {
    static const char *const PHASES[N_PHASES] = {"forward", "backward", "weights", "update"};
    const Plan *plan = facts->plan;
    const Graph *graph = plan->programs[index].graph;
    const ProgramCost *cost = &facts->sim->costs[index];
    char flops[UNIT_TEXT], us[UNIT_TEXT];
    double forward_flops = 0, forward_us = 0;
    for (int chunk = 0; chunk < plan->n_chunks; chunk++) {
        forward_flops += cost->forward[chunk].flops;
        forward_us += cost->forward[chunk].us;
    }
    strbuf_printf(out, "<details><summary>Program %d <span>· ", index);
    put_program_stages(out, plan, index);
    strbuf_printf(out, " · %d nodes · forward %sFLOP, %s a micro-batch</span></summary><pre>",
                  graph->n_nodes, unit_count(forward_flops, flops), unit_us(forward_us, us));
    int phase = -1, n_lines = graph->n_nodes < MAX_LINES ? graph->n_nodes : MAX_LINES;
    for (int i = 0; i < n_lines; i++) {
        const Node *node = graph->nodes[i];
        if ((int)node->phase != phase) {
            phase = (int)node->phase;
            strbuf_printf(out, "<span class=\"ph\">%s:</span>\n", PHASES[phase]);
        }
        put_node(out, graph, node);
    }
    if (n_lines < graph->n_nodes) {
        strbuf_printf(out, "<span class=\"ph\">%d more nodes</span>\n", graph->n_nodes - n_lines);
    }
    strbuf_put(out, "</pre></details>\n");
}

void html_put_programs(StrBuf *out, const Facts *facts) {
    enum { MOST_PROGRAMS = 24 };
    int n = facts->plan->n_programs;
    html_open_section(out, "programs", "Programs",
                      "What the ranks run. All ranks of a stage share one program; stages that "
                      "differ only in their blocks share it too.");
    for (int i = 0; i < n && i < MOST_PROGRAMS; i++) put_program(out, facts, i);
    if (n > MOST_PROGRAMS) {
        strbuf_printf(out, "<p class=\"note\">%d more programs are not listed.</p>",
                      n - MOST_PROGRAMS);
    }
    html_close_section(out);
}
