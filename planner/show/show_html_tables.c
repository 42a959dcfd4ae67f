/* Stages, traffic and parameters of the HTML page. */
#include "planner/show/show_html.h"

#include <inttypes.h>

enum { MAX_ROWS = 16, MAX_COLUMNS = 256, COLUMN_HEIGHT = 198 };

static void put_bytes(StrBuf *out, double bytes) {
    char text[UNIT_TEXT];
    if (bytes > 0) {
        strbuf_printf(out, "<td>%s</td>", unit_bytes(bytes, text));
    } else {
        strbuf_put(out, "<td class=\"zero\">–</td>");
    }
}

/* Memory of a rank as one bar, as long as its share of the largest arena. */
static void put_stack(StrBuf *out, const Facts *facts, const StageFacts *of) {
    double most = (double)facts->largest_arena_bytes;
    strbuf_put(out, "<td class=\"w\"><div class=\"stack\">");
    for (int i = 0; i < N_BUFFER_CLASSES; i++) {
        double bytes = (double)of->class_bytes[HTML_CLASSES[i].class];
        char text[UNIT_TEXT];
        if (bytes <= 0 || most <= 0) continue;
        strbuf_printf(out, "<i class=\"%s\" style=\"width:%.3f%%\" title=\"%s: %s\"></i>",
                      HTML_CLASSES[i].css, 100 * bytes / most, HTML_CLASSES[i].name,
                      unit_bytes(bytes, text));
    }
    strbuf_put(out, "</div></td>");
}

static void put_range(StrBuf *out, int64_t first, int64_t last) {
    if (first == last) {
        strbuf_printf(out, "<td>%" PRId64 "</td>", first);
    } else {
        strbuf_printf(out, "<td>%" PRId64 " – %" PRId64 "</td>", first, last);
    }
}

static void put_stage_row(StrBuf *out, const Facts *facts, StageGroup group) {
    StageFacts most = facts_of_group(facts, group);
    const Plan *plan = facts->plan;
    int last = group.first + group.count - 1;
    char text[UNIT_TEXT];
    strbuf_printf(out, group.count > 1 ? "<tr><td>%d – %d</td>" : "<tr><td>%d</td>", group.first,
                  last);
    if (group.count > 1) {
        strbuf_printf(out, "<td>%d each</td>", most.n_blocks);
    } else {
        strbuf_printf(out, "<td>%s</td>", facts_blocks(facts, group.first));
    }
    strbuf_printf(out, "<td>%s</td>", unit_count((double)most.n_parameters, text));
    put_stack(out, facts, &most);
    put_bytes(out, (double)most.arena_bytes);
    put_bytes(out, (double)most.class_bytes[CLASS_PARAMETER]);
    put_bytes(out, (double)most.class_bytes[CLASS_GRADIENT]);
    put_bytes(out, (double)most.class_bytes[CLASS_OPTIMIZER]);
    put_range(out, facts->stages[group.first].n_frames, facts->stages[last].n_frames);
    put_bytes(out, (double)most.class_bytes[CLASS_ACTIVATION]);
    put_bytes(out, (double)most.class_bytes[CLASS_SCRATCH]);
    put_bytes(out, (double)(most.class_bytes[CLASS_MESSAGE] + most.class_bytes[CLASS_INPUT]));
    if (facts->largest_host_bytes > 0) put_bytes(out, (double)most.host_bytes);
    strbuf_printf(out, "<td>%d</td><td>%.0f %%</td></tr>\n", plan->stages[group.first].program,
                  facts->sim->step_us > 0 ? 100 * most.busy_us / facts->sim->step_us : 0);
}

void html_put_stages(StrBuf *out, const Facts *facts) {
    StageGroup *groups;
    int n_groups = facts_group_stages(facts, MAX_ROWS, &groups), n_hidden = 0;
    bool varies = false;
    html_open_section(out, "stages", "Stages",
                      "Memory of one rank. A frame keeps what one micro-batch's forward leaves for "
                      "its backward.");
    html_put_class_legend(out, "");
    strbuf_put(out, "<table><thead><tr><th>Stage</th><th>Blocks</th><th>Parameters</th>"
                    "<th class=\"l\">Memory</th><th>Arena</th><th>Weights</th><th>Gradients</th>"
                    "<th>Optimizer</th><th>Frames</th><th>Activations</th><th>Scratch</th>"
                    "<th>Messages</th>");
    if (facts->largest_host_bytes > 0) strbuf_put(out, "<th>Host</th>");
    strbuf_put(out, "<th>Program</th><th>Busy</th></tr></thead><tbody>\n");
    for (int i = 0; i < n_groups; i++) {
        if (n_groups > 2 * MAX_ROWS && i >= MAX_ROWS && i < n_groups - MAX_ROWS) {
            n_hidden += groups[i].count;
            continue;
        }
        put_stage_row(out, facts, groups[i]);
        varies |= groups[i].varies;
    }
    strbuf_put(out, "</tbody></table>");
    if (varies) {
        strbuf_put(out, "<p class=\"note\">Stages that differ only in frames share a row, which "
                        "gives the largest of them.</p>");
    }
    if (n_hidden) {
        strbuf_printf(out, "<p class=\"note\">%d stages in the middle are not listed.</p>",
                      n_hidden);
    }
    html_close_section(out);
}

static void put_traffic_name(StrBuf *out, const Traffic *traffic) {
    static const char *const AXES[N_MESH_GROUPS] = {[MESH_T] = "Tensor",
                                                    [MESH_C] = "Context",
                                                    [MESH_D] = "Data",
                                                    [MESH_P] = "Pipeline group",
                                                    [MESH_E] = "Expert",
                                                    [MESH_DC] = "Data and context",
                                                    [MESH_DE] = "Data and expert",
                                                    [MESH_DEC] = "Data, expert, context",
                                                    [MESH_R] = "Replica",
                                                    [MESH_H] = "Heads over context"};
    strbuf_put(out, "<td class=\"l\">");
    int axis = traffic->kind == TRAFFIC_MESH
                   ? mesh_axis_find(traffic->name, (int)strlen(traffic->name))
                   : -1;
    if (axis >= 0 && AXES[axis]) {
        strbuf_printf(out, "%s, %s", AXES[axis], traffic->name);
    } else {
        html_put(out, traffic->name);
    }
    strbuf_put(out, "<br><small class=\"zero\">");
    html_put(out, traffic->what);
    if (traffic->kind == TRAFFIC_PIPELINE) {
        strbuf_printf(out, " · %d link%s", traffic->n_groups, traffic->n_groups == 1 ? "" : "s");
    } else {
        strbuf_printf(out, " · %d × %d ranks", traffic->n_groups, traffic->group_size);
    }
    strbuf_put(out, "</small></td>");
}

void html_put_traffic(StrBuf *out, const Facts *facts) {
    html_open_section(out, "traffic", "Traffic per step",
                      "Bytes that the busiest rank sends on each communicator, and all ranks "
                      "together.");
    double most = 0;
    for (int i = 0; i < facts->n_traffic; i++) {
        if (facts->traffic[i].rank_bytes > most) most = facts->traffic[i].rank_bytes;
    }
    if (!facts->n_traffic) {
        strbuf_put(out, "<p class=\"note\">One rank: nothing is sent.</p>");
        html_close_section(out);
        return;
    }
    strbuf_put(out, "<table><thead><tr><th>Communicator</th><th class=\"l\"></th><th>A rank</th>"
                    "<th>All</th><th>Messages</th></tr></thead><tbody>\n");
    for (int i = 0; i < facts->n_traffic; i++) {
        const Traffic *traffic = &facts->traffic[i];
        strbuf_put(out, "<tr>");
        put_traffic_name(out, traffic);
        strbuf_printf(
            out, "<td class=\"w\"><div class=\"bar\"><i style=\"width:%.3f%%\"></i></div></td>",
            most > 0 ? 100 * traffic->rank_bytes / most : 0);
        put_bytes(out, traffic->rank_bytes);
        put_bytes(out, traffic->total_bytes);
        strbuf_printf(out, "<td>%" PRId64 "</td></tr>\n", traffic->n_calls);
    }
    strbuf_put(out, "</tbody></table>");
    html_close_section(out);
}

void html_put_parameters(StrBuf *out, const Facts *facts) {
    int n_stages = facts->plan->n_stages;
    int n_columns = n_stages < MAX_COLUMNS ? n_stages : MAX_COLUMNS;
    double most = 1;
    char text[UNIT_TEXT];
    for (int stage = 0; stage < n_stages; stage++) {
        double count = (double)facts->stages[stage].n_parameters;
        if (count > most) most = count;
    }
    html_open_section(
        out, "parameters", "Parameters per stage",
        "What the ranks of a stage hold together; a tied weight counts on each of its "
        "stages.");
    strbuf_put(out, "<div class=\"cols\"><svg role=\"img\" aria-label=\"parameters per stage\">");
    double slot = 100.0 / n_columns;
    double width = slot * (n_columns > 40 ? 0.86 : 0.7);
    if (width > 9) width = 9;
    for (int stage = 0; stage < n_columns; stage++) {
        double count = (double)facts->stages[stage].n_parameters;
        double height = count / most * COLUMN_HEIGHT, middle = (stage + 0.5) * slot;
        unit_count(count, text);
        strbuf_printf(out,
                      "<rect x=\"%.3f%%\" y=\"%.2f\" width=\"%.3f%%\" height=\"%.2f\" rx=\"2\">"
                      "<title>stage %d: %s</title></rect>",
                      middle - width / 2, 14 + COLUMN_HEIGHT - height, width, height, stage, text);
        if (n_columns <= 8) {
            strbuf_printf(out, "<text x=\"%.3f%%\" y=\"%.2f\" text-anchor=\"middle\">%s</text>",
                          middle, 10 + COLUMN_HEIGHT - height, text);
        }
        int every = n_columns <= 16 ? 1 : (n_columns + 15) / 16;
        if (stage % every == 0) {
            strbuf_printf(out, "<text x=\"%.3f%%\" y=\"%d\" text-anchor=\"middle\">%d</text>",
                          middle, 28 + COLUMN_HEIGHT, stage);
        }
    }
    strbuf_printf(
        out, "</svg></div><p class=\"note\">Largest: %s; whole model: ", unit_count(most, text));
    strbuf_printf(out, "%s.", unit_count((double)facts->plan->n_parameters, text));
    if (n_columns < n_stages) strbuf_printf(out, " The first %d stages are drawn.", n_columns);
    strbuf_put(out, "</p>");
    html_close_section(out);
}
