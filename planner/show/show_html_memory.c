/* Memory of a rank over the predicted step: stacked areas by class, the arena's size on top.
 *
 * Weights, gradients, optimizer state, inputs and message slots stay; frames fill from a forward's
 * start to its backward's end; scratch is in use only inside a task. The drawing has N_BINS columns
 * and each shows its largest use, so a plan of any length costs the same.
 */
#include "planner/show/show_html.h"

#include <inttypes.h>

enum { N_BINS = MEMORY_BINS, HEIGHT = 150 };

static int bin_at(const MemoryMap *map, double us) {
    int bin = map->step_us > 0 ? (int)(us / map->step_us * N_BINS) : 0;
    return bin < 0 ? 0 : bin >= N_BINS ? N_BINS - 1 : bin;
}

void memory_map_raise(MemoryMap *map, BufferClass class, double from_us, double to_us,
                      double bytes) {
    int first = bin_at(map, from_us), last = bin_at(map, to_us);
    if (to_us < map->step_us && last > first) last--; /* the next task's column */
    for (int bin = first; bin <= last; bin++) {
        if (bytes > map->bytes[class][bin]) map->bytes[class][bin] = bytes;
    }
}

/* Returns the sum. */
static double fill_constant(MemoryMap *map, const Facts *facts) {
    static const BufferClass CONSTANT[] = {CLASS_PARAMETER, CLASS_GRADIENT, CLASS_OPTIMIZER,
                                           CLASS_INPUT, CLASS_MESSAGE};
    const int64_t *class_bytes = facts->stages[map->stage].class_bytes;
    double sum = 0;
    for (size_t i = 0; i < sizeof(CONSTANT) / sizeof(*CONSTANT); i++) {
        memory_map_raise(map, CONSTANT[i], 0, map->step_us, (double)class_bytes[CONSTANT[i]]);
        sum += (double)class_bytes[CONSTANT[i]];
    }
    return sum;
}

static double scratch_of(const Plan *plan, const Stage *stage, const Task *task) {
    Phase phase = task->kind == TASK_FORWARD    ? PHASE_FORWARD
                  : task->kind == TASK_BACKWARD ? PHASE_BACKWARD
                  : task->kind == TASK_WEIGHTS  ? PHASE_WEIGHTS
                                                : PHASE_UPDATE;
    return (double)facts_scratch_bytes(plan, stage->program, phase, task->chunk);
}

static void fill_moving(MemoryMap *map, const Facts *facts, double constant_bytes) {
    const Plan *plan = facts->plan;
    const Stage *stage = &plan->stages[map->stage];
    const int64_t *frame_bytes = plan->programs[stage->program].frame_bytes;
    double scratch[N_TASK_KINDS][MAX_CHUNKS], in_use = 0, since_us = 0;
    TaskKind ends[MAX_CHUNKS];
    plan_frame_ends(stage, ends);
    for (int kind = 0; kind < N_TASK_KINDS; kind++) {
        for (int chunk = 0; chunk < MAX_CHUNKS; chunk++) scratch[kind][chunk] = -1;
    }
    for (int i = 0; i < stage->n_tasks; i++) {
        const Task *task = &stage->tasks[i];
        const TaskSpan *span = simulation_span(facts->sim, map->stage, i);
        if (!task_is_compute(task)) continue;
        double *peak = &scratch[task->kind][task->chunk];
        if (*peak < 0) *peak = scratch_of(plan, stage, task);
        memory_map_raise(map, CLASS_SCRATCH, span->start_us, span->end_us, *peak);
        double change_us = task->kind == TASK_FORWARD ? span->start_us : span->end_us;
        double frame = task->kind == TASK_FORWARD ? (double)frame_bytes[task->chunk] : 0;
        double now_bytes = constant_bytes + in_use + frame + *peak;
        if (now_bytes > map->peak_bytes) map->peak_bytes = now_bytes;
        if (task->kind != TASK_FORWARD && task->kind != ends[task->chunk]) continue;
        memory_map_raise(map, CLASS_ACTIVATION, since_us, change_us, in_use);
        in_use += task->kind == TASK_FORWARD ? frame : -(double)frame_bytes[task->chunk];
        since_us = change_us;
    }
    memory_map_raise(map, CLASS_ACTIVATION, since_us, map->step_us, in_use);
}

/* The area between the sums below and with `class`, as steps; a run of equal columns is one. */
static void put_area(StrBuf *out, const double *below, const double *above, double scale,
                     const HtmlClass *class, double most) {
    char text[UNIT_TEXT];
    if (most <= 0) return;
    strbuf_printf(out, "<path class=\"%s\" d=\"M0 %.2f", class->css, HEIGHT - above[0] * scale);
    for (int bin = 0; bin < N_BINS; bin++) {
        if (bin + 1 < N_BINS && above[bin + 1] == above[bin]) continue;
        strbuf_printf(out, "H%d", bin + 1);
        if (bin + 1 < N_BINS) strbuf_printf(out, "V%.2f", HEIGHT - above[bin + 1] * scale);
    }
    strbuf_printf(out, "V%.2f", HEIGHT - below[N_BINS - 1] * scale);
    for (int bin = N_BINS - 1; bin >= 0; bin--) {
        if (bin > 0 && below[bin - 1] == below[bin]) continue;
        strbuf_printf(out, "H%d", bin);
        if (bin > 0) strbuf_printf(out, "V%.2f", HEIGHT - below[bin - 1] * scale);
    }
    strbuf_printf(out, "Z\"><title>%s: at most %s</title></path>", class->name,
                  unit_bytes(most, text));
}

void html_put_memory_map(StrBuf *out, const MemoryMap *map, double top_bytes) {
    double below[N_BINS] = {0}, above[N_BINS];
    double scale = top_bytes > 0 ? (HEIGHT - 8) / top_bytes : 0;
    char arena[UNIT_TEXT], most_text[UNIT_TEXT], top[UNIT_TEXT];
    StrBuf areas = strbuf_create();
    for (int i = 0; i < N_BUFFER_CLASSES; i++) {
        double most = 0;
        for (int bin = 0; bin < N_BINS; bin++) {
            double bytes = map->bytes[HTML_CLASSES[i].class][bin];
            above[bin] = below[bin] + bytes;
            if (bytes > most) most = bytes;
        }
        put_area(&areas, below, above, scale, &HTML_CLASSES[i], most);
        for (int bin = 0; bin < N_BINS; bin++) below[bin] = above[bin];
    }
    strbuf_printf(
        out,
        "<figure><figcaption><b>Stage %d</b><span class=\"num\">peak %s of %s</span>"
        "</figcaption><svg viewBox=\"0 0 %d %d\" preserveAspectRatio=\"none\" role=\"img\""
        " aria-label=\"memory of stage %d\">",
        map->stage, unit_bytes(map->peak_bytes, most_text), unit_bytes(map->cap_bytes, arena),
        N_BINS, HEIGHT, map->stage);
    strbuf_put(out, areas.text);
    strbuf_destroy(&areas);
    double y = HEIGHT - map->cap_bytes * scale;
    strbuf_printf(out,
                  "<line class=\"cap\" x1=\"0\" x2=\"%d\" y1=\"%.2f\" y2=\"%.2f\"/></svg>"
                  "<div class=\"axis\"><span>0</span><span>one step, %s</span></div></figure>\n",
                  N_BINS, y, y, unit_us(map->step_us, top));
}

void html_put_memory(StrBuf *out, const Facts *facts) {
    int stages[MAX_MEMORY_MAPS];
    int n_maps = html_pick_stages(facts->plan->n_stages, MAX_MEMORY_MAPS, stages);
    html_open_section(
        out, "memory", "Memory over the step",
        "What one rank of a stage has in use. The dashed line is its arena, allocated "
        "once; all drawings share one scale.");
    html_put_class_legend(out, "<span><i class=\"dash\"></i>arena</span>");
    strbuf_printf(out, "<div class=\"maps%s\">\n",
                  n_maps == 1                  ? " one"
                  : n_maps == 2 || n_maps == 4 ? " two"
                                               : "");
    MemoryMap *map = ARENA_NEW(facts->arena, MemoryMap);
    for (int i = 0; i < n_maps; i++) {
        *map = (MemoryMap){.stage = stages[i],
                           .step_us = facts->sim->step_us,
                           .cap_bytes = (double)facts->stages[stages[i]].arena_bytes};
        fill_moving(map, facts, fill_constant(map, facts));
        html_put_memory_map(out, map, (double)facts->largest_arena_bytes);
    }
    strbuf_put(out, "</div>");
    if (n_maps < facts->plan->n_stages) {
        strbuf_printf(out, "<p class=\"note\">%d of %d stages are drawn.</p>", n_maps,
                      facts->plan->n_stages);
    }
    html_close_section(out);
}
