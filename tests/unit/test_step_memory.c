/* What step_memory says before a plan is made, against the plan: the arenas, and CUDA's context
 * with captured graphs, of the rank that has most of both. */
#include "frontend/lua/cluster_read.h"
#include "frontend/lua/model.h"
#include "planner/cost/cost.h"
#include "planner/cost/offload_cost.h"
#include "planner/plan/plan_library.h"
#include "planner/search/search.h"
#include "tests/unit/check.h"

#include <math.h>
#include <stdlib.h>

typedef struct Layout {
    const char *path, *settings; /* size */
    int t, d, p, v, b, n_micro;
    const char *schedule;
    bool sequence_parallel, f32;
    Recompute recompute;
    int zero;
} Layout;

static int context = 1, experts = 1, replicas = 1; /* c, e and r, of all from now on */
static const char *documents = NULL;               /* the separator */
static ModelSetting frozen = {NULL, NULL};         /* what freezes parameters */
static int frozen_bits = 0;
static const char *optimizer = NULL;
static int lanes = 1;
static DType gradients = DTYPE_F32;
static bool splits = false; /* masters */
static int offload = 0;     /* percent of states and masters */
static int activations = 0; /* percent of what blocks keep */
static bool joins = false;  /* a block's messages, with ZeRO-2 and 3 */

static PlanRequest request_of(const Model *model, const Layout *l, const int *split) {
    return (PlanRequest){.model = model->name,
                         .forward = model->graph,
                         .n_blocks = model->n_blocks,
                         .seq = model->seq,
                         .vocab = model->vocab,
                         .recipe = model->recipe,
                         .options = {.mesh = {.size = {[MESH_T] = l->t,
                                                       [MESH_C] = context,
                                                       [MESH_E] = experts,
                                                       [MESH_D] = l->d,
                                                       [MESH_R] = replicas,
                                                       [MESH_P] = l->p}},
                                     .micro_batch = l->b,
                                     .global_batch = l->b * l->d * experts * replicas * l->n_micro,
                                     .n_chunks = l->v,
                                     .schedule = l->schedule,
                                     .precision = l->f32 ? DTYPE_F32 : DTYPE_BF16,
                                     .frozen_bits = frozen_bits,
                                     .gradient_dtype = gradients,
                                     .split_masters = splits,
                                     .offload = offload,
                                     .offload_activations = activations,
                                     .sequence_parallel = l->sequence_parallel,
                                     .recompute = l->recompute,
                                     .zero = l->zero,
                                     .join_messages = joins,
                                     .lanes = lanes,
                                     .cuda = true,
                                     .split = split,
                                     .n_split = split ? l->p * l->v : 0,
                                     .seed = 1}};
}

static int64_t stage_bytes(const Plan *plan, int stage) {
    return plan->stages[stage].arena_bytes + plan_stage_library_bytes(plan, stage);
}

static int largest_stage(const Plan *plan) {
    int largest = 0;
    for (int s = 1; s < plan->n_stages; s++) {
        if (stage_bytes(plan, s) > stage_bytes(plan, largest)) largest = s;
    }
    return largest;
}

typedef struct Priced {
    Cluster *cluster;
    ModelCosts *costs;
    const LayoutCost *layout;
    Candidate candidate;
    int *split;
    StepCost cost;
} Priced;

static Priced price(Arena *arena, const Layout *l, const Model *thin, Diag *diag) {
    Priced x = {.cluster = cluster_read(arena, "selene", NULL, diag)};
    PlanRequest request = request_of(thin, l, NULL);
    x.costs = x.cluster ? model_costs_create(arena, &request, x.cluster, diag) : NULL;
    const char *reason = "";
    if (x.costs) {
        x.layout = model_costs_divided(x.costs, l->t, context, experts, l->sequence_parallel,
                                       l->recompute, l->b, lanes, &reason);
    }
    if (!x.layout) BUG("%s %s", diag_text(diag), reason);
    if (schedule_splits(schedule_find(l->schedule))) model_costs_split(x.costs, x.layout);
    x.split = ARENA_ARRAY(arena, int, l->p * l->v);
    x.candidate = (Candidate){.t = l->t,
                              .p = l->p,
                              .d = l->d,
                              .n_chunks = l->v,
                              .micro_batch = l->b,
                              .n_micro = l->n_micro,
                              .schedule = schedule_find(l->schedule),
                              .recompute = l->recompute,
                              .zero = l->zero,
                              .joins_messages = joins && l->zero >= ZERO_GRADIENTS,
                              .sequence_parallel = l->sequence_parallel,
                              .c = context,
                              .e = experts,
                              .r = replicas,
                              .lanes = lanes};
    if (!split_blocks(x.costs, x.layout, candidate_path(&x.candidate), l->v, false, x.split))
        BUG("no split");
    step_memory(x.costs, x.layout, &x.candidate, x.split, &x.cost);
    return x;
}

static void print(const Layout *l, const StepCost *cost, const Plan *plan, int largest) {
    const Stage *stage = &plan->stages[largest];
    const Program *program = &plan->programs[stage->program];
    int64_t beyond = plan_stage_library_bytes(plan, largest), persistent = cost->parameter_bytes;
    persistent += cost->gradient_bytes + cost->optimizer_bytes;
    double frames = 0;
    for (int c = 0; c < l->v; c++) {
        frames += (double)program->frame_bytes[c] * stage->frame_slots[c];
    }
    printf("# %s t%d d%d p%d v%d b%d %s, MB priced and planned: stage %d %d, arena %.1f %.1f, "
           "frames %.1f %.1f, messages %.2f %.2f, scratch %.1f %.1f, persistent %.1f %.1f; "
           "graph nodes %lld %lld\n",
           l->settings, l->t, l->d, l->p, l->v, l->b, l->schedule, cost->worst_stage, largest,
           (double)(cost->memory_bytes - cost->runtime_bytes) / 1e6,
           (double)stage->arena_bytes / 1e6, (double)cost->activation_bytes / 1e6, frames / 1e6,
           (double)cost->message_bytes / 1e6, (double)stage->message_bytes / 1e6,
           (double)cost->scratch_bytes / 1e6, (double)program->scratch_bytes / 1e6,
           (double)persistent / 1e6, (double)program->persistent_bytes / 1e6,
           (long long)(step_graph_bytes(cost) / GRAPH_NODE_BYTES),
           (long long)((beyond - CUDA_CONTEXT_BYTES) / GRAPH_NODE_BYTES));
}

/* Shards may need a little more than is priced, and no stage's messages need more than those of the
 * stage with the largest tensor. The scratch of a head without blocks is packed more tightly than
 * where the price is from, and leaves no memory for attention. Graphs: the norm of divided
 * gradients has a few calls more where some parameters are not divided, and groups of messages are
 * counted by what is full on average. With ZeRO-2 and 3 whole
 * weights and gradients are there for a while: as many as ZERO_LEAD allows are priced, and messages
 * without what packs them. In frames of a backward in two, values that die make room for others, a
 * little more often than is priced, and next to a head's less often. Borders below which nothing
 * trains carry no gradients, and are priced like others. Graphs of Muon are counted as if hardly
 * any matrix were in a stack, those of LAMB without what takes norms out of vectors. In pieces each
 * chunk is priced as if its frames came to all slots. With
 * lanes, what leads to the next block's first message is there while this one's last products run,
 * and activations on their way are priced as they lie beside a head's values, which not all stages
 * have. */
static void compare_with_plan(const Layout *l, const StepCost *cost, const Plan *plan) {
    int largest = largest_stage(plan);
    bool lone_head = l->v == 1 && plan->stages[largest].n_blocks[0] == 0;
    double least = l->zero ? -0.003 : -0.001, most = lone_head ? 0.06 : l->zero ? 0.01 : 0.001;
    double calls = 0.005;
    if (schedule_splits(schedule_find(l->schedule))) {
        most = plan->path == PATH_V ? 0.025 : 0.005;
        if (largest == plan->n_stages - 1) least = -0.015;
    }
    if (l->zero >= ZERO_GRADIENTS) least = -0.02, most = 0.10, calls = joins ? 0.15 : 0.12;
    if (optimizer && l->zero) calls = 0.25, least -= 0.002, most += 0.005;
    if (lanes > 1 && least > -0.003) least = -0.003;
    if (lanes > 1 && calls < 0.006) calls = 0.006;
    if (lanes > 1 && activations) most = 0.005;
    if (frozen.key && l->p > 1) most = 0.02, calls = 0.017;
    if (l->v > 1 && plan_graph_in_pieces(plan, &plan->stages[largest])) calls = 0.12;
    double arena = (double)(cost->memory_bytes - cost->runtime_bytes);
    double planned = (double)plan->stages[largest].arena_bytes, error = arena / planned - 1;
    int64_t beyond = plan_stage_library_bytes(plan, largest);
    double nodes = (double)(beyond - CUDA_CONTEXT_BYTES) / GRAPH_NODE_BYTES;
    double off = (double)(cost->runtime_bytes - beyond) / GRAPH_NODE_BYTES;
    if (getenv("VERBOSE")) print(l, cost, plan, largest);
    CHECK(cost->worst_stage == largest, "%s: priced stage %d, planned stage %d", l->settings,
          cost->worst_stage, largest);
    CHECK(error > least && error < most,
          "%s t=%d d=%d p=%d v=%d b=%d %s: priced %.0f, planned %.0f: %+.3f", l->settings, l->t,
          l->d, l->p, l->v, l->b, l->schedule, arena, planned, error);
    CHECK(fabs(off) <= 2 || fabs(off) < calls * nodes,
          "%s t=%d d=%d p=%d v=%d b=%d %s: %+.0f of %.0f graph nodes", l->settings, l->t, l->d,
          l->p, l->v, l->b, l->schedule, off, nodes);
    double host = (double)plan_largest_host_bytes(plan);
    CHECK(fabs((double)cost->host_bytes - host) <= 0.005 * host,
          "%s: %lld bytes priced on hosts, %.0f planned", l->settings, (long long)cost->host_bytes,
          host);
    CHECK((host > 0) == (offload > 0 || activations > 0), "%.0f bytes on hosts", host);
    double fullest = (double)plan_fullest_bytes(plan);
    error = (double)cost->memory_bytes / fullest - 1;
    CHECK(error > least && error < most, "%s: priced %+.4f of all", l->settings, error);
}

/* Groups of matrices that ranks orthogonalise one after the other: each has three products in each
 * of five steps. */
static void compare_groups(const Layout *l, const ModelCosts *costs, const LayoutCost *layout,
                           const Plan *plan) {
    const Graph *graph = plan->programs[0].graph;
    MuonCost all = {0};
    int n_products = 0, n_priced = 0;
    for (int b = 0; b < costs->n_blocks; b++) {
        muon_cost_add(&all, &layout->kinds[costs->kind_of_block[b]].muon, 1);
    }
    for (int k = 1; k <= MUON_SHAPES; k++) n_priced += (all.n[k] + l->d - 1) / l->d;
    for (int n = 0; n < graph->n_nodes; n++) {
        const Node *node = graph->nodes[n];
        n_products += node->phase == PHASE_UPDATE && node->op == OP_MATMUL;
    }
    CHECK(n_products == 15 * n_priced, "%s d=%d: %d groups priced, %g planned", l->settings, l->d,
          n_priced, n_products / 15.0);
}

static void compare(const Layout *l, Diag *diag) {
    Arena *arena = arena_create();
    ModelSetting settings[4] = {{"size", l->settings}};
    int n = 1;
    if (documents) settings[n++] = (ModelSetting){"documents", documents};
    if (frozen.key) settings[n++] = frozen;
    if (optimizer) settings[n++] = (ModelSetting){"optimizer", optimizer};
    Model *thin = model_load(arena, l->path, settings, n, 1, diag);
    Model *whole = model_load(arena, l->path, settings, n, l->b * l->d * experts * replicas, diag);
    if (!thin || !whole) BUG("%s", diag_text(diag));
    Priced x = price(arena, l, thin, diag);
    PlanRequest request = request_of(whole, l, x.split);
    Plan *plan = plan_make(arena, &request, diag);
    CHECK(plan, "%s", diag_text(diag));
    if (plan) compare_with_plan(l, &x.cost, plan);
    bool muon = optimizer && strcmp(optimizer, "muon") == 0;
    if (plan && muon && l->p == 1) compare_groups(l, x.costs, x.layout, plan);
    arena_destroy(arena);
}

/* Software that issues its operations one by one has no graphs, nor has a processor CUDA. */
static void test_who_captures(const Layout *l, Diag *diag) {
    Arena *arena = arena_create();
    ModelSetting size = {"size", l->settings};
    Model *thin = model_load(arena, l->path, &size, 1, 1, diag);
    if (!thin) BUG("%s", diag_text(diag));
    Priced x = price(arena, l, thin, diag);
    StepCost without = {0};
    check_begin("graphs count for software that captures them, on a GPU");
    CHECK(x.cost.runtime_bytes > CUDA_CONTEXT_BYTES, "%lld", (long long)x.cost.runtime_bytes);
    for (int cpu = 0; cpu < 2; cpu++) {
        x.cluster->is_cpu = cpu;
        x.cluster->software.forward_op_us = cpu ? 0 : 20;
        step_memory(x.costs, x.layout, &x.candidate, x.split, &without);
        CHECK(without.runtime_bytes == 0 &&
                  without.memory_bytes == x.cost.memory_bytes - x.cost.runtime_bytes,
              "%s: %lld bytes", cpu ? "a processor" : "no graphs",
              (long long)without.runtime_bytes);
    }
    arena_destroy(arena);
}

/* What tasks wait for copies by a plan's clock: they are longer than with a bus that takes no time.
 */
static void plan_waits(const Plan *plan, Cluster *cluster, double rate, double us[2],
                       Arena *arena) {
    for (int free = 0; free < 2; free++) {
        cluster->node.host_bytes_per_second = free ? 1e18 : rate;
        const Device device = device_of_cluster(cluster, DTYPE_BF16);
        ProgramCost cost = cost_program(plan, 0, &device, arena);
        us[0] = cost.forward[0].us - (free ? us[0] : 0);
        us[1] = cost.backward[0].us - (free ? us[1] : 0);
    }
    us[0] = -us[0], us[1] = -us[1];
}

/* Of one stage: by a bus that hides all, most, some and nearly nothing. */
static void test_waits(const Layout *l, Diag *diag) {
    static const double RATES[] = {400e9, 40e9, 10e9, 1e9};
    ModelSetting size = {"size", l->settings};
    Arena *arena = arena_create();
    Model *thin = model_load(arena, l->path, &size, 1, 1, diag);
    Model *whole = model_load(arena, l->path, &size, 1, l->b, diag);
    Cluster *cluster = cluster_read(arena, "selene", NULL, diag);
    if (!thin || !whole || !cluster) BUG("%s", diag_text(diag));
    PlanRequest request = request_of(thin, l, NULL), made = request_of(whole, l, NULL);
    made.options.priced = true;
    Plan *plan = plan_make(arena, &made, diag);
    if (!plan) BUG("%s", diag_text(diag));
    for (size_t i = 0; i < sizeof(RATES) / sizeof(RATES[0]); i++) {
        double us[2];
        const char *reason = "";
        cluster->node.host_fraction = 1;
        plan_waits(plan, cluster, RATES[i], us, arena);
        cluster->node.host_bytes_per_second = RATES[i];
        ModelCosts *costs = model_costs_create(arena, &request, cluster, diag);
        if (!costs) BUG("%s", diag_text(diag));
        const LayoutCost *layout = model_costs_at(costs, 1, false, l->recompute, l->b, &reason);
        OffloadChunk chunk = offload_chunk(costs, layout, 0, costs->n_blocks, true, true);
        double bus_us = (double)chunk.host_bytes / RATES[i] * 1e6;
        CHECK(fabs(chunk.forward_us - us[0]) < 0.002 * bus_us + 1 &&
                  fabs(chunk.backward_us - us[1]) < 0.002 * bus_us + 1,
              "%s, %g GB/s: %.1f and %.1f us priced, %.1f and %.1f planned, of %.1f", l->path,
              RATES[i] / 1e9, chunk.forward_us, chunk.backward_us, us[0], us[1], bus_us);
    }
    arena_destroy(arena);
}

static void compare_all(const Layout *layouts, size_t count, size_t step, Diag *diag) {
    for (size_t i = 0; i < count; i += step) compare(&layouts[i], diag);
}

int main(void) {
    static const Layout LAYOUTS[] = {
        {"models/gpt.lua", "124m", 1, 1, 1, 1, 4, 4, "1f1b", false, false, RECOMPUTE_NONE, 0},
        {"models/gpt.lua", "124m", 2, 2, 2, 1, 4, 4, "1f1b", true, false, RECOMPUTE_NONE, 0},
        {"models/gpt.lua", "124m", 2, 1, 4, 1, 2, 8, "gpipe", false, false, RECOMPUTE_NONE, 0},
        {"models/gpt.lua", "124m", 2, 2, 2, 3, 2, 4, "interleaved", false, true, RECOMPUTE_NONE, 0},
        {"models/gpt.lua", "124m", 4, 1, 4, 3, 2, 8, "interleaved", true, false, RECOMPUTE_NONE, 0},
        {"models/gpt.lua", "774m", 1, 1, 6, 3, 1, 12, "interleaved", false, false, RECOMPUTE_FULL,
         0},
        {"models/gpt.lua", "774m", 2, 1, 6, 1, 2, 12, "1f1b", true, false, RECOMPUTE_SELECTIVE, 0},
        {"models/gpt.lua", "175b", 8, 1, 16, 1, 1, 32, "1f1b", true, false, RECOMPUTE_SELECTIVE, 0},
        {"models/gpt.lua", "175b", 8, 1, 8, 6, 1, 16, "interleaved", true, false, RECOMPUTE_NONE,
         0},
        {"models/gpt.lua", "175b", 8, 1, 8, 1, 2, 16, "1f1b", false, false, RECOMPUTE_FULL, 0},
        {"models/llama.lua", "405b", 8, 1, 16, 1, 1, 16, "1f1b", true, false, RECOMPUTE_NONE, 0},
        {"models/gpt.lua", "124m", 1, 4, 1, 1, 2, 4, "1f1b", false, false, RECOMPUTE_NONE, 1},
        {"models/gpt.lua", "124m", 2, 2, 2, 1, 4, 4, "1f1b", true, false, RECOMPUTE_NONE, 1},
        {"models/gpt.lua", "124m", 2, 8, 2, 3, 2, 4, "interleaved", false, false, RECOMPUTE_NONE,
         1},
        {"models/gpt.lua", "175b", 8, 8, 8, 6, 1, 16, "interleaved", true, false, RECOMPUTE_NONE,
         1},
        /* the first stage has the largest arena; the second the larger graph, and most in all */
        {"models/gpt.lua", "124m", 1, 1, 3, 1, 2, 360, "1f1b", false, false, RECOMPUTE_FULL, 0},
        {"models/llama.lua", "405b", 8, 128, 16, 1, 1, 16, "1f1b", true, false, RECOMPUTE_NONE, 1},
        /* more chunks than blocks: the first and the last have none; Llama 3's own layout */
        {"models/llama.lua", "405b", 8, 1, 16, 8, 1, 16, "interleaved", true, false,
         RECOMPUTE_SELECTIVE, 0},
        {"models/gpt.lua", "124m", 2, 2, 2, 7, 2, 4, "interleaved", true, false, RECOMPUTE_NONE, 1},
        /* a V: both ends of the model on one stage, the turn on another, and on one by itself */
        {"models/gpt.lua", "124m", 1, 1, 3, 2, 2, 8, "zb-v", false, false, RECOMPUTE_NONE, 0},
        {"models/gpt.lua", "124m", 2, 2, 2, 2, 4, 4, "zb-v", true, false, RECOMPUTE_SELECTIVE, 0},
        {"models/llama.lua", "405b", 8, 1, 16, 2, 1, 32, "zb-v", true, false, RECOMPUTE_NONE, 0},
        {"models/gpt.lua", "124m", 1, 1, 5, 2, 2, 12, "v-half", false, false, RECOMPUTE_NONE, 0},
        {"models/llama.lua", "405b", 8, 1, 16, 2, 1, 32, "v-half", true, false, RECOMPUTE_NONE, 0},
        {"models/gpt.lua", "124m", 1, 1, 14, 1, 2, 14, "1f1b", false, false, RECOMPUTE_FULL, 0},
        {"models/gpt.lua", "124m", 1, 1, 13, 1, 2, 2, "gpipe", false, false, RECOMPUTE_NONE, 0},
        /* backwards in two: what lives where in a frame depends on when */
        {"models/gpt.lua", "124m", 2, 2, 2, 1, 4, 4, "zb-h1", true, false, RECOMPUTE_NONE, 0},
        {"models/gpt.lua", "774m", 2, 1, 6, 1, 2, 12, "zb-h1", false, false, RECOMPUTE_SELECTIVE,
         0},
        {"models/llama.lua", "405b", 8, 1, 16, 1, 1, 16, "zb-h1", true, false, RECOMPUTE_NONE, 0},
        {"models/gpt.lua", "175b", 8, 8, 8, 1, 1, 16, "zb-h1", true, true, RECOMPUTE_NONE, 2},
        {"models/gpt.lua", "175b", 8, 1, 8, 6, 1, 16, "zb-chunked", true, false, RECOMPUTE_NONE, 0},
        /* gradients divided, and weights */
        {"models/gpt.lua", "124m", 1, 4, 1, 1, 2, 4, "1f1b", false, false, RECOMPUTE_NONE, 2},
        {"models/gpt.lua", "124m", 1, 4, 1, 1, 2, 4, "1f1b", false, true, RECOMPUTE_NONE, 3},
        {"models/gpt.lua", "124m", 2, 2, 2, 1, 4, 4, "1f1b", true, false, RECOMPUTE_NONE, 3},
        {"models/gpt.lua", "774m", 2, 4, 2, 3, 1, 12, "interleaved", false, false, RECOMPUTE_FULL,
         3},
        {"models/gpt.lua", "175b", 8, 8, 8, 6, 1, 16, "interleaved", true, false, RECOMPUTE_NONE,
         3},
        {"models/llama.lua", "405b", 8, 128, 16, 1, 1, 16, "1f1b", true, false, RECOMPUTE_FULL, 2},
        {"models/llama.lua", "405b", 8, 128, 16, 8, 1, 16, "interleaved", true, false,
         RECOMPUTE_NONE, 3},
        {"models/llama.lua", "8b", 1, 8, 1, 1, 1, 8, "1f1b", false, false, RECOMPUTE_SELECTIVE, 3},
        {"models/llama.lua", "70b", 1, 64, 1, 1, 1, 1, "1f1b", false, false, RECOMPUTE_FULL, 3},
        {"models/llama.lua", "70b", 1, 64, 1, 1, 1, 1, "1f1b", false, false, RECOMPUTE_FULL, 2},
        /* experts */
        {"models/moe.lua", "mixtral-8x7b", 4, 1, 8, 1, 1, 16, "1f1b", true, false, RECOMPUTE_FULL,
         0},
        {"models/moe.lua", "mixtral-8x7b", 8, 4, 2, 1, 1, 8, "1f1b", true, false, RECOMPUTE_NONE,
         1},
        {"models/moe.lua", "qwen3-30b-a3b", 4, 8, 1, 1, 1, 4, "1f1b", true, false,
         RECOMPUTE_SELECTIVE, 3},
        /* heads of states that ranks divide */
        {"models/hybrid.lua", "mamba2-130m", 2, 1, 2, 1, 2, 4, "1f1b", true, false,
         RECOMPUTE_SELECTIVE, 0},
        /* one key/value head, which four ranks share */
        {"models/gemma.lua", "3-1b", 4, 2, 1, 1, 1, 4, "1f1b", false, false, RECOMPUTE_NONE, 0},
        /* blocks that share weights: three stages hold some, two of them others */
        {"tests/models/shared.lua", "wide", 1, 1, 1, 1, 2, 4, "1f1b", false, false, RECOMPUTE_NONE,
         0},
        {"tests/models/shared.lua", "wide", 1, 1, 3, 1, 2, 8, "1f1b", false, false, RECOMPUTE_NONE,
         0},
        {"tests/models/shared.lua", "wide", 2, 2, 4, 1, 2, 8, "1f1b", false, true, RECOMPUTE_FULL,
         0},
        {"tests/models/shared.lua", "wide", 1, 1, 2, 2, 2, 8, "interleaved", false, false,
         RECOMPUTE_NONE, 0},
    };
    Diag *diag = diag_create();
    check_begin("memory priced is memory planned, within 0.1 %; with ZeRO-1 within 1 %, "
                "with ZeRO-2 and 3 from 2 % below to 10 % above");
    compare_all(LAYOUTS, sizeof(LAYOUTS) / sizeof(LAYOUTS[0]), LAYOUT_STEP, diag);
    static const Layout PIECES[] = {
        {"models/gpt.lua", "124m", 1, 1, 1, 1, 1, 800, "1f1b", false, false, RECOMPUTE_NONE, 0},
        {"models/gpt.lua", "124m", 1, 1, 3, 1, 2, 1000, "1f1b", false, false, RECOMPUTE_FULL, 0},
        {"models/gpt.lua", "175b", 8, 1, 8, 6, 1, 256, "interleaved", true, false, RECOMPUTE_NONE,
         0},
        {"models/gpt.lua", "175b", 8, 1, 8, 1, 1, 256, "zb-h1", true, false, RECOMPUTE_NONE, 0},
    };
    check_begin("so it is where steps go in pieces");
    compare_all(PIECES, sizeof(PIECES) / sizeof(PIECES[0]), LAYOUT_STEP, diag);
    check_begin("so it is where a block's messages are one, with ZeRO-2 and 3");
    joins = true;
    for (size_t i = 0; i < sizeof(LAYOUTS) / sizeof(LAYOUTS[0]); i += LAYOUT_STEP) {
        if (LAYOUTS[i].zero >= ZERO_GRADIENTS) compare(&LAYOUTS[i], diag);
    }
    joins = false;
    static const Layout DIVIDED[] = {
        {"models/gpt.lua", "124m", 2, 2, 2, 1, 4, 4, "1f1b", true, false, RECOMPUTE_NONE, 0},
        {"models/llama.lua", "405b", 8, 1, 16, 1, 1, 16, "1f1b", true, false, RECOMPUTE_NONE, 0},
        {"models/llama.lua", "8b", 1, 1, 2, 1, 1, 8, "1f1b", false, false, RECOMPUTE_FULL, 1},
        {"models/llama.lua", "8b", 1, 2, 1, 1, 1, 8, "1f1b", false, false, RECOMPUTE_SELECTIVE, 3},
    };
    check_begin("so it is with c");
    context = 4;
    compare_all(DIVIDED, sizeof(DIVIDED) / sizeof(DIVIDED[0]), LAYOUT_STEP, diag);
    context = 1;
    static const Layout REPEATED[] = {
        {"models/gpt.lua", "124m", 2, 2, 2, 1, 4, 4, "1f1b", true, false, RECOMPUTE_NONE, 1},
        {"models/llama.lua", "8b", 1, 8, 1, 1, 1, 2, "1f1b", false, false, RECOMPUTE_NONE, 2},
        {"models/llama.lua", "8b", 1, 8, 1, 1, 1, 2, "1f1b", false, false, RECOMPUTE_FULL, 3},
    };
    check_begin("so it is with r");
    replicas = 4;
    compare_all(REPEATED, sizeof(REPEATED) / sizeof(REPEATED[0]), LAYOUT_STEP, diag);
    replicas = 1;
    static const Layout LANES[] = {
        {"models/gpt.lua", "124m", 2, 2, 2, 1, 4, 4, "1f1b", true, false, RECOMPUTE_NONE, 0},
        {"models/llama.lua", "70b", 8, 1, 4, 1, 2, 8, "1f1b", true, false, RECOMPUTE_SELECTIVE, 0},
        {"models/gpt.lua", "175b", 8, 8, 8, 6, 2, 16, "interleaved", true, false, RECOMPUTE_NONE,
         1},
        {"models/llama.lua", "405b", 8, 1, 16, 1, 2, 16, "zb-h1", true, false, RECOMPUTE_NONE, 0},
        {"models/llama.lua", "8b", 2, 8, 1, 1, 4, 8, "1f1b", false, false, RECOMPUTE_FULL, 3},
        {"models/llama.lua", "70b", 8, 1, 2, 6, 2, 16, "zb-chunked", true, false, RECOMPUTE_NONE,
         0},
    };
    check_begin("so it is in lanes");
    lanes = 2;
    compare_all(LANES, sizeof(LANES) / sizeof(LANES[0]), LAYOUT_STEP, diag);
    lanes = 1;
    static const Layout PACKED[] = {
        {"models/gpt.lua", "124m", 1, 1, 3, 1, 2, 64, "1f1b", false, false, RECOMPUTE_FULL, 0},
        {"models/gpt.lua", "124m", 2, 1, 2, 3, 4, 8, "interleaved", true, false, RECOMPUTE_NONE, 0},
    };
    check_begin("so it is within documents");
    documents = "50256";
    for (int i = 0; i < 2; i++) compare(&PACKED[i], diag);
    documents = NULL;
    static const Layout OFFLOADED[] = {
        {"models/llama.lua", "8b", 1, 1, 1, 1, 1, 8, "1f1b", false, false, RECOMPUTE_SELECTIVE, 0},
        {"models/gpt.lua", "124m", 2, 2, 2, 1, 4, 4, "1f1b", true, false, RECOMPUTE_NONE, 1},
        {"models/gpt.lua", "774m", 2, 1, 6, 1, 2, 12, "1f1b", true, true, RECOMPUTE_NONE, 0},
        {"models/moe.lua", "mixtral-8x7b", 4, 1, 8, 1, 1, 16, "1f1b", true, false, RECOMPUTE_FULL,
         0},
        {"models/llama.lua", "8b", 1, 8, 1, 1, 1, 8, "1f1b", false, false, RECOMPUTE_SELECTIVE, 3},
    };
    check_begin("and with states and masters in the hosts' memory");
    offload = 100;
    offload = 100;
    compare_all(OFFLOADED, sizeof(OFFLOADED) / sizeof(OFFLOADED[0]), LAYOUT_STEP, diag);
    offload = 35;
    for (int i = 0; i < 3; i++) compare(&OFFLOADED[i], diag);
    offload = 0;
    static const Layout FAR[] = {
        {"models/llama.lua", "8b", 1, 1, 1, 1, 1, 8, "1f1b", false, false, RECOMPUTE_NONE, 0},
        {"models/gpt.lua", "124m", 2, 2, 2, 3, 2, 4, "interleaved", true, true, RECOMPUTE_NONE, 0},
        {"models/gpt.lua", "774m", 2, 1, 6, 1, 2, 12, "1f1b", true, true, RECOMPUTE_SELECTIVE, 0},
        {"models/gpt.lua", "124m", 2, 2, 2, 1, 4, 4, "1f1b", true, false, RECOMPUTE_NONE, 1},
        {"models/gpt.lua", "124m", 2, 1, 4, 1, 2, 8, "gpipe", false, false, RECOMPUTE_NONE, 0},
        {"models/gpt.lua", "124m", 1, 1, 6, 1, 2, 8, "1f1b", false, false, RECOMPUTE_FULL, 0},
        {"models/gpt.lua", "774m", 1, 1, 6, 3, 1, 12, "interleaved", false, false, RECOMPUTE_FULL,
         0},
        {"models/gpt.lua", "124m", 2, 2, 2, 5, 2, 4, "interleaved", true, false, RECOMPUTE_NONE, 1},
        {"models/llama.lua", "8b", 1, 8, 1, 1, 1, 4, "1f1b", false, false, RECOMPUTE_NONE, 3},
        {"models/llama.lua", "8b", 1, 8, 1, 1, 1, 4, "1f1b", false, false, RECOMPUTE_FULL, 2},
        {"models/gemma.lua", "3-1b", 4, 2, 1, 1, 1, 4, "1f1b", false, false, RECOMPUTE_NONE, 0},
        {"models/deepseek.lua", "v2-lite", 1, 1, 2, 1, 1, 4, "1f1b", false, false,
         RECOMPUTE_SELECTIVE, 0},
        {"models/hybrid.lua", "mamba2-130m", 2, 1, 2, 1, 2, 4, "1f1b", true, false,
         RECOMPUTE_SELECTIVE, 0},
        {"tests/models/shared.lua", "wide", 1, 1, 3, 1, 2, 8, "1f1b", false, false, RECOMPUTE_NONE,
         0},
    };
    check_begin("and with activations there: with p, interleaved, t, d, ZeRO and recomputation");
    activations = 100;
    compare_all(FAR, sizeof(FAR) / sizeof(FAR[0]), LAYOUT_STEP, diag);
    static const Layout WAITS[] = {
        {"models/gpt.lua", "124m", 1, 1, 1, 1, 4, 4, "1f1b", false, false, RECOMPUTE_NONE, 0},
        {"models/gemma.lua", "3-1b", 1, 1, 1, 1, 1, 4, "1f1b", false, false, RECOMPUTE_SELECTIVE,
         0},
    };
    check_begin("what their copies wait for is what they wait for in a plan");
    for (int i = 0; i < 2; i += LAYOUT_STEP) test_waits(&WAITS[i], diag);
    check_begin("and with a share of them, and states");
    activations = 50, offload = 100;
    compare_all(FAR, 3, LAYOUT_STEP, diag);
    check_begin("and in lanes, and with c");
    activations = 100, offload = 0;
    lanes = 2;
    compare(&FAR[2], diag);
    lanes = 1, context = 2;
    if (LAYOUT_STEP == 1) compare(&FAR[1], diag);
    context = 1;
    activations = 0;
    static const Layout FROZEN[] = {
        {"models/llama.lua", "8b", 2, 2, 2, 1, 1, 8, "1f1b", true, false, RECOMPUTE_NONE, 1},
        {"models/llama.lua", "8b", 1, 8, 1, 1, 1, 8, "1f1b", false, false, RECOMPUTE_SELECTIVE, 3},
        {"models/llama.lua", "8b", 1, 1, 1, 1, 1, 4, "1f1b", false, false, RECOMPUTE_FULL, 0},
        {"models/gpt.lua", "124m", 2, 1, 2, 3, 2, 4, "interleaved", true, false, RECOMPUTE_NONE, 0},
    };
    check_begin("and with adapters beside frozen weights");
    frozen = (ModelSetting){"lora", "16"};
    for (int i = 0; i < 2; i++) compare(&FROZEN[i], diag);
    check_begin("and with these in 4 bits");
    frozen_bits = 4;
    for (int i = 0; i < 2; i++) compare(&FROZEN[i], diag);
    frozen_bits = 0;
    check_begin("and where some blocks train, the first not");
    frozen = (ModelSetting){"freeze", "*,!blocks.1?.*"};
    for (int i = 2; i < 4; i++) compare(&FROZEN[i], diag);
    frozen = (ModelSetting){NULL, NULL};
    static const Layout EXPERTS[] = {
        {"models/moe.lua", "mixtral-8x7b", 2, 1, 4, 1, 1, 8, "1f1b", true, false, RECOMPUTE_FULL,
         0},
        {"models/moe.lua", "mixtral-8x7b", 1, 2, 4, 1, 1, 8, "1f1b", false, false, RECOMPUTE_NONE,
         1},
        {"models/moe.lua", "qwen3-30b-a3b", 1, 2, 2, 1, 1, 8, "1f1b", false, false,
         RECOMPUTE_SELECTIVE, 3},
        {"models/moe.lua", "qwen3-30b-a3b", 2, 1, 2, 1, 1, 8, "zb-h1", true, false, RECOMPUTE_NONE,
         2},
    };
    check_begin("and with e");
    experts = 4;
    compare_all(EXPERTS, sizeof(EXPERTS) / sizeof(EXPERTS[0]), VARIANT_STEP, diag);
    context = 2; /* ZeRO divides experts over d, or over c where there is no d */
    static const Layout CONTEXT[] = {
        {"models/moe.lua", "qwen3-30b-a3b", 2, 1, 2, 1, 1, 8, "1f1b", true, false, RECOMPUTE_FULL,
         3},
        {"models/moe.lua", "qwen3-30b-a3b", 1, 2, 4, 1, 1, 8, "1f1b", false, false, RECOMPUTE_FULL,
         1},
    };
    check_begin("and with c and e, or c alone");
    compare(&CONTEXT[0], diag);
    experts = 1;
    compare(&CONTEXT[1], diag);
    context = 1;
    static const Layout SHARDED[] = {
        {"models/gpt.lua", "774m", 2, 4, 2, 1, 1, 8, "1f1b", true, false, RECOMPUTE_FULL, 1},
        {"models/llama.lua", "8b", 1, 8, 1, 1, 1, 8, "1f1b", false, false, RECOMPUTE_FULL, 1},
        {"models/llama.lua", "8b", 1, 8, 1, 1, 1, 8, "1f1b", false, false, RECOMPUTE_FULL, 3},
        {"models/gpt.lua", "774m", 1, 1, 2, 1, 1, 8, "1f1b", false, false, RECOMPUTE_FULL, 0},
    };
    static const char *const OPTIMIZERS[] = {"muon", "lamb"};
    for (int o = 0; o < 2; o++) {
        optimizer = OPTIMIZERS[o];
        check_begin(o ? "and with LAMB" : "and with Muon");
        for (int i = 0; i < 4; i += VARIANT_STEP) compare(&SHARDED[i], diag);
    }
    static const Layout ROUNDED[] = {
        {"models/gpt.lua", "124m", 1, 1, 1, 1, 4, 1, "1f1b", false, false, RECOMPUTE_NONE, 0},
        {"models/gpt.lua", "124m", 2, 4, 1, 1, 4, 4, "1f1b", true, false, RECOMPUTE_NONE, 1},
        {"models/llama.lua", "8b", 1, 8, 1, 1, 1, 1, "1f1b", false, false, RECOMPUTE_FULL, 1},
        {"models/llama.lua", "8b", 1, 8, 1, 1, 1, 1, "1f1b", false, false, RECOMPUTE_FULL, 2},
        {"models/llama.lua", "8b", 1, 8, 1, 1, 1, 1, "1f1b", false, false, RECOMPUTE_SELECTIVE, 3},
        {"models/llama.lua", "8b", 1, 8, 1, 1, 1, 8, "1f1b", false, false, RECOMPUTE_FULL, 2},
        {"models/llama.lua", "8b", 2, 8, 1, 1, 1, 8, "1f1b", true, false, RECOMPUTE_FULL, 3},
        {"models/llama.lua", "8b", 1, 1, 2, 1, 1, 8, "1f1b", false, false, RECOMPUTE_FULL, 0},
    };
    gradients = DTYPE_BF16;
    for (int i = 0; i < 2; i++) {
        joins = i;
        check_begin(i ? "and with gradients in bf16, and blocks' messages as one"
                      : "and with gradients in bf16, of one micro-batch and of several");
        for (size_t k = 0; k < sizeof(ROUNDED) / sizeof(ROUNDED[0]); k += VARIANT_STEP) {
            if (!joins || ROUNDED[k].zero >= ZERO_GRADIENTS) compare(&ROUNDED[k], diag);
        }
    }
    joins = false;
    gradients = DTYPE_F32;
    splits = true;
    check_begin("and with copies that are halves of their parameters");
    for (size_t k = 0; k < sizeof(ROUNDED) / sizeof(ROUNDED[0]); k += VARIANT_STEP) {
        compare(&ROUNDED[k], diag);
    }
    splits = false;
    static const Layout UNEVEN[] = {
        {"models/gpt.lua", "124m", 1, 5, 1, 1, 1, 8, "1f1b", false, false, RECOMPUTE_FULL, 1},
        {"models/gpt.lua", "124m", 1, 20, 1, 1, 1, 8, "1f1b", false, false, RECOMPUTE_FULL, 1},
        {"models/gpt.lua", "124m", 1, 20, 1, 1, 1, 8, "1f1b", false, false, RECOMPUTE_FULL, 2},
    };
    static const Layout STUCK[] = {
        {"models/gpt.lua", "1.5b", 1, 128, 1, 1, 1, 4, "1f1b", false, false, RECOMPUTE_NONE, 1},
        {"models/gpt.lua", "1.5b", 1, 128, 1, 1, 1, 4, "1f1b", false, false, RECOMPUTE_NONE, 2},
        {"models/gpt.lua", "1.5b", 1, 512, 1, 1, 1, 1, "1f1b", false, false, RECOMPUTE_NONE, 1},
        {"models/gpt.lua", "1.5b", 1, 128, 1, 1, 1, 4, "1f1b", false, false, RECOMPUTE_NONE, 3},
    };
    check_begin("and where they divide no axis of some weights, or of any");
    for (size_t k = 0; k < sizeof(STUCK) / sizeof(STUCK[0]); k++) compare(&STUCK[k], diag);
    optimizer = "muon";
    check_begin("and where the ranks of ZeRO divide no side of a matrix");
    for (int i = 0; i < 3; i++) compare(&UNEVEN[i], diag);
    optimizer = NULL;
    test_who_captures(&LAYOUTS[0], diag);
    diag_destroy(diag);
    return check_report();
}
