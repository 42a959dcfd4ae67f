/* The predicted step of the best layout: what ran when, what memory it held, what was sent where.
 */
#include "planner/cost/border_time.h"
#include "planner/cost/shared_weights.h"
#include "planner/show/show_search_page.h"

#include <inttypes.h>
#include <string.h>

/* Candidates' lists end before the update. */
static TimelineStage with_update(const PipelineResult *step, int stage, Arena *arena) {
    const PipelineStage *of = &step->stages[stage];
    int n = step->lists[stage].n_tasks;
    Task *tasks = ARENA_ARRAY(arena, Task, n + 1);
    TaskSpan *spans = ARENA_ARRAY(arena, TaskSpan, n + 1);
    double end_us = step->step_us - of->idle_us;
    memcpy(tasks, step->lists[stage].tasks, sizeof(Task) * (size_t)n);
    memcpy(spans, &step->spans[of->first_span], sizeof(TaskSpan) * (size_t)n);
    tasks[n] = (Task){.kind = TASK_UPDATE};
    spans[n] = (TaskSpan){end_us - of->update_us, end_us};
    return (TimelineStage){n + 1, tasks, spans, of->update_us};
}

static void put_timeline(StrBuf *out, const SearchFacts *facts) {
    const PipelineLoad *load = facts->report->load;
    const PipelineResult *step = facts->report->step;
    Timeline of = {.n_stages = step->p,
                   .n_chunks = load->shape.n_chunks,
                   .step_us = step->step_us,
                   .least_us = step->step_us,
                   .n_messages = step->n_messages,
                   .messages = step->messages,
                   .data_spans = step->data_spans};
    TimelineStage *stages = ARENA_ARRAY(facts->arena, TimelineStage, step->p);
    for (int stage = 0; stage < step->p; stage++) {
        stages[stage] = with_update(step, stage, facts->arena);
        for (int chunk = 0; chunk < of.n_chunks; chunk++) {
            double us = load->chunks[stage * of.n_chunks + chunk].forward_us;
            if (us > 0 && us < of.least_us) of.least_us = us;
        }
    }
    TimelineLink *links = ARENA_ARRAY(facts->arena, TimelineLink, load->n_links + 1);
    for (int i = 0; i < load->n_links; i++) {
        links[i] = (TimelineLink){load->links[i].from, load->links[i].to, load->links[i].backward};
    }
    of.stages = stages;
    of.links = links;
    html_put_timeline(out, &of);
}

static void fill_map(MemoryMap *map, const PipelineLoad *load, const PipelineResult *step,
                     MemoryPoint *points) {
    double constant = load->constant_bytes ? load->constant_bytes[map->stage] : 0;
    int n = pipeline_memory_curve(step, load, map->stage, points);
    memory_map_raise(map, CLASS_PARAMETER, 0, step->step_us, constant);
    for (int i = 0; i < n; i++) {
        double until = i + 1 < n ? points[i + 1].us : step->step_us;
        if (points[i].bytes > map->peak_bytes) map->peak_bytes = points[i].bytes;
        memory_map_raise(map, CLASS_ACTIVATION, points[i].us, until, points[i].bytes - constant);
    }
}

static void put_memory(StrBuf *out, const SearchFacts *facts) {
    const PipelineLoad *load = facts->report->load;
    const PipelineResult *step = facts->report->step;
    int stages[MAX_MEMORY_MAPS], n_maps = html_pick_stages(step->p, MAX_MEMORY_MAPS, stages);
    int n_most = 0;
    double top = facts->limit_bytes;
    for (int i = 0; i < step->p; i++) {
        if (step->lists[i].n_tasks > n_most) n_most = step->lists[i].n_tasks;
        if (step->stages[i].peak_bytes > top) top = step->stages[i].peak_bytes;
    }
    html_open_section(out, "memory", "Memory over the step",
                      "What one rank of a stage holds. The dashed line is what a device can hold; "
                      "all drawings share one scale.");
    strbuf_put(out, "<div class=\"legend\"><span><i class=\"k-parameter\"></i>");
    strbuf_put(out, facts->best.found->cost.runtime_bytes > 0
                        ? "weights, gradients, state, buffers, CUDA's context and captured graphs"
                        : "weights, gradients, state and buffers");
    strbuf_put(out, "</span><span><i class=\"k-activation\"></i>activations of "
                    "micro-batches in flight</span><span><i class=\"dash\"></i>limit</span></div>");
    strbuf_printf(out, "<div class=\"maps%s\">\n",
                  n_maps == 1                  ? " one"
                  : n_maps == 2 || n_maps == 4 ? " two"
                                               : "");
    MemoryPoint *points = ARENA_ARRAY(facts->arena, MemoryPoint, n_most + 1);
    MemoryMap *map = ARENA_NEW(facts->arena, MemoryMap);
    for (int i = 0; i < n_maps; i++) {
        *map = (MemoryMap){
            .stage = stages[i], .step_us = step->step_us, .cap_bytes = facts->limit_bytes};
        fill_map(map, load, step, points);
        html_put_memory_map(out, map, top);
    }
    strbuf_put(out, "</div>");
    if (n_maps < step->p) {
        strbuf_printf(out, "<p class=\"note\">%d of %d stages are drawn.</p>", n_maps, step->p);
    }
    html_close_section(out);
}

typedef struct LinkRow {
    const char *name, *what;
    double bytes; /* per step, of one rank */
    int n_ranks;  /* of a group */
    bool leaves;  /* the node */
    const char *where;
} LinkRow;

static const char *where_text(bool leaves) {
    return leaves ? "network" : "inside the node";
}

/* Whole tensors that the data axis carries in a step. */
static double data_bytes(const Candidate *of, const StageWeights *weights) {
    bool low = of->n_micro == 1 || of->zero >= ZERO_GRADIENTS;
    double gradients = (double)stage_gradient_bytes(weights, low), n_weights = of->zero ? 1 : 0;
    if (of->zero >= ZERO_GRADIENTS) gradients *= of->n_micro;
    if (of->zero >= ZERO_PARAMETERS) n_weights = 2.0 * of->n_micro;
    double all = gradients + n_weights * (double)weights->parameter_bytes;
    return all + (of->zero >= ZERO_PARAMETERS ? n_weights * (double)weights->frozen_bytes : 0);
}

/* Of a rank of the first stage. */
static double tensor_bytes(const SearchFacts *facts, StageWeights *out_weights) {
    const ModelCosts *costs = facts->report->costs;
    const LayoutCost *layout = facts->report->layout;
    const Found *best = facts->best.found;
    const Candidate *of = &best->candidate;
    Path path = candidate_path(of);
    double tensor = 0;
    *out_weights = (StageWeights){0};
    for (int chunk = 0, first = 0; chunk < of->n_chunks * of->p; chunk++) {
        bool mine = path_stage(path, chunk) == 0;
        for (int i = first; i < first + best->split[chunk] && mine; i++) {
            const SegmentCost *segment = &layout->kinds[costs->kind_of_block[i]];
            tensor += segment->forward.collective_bytes + segment->backward.collective_bytes;
            stage_weights_add(out_weights, segment, 1, true);
        }
        first += best->split[chunk];
    }
    tensor += layout->before.forward.collective_bytes + layout->before.backward.collective_bytes;
    stage_weights_add(out_weights, &layout->before, 1, false);
    if (path_ends_meet(path)) { /* the head, too; tied weights are there once */
        tensor += layout->after.forward.collective_bytes + layout->after.backward.collective_bytes;
        stage_weights_add(out_weights, &layout->after, 1, false);
        stage_weights_add(out_weights, &layout->tied, -1, false);
    }
    int chunks[of->p];
    for (int i = 0; i < layout->n_shared; i++) {
        const SharedWeight *weight = &layout->shared[i];
        find_weight_chunks(weight, best->split, path, of->n_chunks, chunks);
        if (chunks[0] >= 0) stage_weights_add(out_weights, &weight->cost, 1, false);
    }
    return tensor * of->n_micro;
}

/* Messages between stages over borders that leave the node, or that do not: what a rank of the
 * stage with most of them sends and receives. Several chunks make a ring of stages, but of a V. */
static bool find_borders(const SearchFacts *facts, bool leaves, LinkRow *out) {
    const Candidate *of = &facts->best.found->candidate;
    Placement place = candidate_placement(facts->cluster, of);
    Path path = candidate_path(of);
    int n_such = 0, n_borders = 0, n_most = 0,
        before = 0; /* `before`: of the border to the stage before */
    if (border_crosses(&place, of->p - 1) == leaves) {
        before = path_count_crossings(path, of->n_chunks, of->p - 1);
    }
    for (int s = 0; s < of->p; s++) {
        int rounds = path_count_crossings(path, of->n_chunks, s);
        bool such = rounds > 0 && border_crosses(&place, s) == leaves;
        int here = such ? rounds : 0;
        if (before + here > n_most) n_most = before + here;
        n_such += such;
        n_borders += rounds > 0;
        before = here;
    }
    if (n_such == 0) return false;
    double bytes = 2.0 * (double)facts->report->layout->border_bytes * of->n_micro * n_most;
    *out = (LinkRow){"pipeline", "activations forward, gradients backward",
                     bytes,      of->p,
                     leaves,     where_text(leaves)};
    if (n_such < n_borders) {
        out->where = arena_printf(facts->arena, "%s: %d of %d borders", where_text(leaves), n_such,
                                  n_borders);
    }
    return true;
}

static int find_links(const SearchFacts *facts, LinkRow *rows) {
    static const char *const DATA_CARRIES[N_ZERO_STAGES] = {
        [ZERO_NOTHING] = "gradients",
        [ZERO_OPTIMIZER] = "gradients; updated weights come back",
        [ZERO_GRADIENTS] = "gradients of every micro-batch; updated weights come back",
        [ZERO_PARAMETERS] = "weights, forward and backward, and gradients of every micro-batch"};
    const Candidate *of = &facts->best.found->candidate;
    int n = 0, n_per_node = facts->cluster->node.n_devices;
    StageWeights weights;
    double tensor = tensor_bytes(facts, &weights);
    int inner = of->t * candidate_c(of) * candidate_e(of);
    if (inner > 1) {
        bool leaves = inner > n_per_node;
        rows[n++] = (LinkRow){of->e > 1   ? "tensor, context and expert"
                              : of->c > 1 ? "tensor and context"
                                          : "tensor",
                              "activations and their gradients, whole tensors",
                              tensor,
                              inner,
                              leaves,
                              where_text(leaves)};
    }
    if (candidate_replicas(of) > 1) {
        bool leaves = of->t * candidate_replicas(of) > n_per_node;
        rows[n++] = (LinkRow){
            "data", DATA_CARRIES[of->zero], data_bytes(of, &weights), candidate_replicas(of),
            leaves, where_text(leaves)};
    }
    if (candidate_r(of) > 1) {
        bool leaves = of->t * candidate_replicas(of) * candidate_r(of) > n_per_node;
        const ZeroChoice zero = candidate_zero_of(of, facts->report->layout);
        double share = stage_divided_share(&weights, &zero, candidate_replicas_by_kind(of));
        double shards = share * (double)stage_gradient_bytes(&weights, zero.one_micro);
        rows[n++] = (LinkRow){"replica", "gradients, shards", shards, candidate_r(of),
                              leaves,    where_text(leaves)};
    }
    for (int leaves = 0; leaves < 2 && of->p > 1; leaves++) {
        n += find_borders(facts, leaves, &rows[n]);
    }
    return n;
}

static void put_traffic(StrBuf *out, const SearchFacts *facts) {
    LinkRow rows[5];
    int n = find_links(facts, rows);
    double most = 1, sums[2] = {0};
    for (int i = 0; i < n; i++) {
        if (rows[i].bytes > most) most = rows[i].bytes;
    }
    html_open_section(
        out, "traffic", "Traffic by link",
        "What a rank takes part in per step: of the first stage; between stages, of "
        "the one with most such borders. Ranks sit t innermost, then c, e, d, r and p: what "
        "fits into a node stays on its links.");
    strbuf_put(out, "<table><tr><th>Axis</th><th class=\"l\">What</th><th>Group</th>"
                    "<th class=\"l\">Link</th><th>Bytes a step</th><th></th></tr>\n");
    for (int i = 0; i < n; i++) {
        char text[UNIT_TEXT];
        sums[rows[i].leaves] += rows[i].bytes;
        strbuf_printf(
            out,
            "<tr><td>%s</td><td class=\"l\">%s</td><td>%d ranks</td><td class=\"l\">%s"
            "</td><td>%s</td><td class=\"w\"><div class=\"bar\"><i style=\"width:%.2f%%\">"
            "</i></div></td></tr>\n",
            rows[i].name, rows[i].what, rows[i].n_ranks, rows[i].where,
            unit_bytes(rows[i].bytes, text), 100 * rows[i].bytes / most);
    }
    char a[UNIT_TEXT], b[UNIT_TEXT];
    strbuf_printf(out,
                  "</table><p class=\"note\">At most %s inside the node and %s over the network, "
                  "per rank and step.</p>",
                  unit_bytes(sums[0], a), unit_bytes(sums[1], b));
    html_close_section(out);
}

void html_put_step(StrBuf *out, const SearchFacts *facts) {
    const SearchReport *report = facts->report;
    if (report->load && report->step && report->step->n_spans > 0) {
        put_timeline(out, facts);
        put_memory(out, facts);
    }
    if (report->layout && facts->best.found->split && report->request->n_ranks > 1) {
        put_traffic(out, facts);
    }
}
