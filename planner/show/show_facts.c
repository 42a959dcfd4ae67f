#include "planner/show/show_facts.h"

#include "ir/message_group.h"
#include "ir/op.h"
#include "ir/ops/round_blocks.h"
#include "ir/ops/route.h"
#include "planner/options.h"

#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <string.h>

static const char *scaled(double value, double base, const char *const *units, int n_units,
                          char *text) {
    int unit = 0;
    while (unit + 1 < n_units && fabs(value) >= base * 0.9995) {
        value /= base;
        unit++;
    }
    const char *format = unit == 0 && value == floor(value) ? "%.0f%s%s"
                         : fabs(value) < 9.995              ? "%.2f%s%s"
                         : fabs(value) < 99.95              ? "%.1f%s%s"
                                                            : "%.0f%s%s";
    snprintf(text, UNIT_TEXT, format, value, *units[unit] ? " " : "", units[unit]);
    return text;
}

const char *unit_bytes(double bytes, char *text) {
    static const char *const UNITS[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
    return scaled(bytes, 1024, UNITS, 6, text);
}

const char *unit_us(double us, char *text) {
    static const char *const UNITS[] = {"us", "ms", "s"};
    const double minute_us = 60e6, hour_us = 3600e6, day_us = 86400e6;
    if (us < 10 * minute_us) return scaled(us, 1000, UNITS, 3, text);
    double large_us = us < 3 * hour_us ? minute_us : us < 3 * day_us ? hour_us : day_us;
    snprintf(text, UNIT_TEXT, "%.1f %s", us / large_us,
             large_us < hour_us  ? "min"
             : large_us < day_us ? "h"
                                 : "days");
    return text;
}

const char *active_parameters_text(double active, int64_t all, char text[2 * UNIT_TEXT]) {
    char count[UNIT_TEXT];
    text[0] = '\0';
    if (active > (double)all - 0.5) return text;
    snprintf(text, 2 * UNIT_TEXT, ", %s of them for a token", unit_count(active, count));
    return text;
}

const char *trained_parameters_text(int64_t trained, int64_t all, char text[4 * UNIT_TEXT]) {
    char a[UNIT_TEXT], b[UNIT_TEXT];
    if (trained == all) return NULL;
    snprintf(text, 4 * UNIT_TEXT, "%s of %s parameters; the others are frozen\n",
             unit_count((double)trained, a), unit_count((double)all, b));
    return text;
}

const char *unit_count(double count, char *text) {
    static const char *const UNITS[] = {"", "k", "M", "G", "T", "P", "E"};
    return scaled(count, 1000, UNITS, 7, text);
}

const char *facts_blocks(const Facts *facts, int stage) {
    const Stage *list = &facts->plan->stages[stage];
    StrBuf text = strbuf_create();
    for (int chunk = 0; chunk < facts->plan->n_chunks; chunk++) {
        int first = list->first_block[chunk], last = first + list->n_blocks[chunk] - 1;
        if (last < first) continue;
        strbuf_printf(&text, "%s%d", text.length ? ", " : "", first);
        if (last > first) strbuf_printf(&text, "-%d", last);
    }
    const char *kept = arena_strdup(facts->arena, text.length ? text.text : "none");
    strbuf_destroy(&text);
    return kept;
}

static int blocks_of(const Plan *plan, int global) {
    Path path = plan_path(plan);
    return plan->stages[path_stage(path, global)].n_blocks[path_chunk(path, global)];
}

const char *facts_split(Arena *arena, const Plan *plan) {
    StrBuf text = strbuf_create();
    int n = plan->n_stages * plan->n_chunks;
    for (int i = 0; i < n;) {
        int blocks = blocks_of(plan, i), run = 1;
        while (i + run < n && blocks_of(plan, i + run) == blocks) run++;
        strbuf_printf(&text, "%s%d", i ? " " : "", blocks);
        if (run > 1) strbuf_printf(&text, " x%d", run);
        i += run;
    }
    const char *kept = arena_strdup(arena, text.text ? text.text : "");
    strbuf_destroy(&text);
    return kept;
}

bool facts_has_bare_chunk(const Plan *plan) {
    for (int i = 0; i < plan->n_stages * plan->n_chunks; i++) {
        if (blocks_of(plan, i) == 0) return true;
    }
    return false;
}

int64_t facts_scratch_bytes(const Plan *plan, int program, Phase phase, int chunk) {
    const Program *of = &plan->programs[program];
    int64_t most = 0;
    for (int i = 0; i < of->graph->n_nodes; i++) {
        const Node *node = of->graph->nodes[i];
        if (node->phase != phase || (phase != PHASE_UPDATE && node->chunk != chunk)) continue;
        for (int k = 0; k < node->n_outputs; k++) {
            const Buffer *buffer = &of->buffers[node->id * MAX_OUTPUTS + k];
            if (buffer->region != REGION_SCRATCH) continue;
            int64_t end = buffer->offset_bytes + buffer->bytes;
            if (end > most) most = end;
        }
    }
    return most;
}

static int64_t count_parameters(const Graph *graph) {
    int64_t count = 0;
    for (int i = 0; i < graph->n_nodes; i++) {
        if (graph->nodes[i]->op == OP_PARAM) count += type_elements(&graph->nodes[i]->types[0]);
    }
    return count;
}

double facts_count_active(const Plan *plan) {
    double passive = 0;
    for (int i = 0; i < plan->n_programs; i++) {
        const Graph *graph = plan->programs[i].graph;
        int n_stages = 0;
        for (int s = 0; s < plan->n_stages; s++) n_stages += plan->stages[s].program == i;
        if (n_stages == 0) continue;
        passive += n_stages * ((double)count_parameters(graph) - route_count_active(graph));
    }
    return (double)plan->n_parameters - passive;
}

/* Of the products and attention of one rank and step: what model FLOPs count, and besides what is
 * computed again, by the plan or within attention's gradient, and padding. */
static double count_product_flops(const Plan *plan, const Graph *graph) {
    double flops = 0;
    for (int n = 0; n < graph->n_nodes; n++) {
        const Node *node = graph->nodes[n];
        Type inputs[8], outputs[MAX_OUTPUTS];
        if (!op_multiplies(node->op)) continue;
        for (int i = 0; i < node->n_inputs; i++) {
            Value input = node->inputs[i];
            inputs[i] = type_local(value_type(input), value_sharding(input), &graph->mesh);
        }
        for (int o = 0; o < node->n_outputs; o++) {
            outputs[o] = type_local(&node->types[o], &node->shardings[o], &graph->mesh);
        }
        flops += OPS[node->op].flops(node, inputs, outputs);
    }
    return flops * plan->n_micro;
}

static bool is_over_t(const Sharding *sharding, int rank) {
    for (int i = 0; i < rank; i++) {
        if (sharding->mesh[i] == MESH_T || sharding->mesh[i] == MESH_TE) return true;
    }
    return false;
}

static void count_undivided(Facts *facts, const Graph *graph) {
    for (int n = 0; n < graph->n_nodes; n++) {
        const Node *node = graph->nodes[n], *most = facts->most_undivided;
        int64_t elements = type_elements(&node->types[0]);
        if (node->op != OP_PARAM || is_over_t(&node->shardings[0], node->types[0].rank)) continue;
        facts->undivided_parameters += (double)elements;
        if (!most || elements > type_elements(&most->types[0])) facts->most_undivided = node;
    }
}

static void fill_stage(Facts *facts, int stage, const int64_t *parameters_of) {
    const Plan *plan = facts->plan;
    const Stage *list = &plan->stages[stage];
    StageFacts *of = &facts->stages[stage];
    const ProgramCost *cost = &facts->sim->costs[list->program];
    for (int chunk = 0; chunk < plan->n_chunks; chunk++) {
        of->n_blocks += list->n_blocks[chunk];
        of->n_frames += list->frame_slots[chunk];
        of->flops += plan->n_micro * (cost->forward[chunk].flops + cost->backward[chunk].flops +
                                      cost->weights[chunk].flops);
    }
    for (int part = 0; part < N_UPDATE_PARTS; part++) of->flops += cost->update[part].flops;
    of->n_parameters = parameters_of[list->program];
    facts->parameters_counted += (double)of->n_parameters;
    if (plan->mesh.size[MESH_T] > 1) count_undivided(facts, plan->programs[list->program].graph);
    plan_class_bytes(plan, stage, of->class_bytes);
    of->arena_bytes = list->arena_bytes;
    of->host_bytes = plan_host_bytes(plan, list);
    of->busy_us = facts->sim->stages[stage].busy_us + facts->sim->stages[stage].send_us;
    of->idle_us = facts->sim->stages[stage].idle_us;
    for (int i = 0; i < list->n_tasks; i++) of->n_sent += task_is_send(&list->tasks[i]);
    if (of->arena_bytes > facts->largest_arena_bytes) facts->largest_arena_bytes = of->arena_bytes;
    int n_twins = facts->n_ranks / plan->n_stages;
    facts->all_arena_bytes += (double)of->arena_bytes * n_twins;
    if (of->host_bytes > facts->largest_host_bytes) facts->largest_host_bytes = of->host_bytes;
    facts->all_host_bytes += (double)of->host_bytes * n_twins;
    facts->hardware_flops +=
        count_product_flops(plan, plan->programs[list->program].graph) * n_twins;
}

/* Sums of one program's collectives over a communicator, per step and rank. */
typedef struct Tally {
    int64_t n_calls, n_calls_of[N_OPS];
    double bytes;
} Tally;

static Tally tally_program(const Plan *plan, int program, int mesh_axis, int stage_comm) {
    Tally tally = {0};
    const Graph *graph = plan->programs[program].graph;
    for (int i = 0; i < graph->n_nodes; i++) {
        CollectiveCost one;
        const Node *node = graph->nodes[i];
        if (!cost_collective(plan, node, &one)) continue;
        if (one.mesh_axis != mesh_axis || one.stage_comm != stage_comm) continue;
        bool once = node->phase == PHASE_UPDATE || node_is_once(node);
        int64_t n_times = once ? 1 : plan->n_micro;
        tally.bytes += one.bytes * (double)n_times;
        if (node_is_joined(node)) continue; /* goes with the one before it */
        tally.n_calls += n_times;
        tally.n_calls_of[node->op] += n_times;
    }
    return tally;
}

static const char *describe_calls(Facts *facts, const Tally *busiest) {
    StrBuf text = strbuf_create();
    for (int op = 0; op < N_OPS; op++) {
        if (!busiest->n_calls_of[op]) continue;
        strbuf_printf(&text, "%s%" PRId64 " %s", text.length ? ", " : "", busiest->n_calls_of[op],
                      OPS[op].name);
    }
    const char *kept = arena_strdup(facts->arena, text.text ? text.text : "");
    strbuf_destroy(&text);
    return kept;
}

static bool stage_in_comm(const Plan *plan, int stage, int stage_comm) {
    if (stage_comm < 0) return true;
    for (int i = 0; i < plan->comms[stage_comm].n_stages; i++) {
        if (plan->comms[stage_comm].stages[i] == stage) return true;
    }
    return false;
}

static void add_collectives(Facts *facts, Traffic traffic, int mesh_axis, int stage_comm) {
    const Plan *plan = facts->plan;
    Tally *tallies = ARENA_ARRAY(facts->arena, Tally, plan->n_programs), busiest = {0};
    for (int i = 0; i < plan->n_programs; i++) {
        tallies[i] = tally_program(plan, i, mesh_axis, stage_comm);
    }
    int n_twins = facts->n_ranks / plan->n_stages; /* ranks of one stage */
    for (int stage = 0; stage < plan->n_stages; stage++) {
        if (!stage_in_comm(plan, stage, stage_comm)) continue;
        const Tally *tally = &tallies[plan->stages[stage].program];
        traffic.total_bytes += tally->bytes * n_twins;
        if (tally->bytes > busiest.bytes || !busiest.n_calls) busiest = *tally;
    }
    if (!busiest.n_calls) return;
    traffic.n_calls = busiest.n_calls;
    traffic.rank_bytes = busiest.bytes;
    traffic.what = describe_calls(facts, &busiest);
    facts->traffic[facts->n_traffic++] = traffic;
}

static void add_pipeline(Facts *facts, bool backward) {
    const Plan *plan = facts->plan;
    Traffic traffic = {.kind = TRAFFIC_PIPELINE,
                       .name = backward ? "pipeline backward" : "pipeline forward",
                       .what = backward ? "gradients" : "activations",
                       .group_size = 2};
    int64_t *n_sent = ARENA_ARRAY(facts->arena, int64_t, plan->n_channels);
    double *bytes = ARENA_ARRAY(facts->arena, double, plan->n_stages);
    int64_t *n_calls = ARENA_ARRAY(facts->arena, int64_t, plan->n_stages);
    for (int i = 0; i < facts->sim->n_messages; i++) n_sent[facts->sim->messages[i].channel]++;
    int n_twins = facts->n_ranks / plan->n_stages;
    for (int i = 0; i < plan->n_channels; i++) {
        const Channel *channel = &plan->channels[i];
        if (channel->backward != backward || !n_sent[i]) continue;
        double sent_bytes = (double)plan_channel_message_bytes(plan, i) * (double)n_sent[i];
        traffic.n_groups += n_twins;
        traffic.total_bytes += sent_bytes * n_twins;
        bytes[channel->from] += sent_bytes;
        n_calls[channel->from] += n_sent[i];
        if (bytes[channel->from] >= traffic.rank_bytes) {
            traffic.rank_bytes = bytes[channel->from];
            traffic.n_calls = n_calls[channel->from];
        }
    }
    if (traffic.n_groups) facts->traffic[facts->n_traffic++] = traffic;
}

static void fill_traffic(Facts *facts) {
    const Plan *plan = facts->plan;
    facts->traffic = ARENA_ARRAY(facts->arena, Traffic, N_MESH_GROUPS + plan->n_comms + 2);
    for (int axis = 0; axis < N_MESH_GROUPS; axis++) {
        if (axis >= N_MESH_AXES && !mesh_has_messages(&plan->mesh, axis)) continue;
        int size = mesh_size(&plan->mesh, axis);
        Traffic traffic = {.kind = TRAFFIC_MESH,
                           .name = mesh_axis_name(axis),
                           .group_size = size,
                           .n_groups = facts->n_ranks / (size > 0 ? size : 1)};
        add_collectives(facts, traffic, axis, -1);
    }
    for (int i = 0; i < plan->n_comms; i++) {
        const char *name = plan->comms[i].name;
        if (strncmp(name, "tied/", 5) == 0) name += 5;
        Traffic traffic = {.kind = TRAFFIC_TIED,
                           .name = arena_printf(facts->arena, "tied %s", name),
                           .group_size = plan->comms[i].n_stages,
                           .n_groups = facts->n_ranks / plan->n_stages};
        add_collectives(facts, traffic, -1, i);
    }
    add_pipeline(facts, false);
    add_pipeline(facts, true);
}

Facts *facts_create(Arena *arena, const Plan *plan, const Device *device, Diag *diag) {
    const Simulation *sim = simulate_plan(arena, plan, device, diag);
    if (!sim) return NULL;
    Facts *facts = ARENA_NEW(arena, Facts);
    *facts = (Facts){.arena = arena,
                     .plan = plan,
                     .device = device,
                     .sim = sim,
                     .n_ranks = mesh_rank_count(&plan->mesh),
                     .n_tokens = (double)plan->global_batch * (double)plan_row_tokens(plan)};
    int64_t *parameters_of = ARENA_ARRAY(arena, int64_t, plan->n_programs);
    for (int i = 0; i < plan->n_programs; i++) {
        parameters_of[i] = count_parameters(plan->programs[i].graph);
    }
    facts->stages = ARENA_ARRAY(arena, StageFacts, plan->n_stages);
    for (int stage = 0; stage < plan->n_stages; stage++) fill_stage(facts, stage, parameters_of);
    facts->active_parameters = facts_count_active(plan);
    fill_traffic(facts);
    return facts;
}

static bool stages_alike(const Facts *facts, int a, int b, bool but_for_frames) {
    const StageFacts *x = &facts->stages[a], *y = &facts->stages[b];
    if (facts->plan->stages[a].program != facts->plan->stages[b].program) return false;
    if (x->n_blocks != y->n_blocks || x->n_parameters != y->n_parameters) return false;
    if (but_for_frames) return true;
    return memcmp(x->class_bytes, y->class_bytes, sizeof(x->class_bytes)) == 0 &&
           x->n_frames == y->n_frames && x->arena_bytes == y->arena_bytes &&
           x->host_bytes == y->host_bytes;
}

int facts_group_stages(const Facts *facts, int n_most, StageGroup **out_groups) {
    int n_stages = facts->plan->n_stages, n_groups = 0;
    StageGroup *groups = ARENA_ARRAY(facts->arena, StageGroup, n_stages);
    for (int stage = 0; stage < n_stages; stage++) {
        StageGroup *group = n_groups ? &groups[n_groups - 1] : NULL;
        if (group && stages_alike(facts, group->first, stage, n_stages > n_most)) {
            group->count++;
            group->varies |= !stages_alike(facts, group->first, stage, false);
        } else {
            groups[n_groups++] = (StageGroup){stage, 1, false};
        }
    }
    *out_groups = groups;
    return n_groups;
}

const char *facts_rounded_form(const Plan *plan) {
    const char *found = NULL;
    for (int p = 0; p < plan->n_programs; p++) {
        const char *form = graph_rounded_form(plan->programs[p].graph);
        if (form && (!found || strcmp(found, ROUND_FORM_NAMES[ROUND_F16]) == 0)) found = form;
    }
    return found;
}

PackedFacts facts_count_packed(const Plan *plan) {
    PackedFacts facts = {0};
    for (int s = 0; s < plan->n_stages; s++) {
        const Graph *graph = plan->programs[plan->stages[s].program].graph;
        for (int n = 0; n < graph->n_nodes; n++) {
            const Node *node = graph->nodes[n];
            if (node->op != OP_PARAM || !dtype_is_blocked(node->types[0].dtype)) continue;
            facts.bits = node->types[0].dtype == DTYPE_NF4 ? 4 : 8;
            facts.n_parameters += type_elements(&node->types[0]);
        }
    }
    return facts;
}

int facts_count_expert_parts(const Plan *plan) {
    int n_routes = 0, n_first = 0;
    for (int s = 0; s < plan->n_stages; s++) {
        const Graph *graph = plan->programs[plan->stages[s].program].graph;
        for (int n = 0; n < graph->n_nodes; n++) {
            if (graph->nodes[n]->op != OP_ROUTE) continue;
            n_routes++;
            n_first += node_int(graph->nodes[n], ATTR_first, 0) == 0;
        }
    }
    return n_first > 0 ? n_routes / n_first : 1;
}

int facts_count_lanes(const Plan *plan) {
    int64_t lanes = 1;
    for (int p = 0; p < plan->n_programs; p++) {
        int64_t here = graph_lanes(plan->programs[p].graph);
        if (here > lanes) lanes = here;
    }
    return lanes < INT_MAX ? (int)lanes : INT_MAX;
}

int facts_count_loss_parts(const Plan *plan, bool *out_twice) {
    int n_parts = 1;
    if (out_twice) *out_twice = false;
    for (int p = 0; p < plan->n_programs; p++) {
        const Graph *graph = plan->programs[p].graph;
        int rows = axis_find(&graph->axes, LOSS_ROWS, (int)strlen(LOSS_ROWS));
        const Node *cut = NULL; /* the first that is, in one phase */
        Phase phase = PHASE_FORWARD;
        for (int n = 0, count = 0; rows >= 0 && n < graph->n_nodes; n++) {
            const Node *node = graph->nodes[n];
            if (node->op != OP_NARROW || !node_over(node, ATTR_to, rows)) continue;
            if (!cut) cut = node->inputs[0].node, phase = node->phase;
            if (out_twice && node->phase == PHASE_FORWARD) *out_twice = true;
            count += node->inputs[0].node == cut && node->phase == phase;
            if (count > n_parts) n_parts = count;
        }
    }
    return n_parts;
}

StageFacts facts_of_group(const Facts *facts, StageGroup group) {
    StageFacts most = facts->stages[group.first];
    for (int stage = group.first + 1; stage < group.first + group.count; stage++) {
        const StageFacts *one = &facts->stages[stage];
        for (int class = 0; class < N_BUFFER_CLASSES; class ++) {
            if (one->class_bytes[class] > most.class_bytes[class]) {
                most.class_bytes[class] = one->class_bytes[class];
            }
        }
        if (one->arena_bytes > most.arena_bytes) most.arena_bytes = one->arena_bytes;
        if (one->host_bytes > most.host_bytes) most.host_bytes = one->host_bytes;
        if (one->n_frames > most.n_frames) most.n_frames = one->n_frames;
        if (one->n_sent > most.n_sent) most.n_sent = one->n_sent;
        if (one->busy_us > most.busy_us) most.busy_us = one->busy_us;
        if (one->idle_us > most.idle_us) most.idle_us = one->idle_us;
    }
    return most;
}

bool facts_joins_messages(const Plan *plan) {
    for (int p = 0; p < plan->n_programs; p++) {
        const Graph *graph = plan->programs[p].graph;
        for (int n = 0; n < graph->n_nodes; n++) {
            const Node *node = graph->nodes[n];
            bool once = node->phase == PHASE_UPDATE || node_is_once(node);
            if (node_is_joined(node) && !once) return true;
        }
    }
    return false;
}

const char *states_text(DType dtype, const char *before, char text[2 * UNIT_TEXT]) {
    text[0] = '\0';
    if (dtype != DTYPE_F32) snprintf(text, 2 * UNIT_TEXT, "%s%s", before, dtype_name(dtype));
    return text;
}
