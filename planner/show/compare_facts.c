#include "planner/show/compare_facts.h"

#include "planner/plan/schedule.h"

#include <math.h>
#include <stdarg.h>
#include <string.h>

static void add_words(Comparison *of, const char *key, const char *label, const char *a,
                      const char *b) {
    if (of->n_rows == MAX_ROWS) return;
    of->rows[of->n_rows++] = (Row){.key = key, .label = label, .texts = {a, b}};
}

static void add_values(Comparison *of, const char *key, const char *label, RowUnit unit, double a,
                       double b) {
    if (of->n_rows == MAX_ROWS) return;
    of->rows[of->n_rows++] = (Row){.key = key, .label = label, .unit = unit, .values = {a, b}};
}

/* Predicted figures differ when a person would see it; counts and bytes when they do at all. */
bool row_differs(const Row *row) {
    if (row->unit == UNIT_WORD) return strcmp(row->texts[0], row->texts[1]) != 0;
    double a = fabs(row->values[0]), b = fabs(row->values[1]), largest = fmax(a, b);
    bool exact = row->unit == UNIT_BYTES || (row->unit == UNIT_NUMBER && largest < 1e6);
    return fabs(a - b) > (exact ? 1e-9 : 5e-4) * largest;
}

static const char *mesh_text(Arena *arena, const Mesh *mesh) {
    const int *size = mesh->size;
    const char *context = size[MESH_C] > 1 ? arena_printf(arena, " c=%d", size[MESH_C]) : "";
    const char *experts = size[MESH_E] > 1 ? arena_printf(arena, " e=%d", size[MESH_E]) : "";
    const char *replicas = size[MESH_R] > 1 ? arena_printf(arena, " r=%d", size[MESH_R]) : "";
    return arena_printf(arena, "t=%d%s%s d=%d%s p=%d", size[MESH_T], context, experts, size[MESH_D],
                        replicas, size[MESH_P]);
}

static const char *rounded_text(const Plan *plan) {
    return facts_rounded_form(plan) ? facts_rounded_form(plan) : "they are";
}

static const char *scaling_text(Arena *arena, const Plan *plan) {
    LossScaling scaling = plan_loss_scaling(plan);
    if (scaling.initial == 0) return "none";
    if (scaling.interval == 0) return arena_printf(arena, "%.10g, fixed", scaling.initial);
    return arena_printf(arena, "%.10g, doubles after %d", scaling.initial, scaling.interval);
}

static void add_layout(Comparison *of) {
    const Plan *a = of->sides[0].plan, *b = of->sides[1].plan;
    add_words(of, "model", "model", a->model, b->model);
    add_values(of, "parameters", "parameters", UNIT_NUMBER, (double)a->n_parameters,
               (double)b->n_parameters);
    add_values(of, "trained_parameters", "  trained", UNIT_NUMBER, (double)a->n_trained,
               (double)b->n_trained);
    add_words(of, "mesh", "mesh", mesh_text(of->arena, &a->mesh), mesh_text(of->arena, &b->mesh));
    add_values(of, "ranks", "ranks", UNIT_NUMBER, of->facts[0]->n_ranks, of->facts[1]->n_ranks);
    add_words(of, "schedule", "schedule", a->schedule, b->schedule);
    add_values(of, "chunks", "chunks a stage", UNIT_NUMBER, a->n_chunks, b->n_chunks);
    add_values(of, "micro_batch", "micro-batch", UNIT_NUMBER, a->micro_batch, b->micro_batch);
    add_values(of, "micro_batches", "micro-batches", UNIT_NUMBER, a->n_micro, b->n_micro);
    add_values(of, "global_batch", "global batch", UNIT_NUMBER, a->global_batch, b->global_batch);
    add_words(of, "split", "blocks by chunk", facts_split(of->arena, a), facts_split(of->arena, b));
    add_words(of, "precision", "precision", dtype_name(a->precision), dtype_name(b->precision));
    add_words(of, "optimizer_state", "optimizer's state", dtype_name(plan_state_dtype(a)),
              dtype_name(plan_state_dtype(b)));
    add_words(of, "gradients", "weights' gradients", dtype_name(plan_gradient_dtype(a)),
              dtype_name(plan_gradient_dtype(b)));
    add_values(of, "qk_clip", "QK-clip", UNIT_NUMBER, plan_qk_clip(a), plan_qk_clip(b));
    add_words(of, "masters", "masters", plan_splits_masters(a) ? "split" : "whole",
              plan_splits_masters(b) ? "split" : "whole");
    if (facts_rounded_form(a) || facts_rounded_form(b)) {
        add_words(of, "qat", "weights trained as", rounded_text(a), rounded_text(b));
    }
    add_values(of, "ema_decay", "decay of averages", UNIT_NUMBER, plan_ema_decay(a),
               plan_ema_decay(b));
    if (plan_skips_spikes(a) || plan_skips_spikes(b)) {
        add_words(of, "spikes", "spikes", plan_skips_spikes(a) ? "left out" : "learned from",
                  plan_skips_spikes(b) ? "left out" : "learned from");
    }
    add_values(of, "offload", "states offloaded, %", UNIT_NUMBER, a->offload, b->offload);
    add_values(of, "offload_activations", "activations offloaded, %", UNIT_NUMBER,
               a->offload_activations, b->offload_activations);
    add_values(of, "frozen_bits", "frozen bits", UNIT_NUMBER, facts_count_packed(a).bits,
               facts_count_packed(b).bits);
    add_values(of, "expert_parts", "runs of experts' slots", UNIT_NUMBER,
               facts_count_expert_parts(a), facts_count_expert_parts(b));
    add_values(of, "lanes", "lanes", UNIT_NUMBER, facts_count_lanes(a), facts_count_lanes(b));
    add_values(of, "loss_parts", "parts of the loss", UNIT_NUMBER, facts_count_loss_parts(a, NULL),
               facts_count_loss_parts(b, NULL));
    add_words(of, "loss_scale", "loss scale", scaling_text(of->arena, a),
              scaling_text(of->arena, b));
    add_words(of, "recompute", "recomputation", recompute_mode_name(a->recompute),
              recompute_mode_name(b->recompute));
    add_values(of, "zero", "ZeRO stage", UNIT_NUMBER, a->zero, b->zero);
    add_words(of, "sequence_parallel", "sequence-parallel", a->sequence_parallel ? "yes" : "no",
              b->sequence_parallel ? "yes" : "no");
    add_words(of, "device", "planned for", a->cuda ? "cuda" : "cpu", b->cuda ? "cuda" : "cpu");
}

static double rank_rate(const Facts *facts) {
    if (facts->sim->step_us <= 0 || facts->n_ranks <= 0) return 0;
    return facts->n_tokens / facts->sim->step_us * 1e6 / facts->n_ranks;
}

static double rank_flops(const Facts *facts) {
    double sum = 0;
    for (int i = 0; i < facts->plan->n_stages; i++) sum += facts->stages[i].flops;
    return sum / facts->plan->n_stages;
}

static void add_predictions(Comparison *of) {
    const Facts *a = of->facts[0], *b = of->facts[1];
    add_values(of, "step_seconds", "predicted step", UNIT_SECONDS, a->sim->step_us * 1e-6,
               b->sim->step_us * 1e-6);
    add_values(of, "tokens_per_second_per_rank", "tokens/s a rank", UNIT_NUMBER, rank_rate(a),
               rank_rate(b));
    add_values(of, "bubble_fraction", "bubble", UNIT_FRACTION, a->sim->bubble_fraction,
               b->sim->bubble_fraction);
    add_values(of, "message_fraction", "waiting for messages", UNIT_FRACTION,
               a->sim->message_fraction, b->sim->message_fraction);
    add_values(of, "flops_per_rank", "FLOPs a rank", UNIT_NUMBER, rank_flops(a), rank_flops(b));
}

static int largest_stage(const Facts *facts) {
    int largest = 0;
    for (int i = 1; i < facts->plan->n_stages; i++) {
        if (facts->stages[i].arena_bytes > facts->stages[largest].arena_bytes) largest = i;
    }
    return largest;
}

static void add_memory(Comparison *of) {
    const Facts *a = of->facts[0], *b = of->facts[1];
    add_values(of, "memory", "largest arena", UNIT_BYTES, (double)a->largest_arena_bytes,
               (double)b->largest_arena_bytes);
    const StageFacts *at[2] = {&a->stages[largest_stage(a)], &b->stages[largest_stage(b)]};
    for (int class = 0; class < N_BUFFER_CLASSES; class ++) {
        const char *name = buffer_class_name((BufferClass) class);
        add_values(of, arena_printf(of->arena, "memory_%s", name),
                   arena_printf(of->arena, "  %s", name), UNIT_BYTES,
                   (double)at[0]->class_bytes[class], (double)at[1]->class_bytes[class]);
    }
    add_values(of, "host_memory", "in the machine's memory", UNIT_BYTES,
               (double)a->largest_host_bytes, (double)b->largest_host_bytes);
    add_values(of, "beyond", "beyond the arena", UNIT_BYTES, (double)a->plan->library_bytes,
               (double)b->plan->library_bytes);
}

static const Traffic *find_traffic(const Facts *facts, const char *name) {
    for (int i = 0; i < facts->n_traffic; i++) {
        if (strcmp(facts->traffic[i].name, name) == 0) return &facts->traffic[i];
    }
    return NULL;
}

/* Does any group of this communicator reach beyond a node? Ranks sit t innermost, then c, e, d,
 * r and p. */
static bool leaves_node(const Traffic *traffic, const Mesh *mesh, int n_per_node) {
    int span = 1, last = MESH_P;
    if (traffic->kind == TRAFFIC_MESH) {
        last = mesh_axis_find(traffic->name, (int)strlen(traffic->name));
    }
    MeshGroupAxes of = mesh_group_axes(last);
    int slowest = of.count ? of.axes[of.count - 1] : -1;
    for (int axis = 0; axis <= slowest; axis++) span *= mesh->size[axis];
    return span > n_per_node;
}

static void add_links(Comparison *of) {
    double bytes[2][2] = {{0}};
    for (int side = 0; side < 2; side++) {
        const Facts *facts = of->facts[side];
        for (int i = 0; i < facts->n_traffic; i++) {
            bool leaves =
                leaves_node(&facts->traffic[i], &facts->plan->mesh, of->cluster->node.n_devices);
            bytes[leaves][side] += facts->traffic[i].total_bytes;
        }
    }
    add_values(of, "traffic_nodes", "inside nodes, all", UNIT_BYTES, bytes[0][0], bytes[0][1]);
    add_values(of, "traffic_network", "over the network, all", UNIT_BYTES, bytes[1][0],
               bytes[1][1]);
}

static void add_traffic(Comparison *of) {
    for (int side = 0; side < 2; side++) {
        const Facts *facts = of->facts[side];
        for (int i = 0; i < facts->n_traffic; i++) {
            const char *name = facts->traffic[i].name;
            if (side == 1 && find_traffic(of->facts[0], name)) continue;
            const Traffic *a = find_traffic(of->facts[0], name);
            const Traffic *b = find_traffic(of->facts[1], name);
            add_values(of, arena_printf(of->arena, "traffic_%s", name),
                       arena_printf(of->arena, "sent over %s", name), UNIT_BYTES,
                       a ? a->rank_bytes : 0, b ? b->rank_bytes : 0);
        }
    }
    if (of->cluster) add_links(of);
}

static const Row *find_row(const Comparison *of, const char *key) {
    for (int i = 0; i < of->n_rows; i++) {
        if (strcmp(of->rows[i].key, key) == 0) return &of->rows[i];
    }
    BUG("no row %s", key);
}

static void say(Comparison *of, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void say(Comparison *of, const char *format, ...) {
    if (of->n_sentences == MAX_SENTENCES) return;
    va_list args;
    va_start(args, format);
    of->sentences[of->n_sentences++] = arena_vprintf(of->arena, format, args);
    va_end(args);
}

static void say_time(Comparison *of) {
    const Row *step = find_row(of, "step_seconds");
    const Row *rate = find_row(of, "tokens_per_second_per_rank");
    double a = rate->values[0], b = rate->values[1];
    char text[UNIT_TEXT];
    if (!row_differs(rate) || a <= 0 || b <= 0) return;
    const char *word = b > a ? "more" : "fewer";
    if (row_differs(find_row(of, "ranks")) || row_differs(find_row(of, "global_batch"))) {
        say(of, "a rank of the second does %.1f %% %s tokens a second", 100 * fabs(b / a - 1),
            word);
        return;
    }
    double more_us = (step->values[1] - step->values[0]) * 1e6;
    say(of, "the second's step takes %s %s: %.1f %% %s tokens a second",
        unit_us(fabs(more_us), text), more_us > 0 ? "longer" : "less", 100 * fabs(b / a - 1), word);
}

static bool splits_backward(const Plan *plan) {
    int schedule = schedule_find(plan->schedule);
    return schedule >= 0 && schedule_splits(schedule);
}

static void say_bubble(Comparison *of) {
    const Row *bubble = find_row(of, "bubble_fraction");
    if (fabs(bubble->values[0] - bubble->values[1]) < 0.001) return;
    const Plan *plans[2] = {of->sides[0].plan, of->sides[1].plan};
    if (splits_backward(plans[0]) || splits_backward(plans[1])) {
        say(of, "the bubble goes from %.1f to %.1f %%: gradients of weights can fill it, under %s",
            100 * bubble->values[0], 100 * bubble->values[1],
            plans[splits_backward(plans[0]) ? 0 : 1]->schedule);
        return;
    }
    say(of,
        "the bubble goes from %.1f to %.1f %%: (p - 1) over chunks x micro-batches is %d/(%d x "
        "%d), "
        "then %d/(%d x %d)",
        100 * bubble->values[0], 100 * bubble->values[1], plans[0]->n_stages - 1,
        plans[0]->n_chunks, plans[0]->n_micro, plans[1]->n_stages - 1, plans[1]->n_chunks,
        plans[1]->n_micro);
}

/* The class that changed most in the direction of the whole. */
static void say_memory(Comparison *of) {
    const Row *whole = find_row(of, "memory"), *most = NULL;
    double change = whole->values[1] - whole->values[0], most_change = 0;
    char a[UNIT_TEXT], b[UNIT_TEXT];
    if (!row_differs(whole)) return;
    for (int i = 0; i < of->n_rows; i++) {
        const Row *row = &of->rows[i];
        if (strncmp(row->key, "memory_", 7) != 0) continue;
        double part = (row->values[1] - row->values[0]) * (change > 0 ? 1 : -1);
        if (part > most_change) most_change = part, most = row;
    }
    say(of, "the second's largest rank needs %s %s%s%s%s%s", unit_bytes(fabs(change), a),
        change > 0 ? "more" : "less", most ? ", most of it " : "", most ? most->key + 7 : "",
        most ? ": " : "", most ? unit_bytes(most_change, b) : "");
}

static bool same_model(const Comparison *of) {
    return !row_differs(find_row(of, "model")) && !row_differs(find_row(of, "parameters"));
}

static void say_flops(Comparison *of) {
    const Row *flops = find_row(of, "flops_per_rank");
    double a = flops->values[0] / of->facts[0]->n_tokens * of->facts[0]->n_ranks;
    double b = flops->values[1] / of->facts[1]->n_tokens * of->facts[1]->n_ranks;
    if (a <= 0 || fabs(b / a - 1) < 0.005 || !same_model(of)) return;
    say(of, "a token costs %.1f %% %s arithmetic: recomputation, or padding", 100 * fabs(b / a - 1),
        b > a ? "more" : "less");
}

static void say_traffic(Comparison *of) {
    const Row *most = NULL;
    double most_change = 0;
    char text[UNIT_TEXT];
    for (int i = 0; i < of->n_rows; i++) {
        const Row *row = &of->rows[i];
        if (strncmp(row->label, "sent over ", 10) != 0) continue;
        double change = fabs(row->values[1] - row->values[0]);
        if (change > most_change) most_change = change, most = row;
    }
    if (!most) return;
    bool more = most->values[1] > most->values[0];
    const char *where = "";
    if (of->cluster) {
        const Facts *facts = of->facts[more];
        const Traffic *traffic = find_traffic(facts, most->label + 10);
        bool leaves =
            traffic && leaves_node(traffic, &facts->plan->mesh, of->cluster->node.n_devices);
        where = leaves ? ", over the network" : ", inside a node";
    }
    say(of, "over %s a rank of the second sends %s %s a step%s", most->label + 10,
        unit_bytes(most_change, text), more ? "more" : "less", where);
}

Comparison *comparison_create(Arena *arena, const ComparedPlan sides[2], const Cluster *cluster,
                              Diag *diag) {
    Comparison *of = ARENA_NEW(arena, Comparison);
    of->arena = arena;
    of->sides = sides;
    of->cluster = cluster;
    for (int i = 0; i < 2; i++) {
        of->facts[i] = facts_create(arena, sides[i].plan, sides[i].device, diag);
        if (!of->facts[i]) return NULL;
    }
    add_layout(of);
    add_predictions(of);
    add_memory(of);
    add_traffic(of);
    if (!same_model(of)) say(of, "these are plans of different models");
    say_time(of);
    say_bubble(of);
    say_flops(of);
    say_memory(of);
    say_traffic(of);
    return of;
}
