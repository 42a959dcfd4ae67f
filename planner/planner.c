/* plan_make: the pipeline itself. Passes run on the whole step's graph up to the collectives, then
 * on each distinct stage program; schedule, memory and the proofs follow. */
#include "planner/planner.h"

#include "ir/base/memory.h"
#include "ir/ops/parts.h"
#include "ir/ops/route.h"
#include "planner/passes/pass.h"
#include "planner/plan/plan_library.h"
#include "planner/plan/schedule.h"

#include <stdlib.h>
#include <string.h>

typedef struct PassStep {
    const char *name;
    PassFunction run;
} PassStep;

static const PassStep STEPS[] = {
#define PASS(name, reason, legal) {#name, pass_##name},
#include "planner/passes/passes.def"
#undef PASS
};
enum { N_STEPS = sizeof(STEPS) / sizeof(STEPS[0]) };

static void dump(const PassContext *ctx, const char *pass, const Graph *graph) {
    if (!ctx->options.dump_after || strcmp(ctx->options.dump_after, pass) != 0) return;
    graph_print(ctx->options.dump, graph);
}

/* The passes before and from `split_backward` on. */
static const char LAST_OF_STEM[] = "multiply_fp8", FIRST_BEHIND_STEM[] = "split_backward";

/* A graph between two passes, and the arena that has nothing else (NULL: the graph is not ours). */
typedef struct Stretch {
    const Graph *graph;
    Arena *arena;
} Stretch;

/* Runs the passes from `first` up to the one named `last`, verifying what each made. That is
 * freed once the next has read it, as there are some hundred bytes for each of a node's many lives.
 */
static bool run_passes(Stretch *at, const char *first, const char *last, PassContext *ctx) {
    bool started = false, verified = false;
    for (int i = 0; i < (int)N_STEPS; i++) {
        started |= strcmp(STEPS[i].name, first) == 0;
        if (!started) continue;
        ctx->arena = arena_create();
        Stretch next = {STEPS[i].run(at->graph, ctx), ctx->arena};
        bool same = next.graph == at->graph; /* the pass had nothing to do */
        arena_destroy(same ? next.arena : at->arena);
        if (same) next.arena = at->arena;
        *at = next;
        if (!next.graph) return false;
        bool known = same && verified;
        if (!known && !graph_verify(next.graph, ctx->diag))
            BUG("pass %s made an ill-formed graph:\n%s", STEPS[i].name, diag_text(ctx->diag));
        verified = true;
        dump(ctx, STEPS[i].name, next.graph);
        if (strcmp(STEPS[i].name, last) == 0) break;
    }
    return true;
}

static bool check_parts(const PlanRequest *request, Diag *diag) {
    int n_parts = request->options.expert_parts;
    for (int n = 0; n < request->forward->n_nodes; n++) {
        if (request->forward->nodes[n]->op == OP_ROUTE) return true;
    }
    if (n_parts < 2) return true;
    diag_error(diag, NO_LOC,
               "--expert-parts %d: the model routes no tokens to experts, whose slots it would cut",
               n_parts);
    return false;
}

static bool check_replicas(const PlanOptions *options, Diag *diag) {
    int r = options->mesh.size[MESH_R], d = options->mesh.size[MESH_D];
    if (r == 1 || (d > 1 && options->zero)) return true;
    const int *size = options->mesh.size;
    if (options->zero && (size[MESH_C] > 1 || size[MESH_E] > 1)) {
        diag_error(diag, NO_LOC,
                   "r=%d needs d of more than 1: what --zero divides over c and e alone cannot be "
                   "repeated yet",
                   r);
        return false;
    }
    diag_error(diag, NO_LOC,
               "r=%d repeats what --zero divides over d, and %s: d=%d alone says the same", r,
               options->zero ? "d is 1" : "--zero is 0", r * d);
    return false;
}

/* Who reads whole weights meets none in halves. */
static bool check_masters(const PlanRequest *request, Diag *diag) {
    if (!request->options.split_masters) return true;
    if (request->options.ema_decay != 0) {
        diag_error(diag, NO_LOC,
                   "--ema with --masters split: averages are made of whole weights; leave out one "
                   "of them");
        return false;
    }
    if (request->recipe.optimizer == OPTIMIZER_RULE) {
        diag_error(diag, NO_LOC,
                   "--masters split: an optimizer that is a formula in Lua reads and writes whole "
                   "weights; leave it out, or take adamw, sgd, lion or muon");
        return false;
    }
    return true;
}

static bool check_request(const PlanRequest *request, Diag *diag) {
    const PlanOptions *options = &request->options;
    for (int axis = 0; axis < N_MESH_AXES; axis++) {
        if (options->mesh.size[axis] >= 1 && options->mesh.size[axis] <= 65536) continue;
        diag_error(diag, NO_LOC, "--mesh: %s=%d; each size must be between 1 and 65536",
                   mesh_axis_name(axis), options->mesh.size[axis]);
        return false;
    }
    if (options->micro_batch < 1 || options->global_batch < 1) {
        diag_error(diag, NO_LOC, "micro-batch and global batch must be at least 1");
        return false;
    }
    int e = options->mesh.size[MESH_E], parts = mesh_batch_parts(&options->mesh);
    if ((int64_t)options->global_batch % ((int64_t)options->micro_batch * parts) != 0) {
        diag_error(diag, NO_LOC, "global batch %d is not a multiple of micro-batch %d x %s %d",
                   options->global_batch, options->micro_batch, mesh_batch_name(&options->mesh),
                   parts);
        return false;
    }
    if (!check_replicas(options, diag)) return false;
    if (options->micro_batch % 2 != 0 && !options->priced && graph_has_pairs(request->forward)) {
        diag_error(
            diag, NO_LOC,
            "--micro-batch: %d; rows of the batch are pairs, a chosen and a rejected answer, "
            "so it must be even",
            options->micro_batch);
        return false;
    }
    if (options->lanes < 0 || (options->lanes > 1 && options->micro_batch % options->lanes)) {
        diag_error(diag, NO_LOC,
                   "--lanes %d: a micro-batch of %d is no multiple of it, so lanes would differ",
                   options->lanes, options->micro_batch);
        return false;
    }
    const AxisTable *axes = &request->forward->axes;
    if (e > 1 && axis_find(axes, "experts", 7) < 0) {
        diag_error(
            diag, NO_LOC,
            "--ep %d: the model has no axis 'experts' to divide; --data-parallel divides the "
            "batch alone",
            e);
        return false;
    }
    if (!check_parts(request, diag)) return false;
    if (request->settings && strlen(request->settings) >= PLAN_MAX_QUOTED) {
        diag_error(diag, NO_LOC,
                   "the model's settings are %zu bytes of text; a plan, which keeps them for those "
                   "who read its weights, has room for %d",
                   strlen(request->settings), PLAN_MAX_QUOTED - 1);
        return false;
    }
    if (options->n_chunks < 1 || options->n_chunks > MAX_CHUNKS) {
        diag_error(diag, NO_LOC, "--chunks: %d; must be between 1 and %d", options->n_chunks,
                   MAX_CHUNKS);
        return false;
    }
    if (options->zero < 0 || options->zero >= N_ZERO_STAGES) {
        diag_error(diag, NO_LOC,
                   "--zero: %d; there is 0 (every rank has everything), 1 (optimizer state divided "
                   "over d), 2 (gradients, too) and 3 (weights, too)",
                   options->zero);
        return false;
    }
    if (!check_masters(request, diag)) return false;
    PipelineShape shape = {.p = options->mesh.size[MESH_P],
                           .n_chunks = options->n_chunks,
                           .n_micro = options->global_batch / (options->micro_batch * parts)};
    if (!schedule_check(options->schedule, &shape, NO_LOC, diag)) return false;
    if (options->recompute == RECOMPUTE_FULL && schedule_splits(schedule_find(options->schedule))) {
        diag_error(
            diag, NO_LOC,
            "--recompute full with schedule %s: gradients of weights would need each block's "
            "forward a third time, or what recomputing saves; use selective, or 1f1b",
            options->schedule);
        return false;
    }
    if (options->offload_activations && schedule_splits(schedule_find(options->schedule))) {
        diag_error(diag, NO_LOC,
                   "--offload activations with schedule %s: what gradients of weights read would "
                   "have to come back twice; use 1f1b, gpipe or interleaved",
                   options->schedule);
        return false;
    }
    return true;
}

/* Does any program keep activations with the host? */
static bool check_offloaded(const Plan *plan, Diag *diag) {
    if (!plan->offload_activations) return true;
    for (int i = 0; i < plan->n_programs; i++) {
        for (int c = 0; c < plan->n_chunks; c++) {
            if (plan->programs[i].host_frame_bytes[c] > 0) return true;
        }
    }
    static const char WHY[] =
        "--offload activations: nothing goes: the last block of each chunk keeps its values";
    if (plan->offload_activations == 100) {
        diag_error(diag, NO_LOC, "%s: use fewer chunks or stages", WHY);
    } else {
        diag_error(diag, NO_LOC,
                   "%s, and of another block %d %% is less than half of its smallest: use fewer "
                   "chunks or stages, or a larger share",
                   WHY, plan->offload_activations);
    }
    return false;
}

static void count_model(Plan *plan, const Graph *graph) {
    Arena *arena = arena_create();
    RouteSet routes = route_find_all(graph, arena);
    for (int n = 0; n < graph->n_nodes; n++) {
        const Node *node = graph->nodes[n];
        Type inputs[8];
        if (node->op == OP_PARAM) {
            int64_t elements = type_elements(&node->types[0]);
            plan->n_parameters += elements;
            if (!node_is_frozen(node)) plan->n_trained += elements;
        }
        if (node->phase == PHASE_UPDATE) continue;
        if (!op_multiplies(node->op)) continue;
        for (int i = 0; i < node->n_inputs; i++) inputs[i] = *value_type(node->inputs[i]);
        double flops =
            op_model_flops(node, inputs, node->types) * route_active_share(&routes, node);
        plan->model_flops += flops * plan->global_batch /
                             ((double)plan->micro_batch * mesh_batch_parts(&plan->mesh));
    }
    arena_destroy(arena);
}

/* Does no pass over a stage's graph join it with others, or leave it out? */
static bool stays_node(const Node *node) {
    return !(OPS[node->op].flags & ELEMENTWISE_BIT) && node->op != OP_ACCUMULATE &&
           node->op != OP_DEQUANTIZE;
}

/* Making too many nodes into programs takes minutes, so that they are too many is said before: they
 * are at least as many as one program would have that all stages share. */
static bool check_nodes(const Graph *graph, const Plan *plan, Diag *diag) {
    int64_t n_nodes = 0;
    for (int n = 0; n < graph->n_nodes; n++) n_nodes += stays_node(graph->nodes[n]);
    n_nodes /= plan->n_stages;
    if (n_nodes <= MAX_PLAN_NODES) return true;
    diag_error(diag, NO_LOC,
               "%d blocks on %d pipeline stage%s: the programs would have %lld nodes or more; at "
               "most %d: " PLAN_FEWER_NODES,
               plan->n_blocks, plan->n_stages, plan->n_stages == 1 ? "" : "s", (long long)n_nodes,
               MAX_PLAN_NODES);
    return false;
}

/* The graphs of distinct stages, each with its text, until they are programs. */
typedef struct StageSet {
    int n;
    Stretch *graphs;
    StrBuf *texts;
} StageSet;

static void destroy_stages(StageSet *set) {
    for (int i = 0; i < set->n; i++) {
        strbuf_destroy(&set->texts[i]);
        arena_destroy(set->graphs[i].arena);
    }
}

/* Equal stage graphs share a program: the same text, block numbers being relative. The only stage
 * needs none. */
static int add_stage(StageSet *set, Stretch made, bool alone) {
    StrBuf text = strbuf_create();
    if (!alone) graph_print(&text, made.graph);
    for (int i = 0; i < set->n; i++) {
        if (strcmp(set->texts[i].text, text.text) != 0) continue;
        strbuf_destroy(&text);
        arena_destroy(made.arena);
        return i;
    }
    set->graphs[set->n] = made;
    set->texts[set->n] = text;
    return set->n++;
}

/* The sharded graph, which is freed, in stages. */
static StageSet cut_stages(Plan *plan, Stretch *sharded, PassContext *ctx, Arena *work) {
    int p = plan->n_stages;
    StageSet set = {0, ARENA_ARRAY(work, Stretch, p), ARENA_ARRAY(work, StrBuf, p)};
    ctx->arena = arena_create();
    ProgramMaker *maker = program_maker_create(sharded->graph, ctx, plan->arena);
    for (int s = 0; s < p; s++) {
        Stage *stage = &plan->stages[s];
        Stretch made = {.arena = arena_create()};
        StageGraph of = program_maker_stage(maker, s, made.arena);
        made.graph = of.graph;
        stage->program = add_stage(&set, made, p == 1);
        memcpy(stage->first_block, of.first_block, sizeof(of.first_block));
        memcpy(stage->n_blocks, of.n_blocks, sizeof(of.n_blocks));
    }
    plan->comms = program_maker_comms(maker, &plan->n_comms);
    arena_destroy(ctx->arena);
    arena_destroy(sharded->arena);
    *sharded = (Stretch){0};
    return set;
}

struct PlanStem {
    Stretch at; /* no graph: there is none yet */
    Mesh mesh;
    int64_t n_parameters, n_trained;
    double model_flops;
    StageComm *comms;
    int n_comms, first_block[MAX_CHUNKS], n_blocks[MAX_CHUNKS];
};

PlanStem *plan_stem_create(void) {
    PlanStem *stem = calloc(1, sizeof(*stem));
    if (!stem) memory_exhausted(sizeof(*stem));
    return stem;
}

void plan_stem_destroy(PlanStem *stem) {
    arena_destroy(stem->at.arena);
    free(stem);
}

/* The graph becomes the stem's. */
static void keep_stem(PlanStem *stem, const Plan *plan, Stretch *at) {
    const Stage *stage = &plan->stages[0];
    *stem = (PlanStem){.at = *at,
                       .mesh = plan->mesh,
                       .n_parameters = plan->n_parameters,
                       .n_trained = plan->n_trained,
                       .model_flops = plan->model_flops,
                       .comms = plan->comms,
                       .n_comms = plan->n_comms};
    memcpy(stem->first_block, stage->first_block, sizeof(stem->first_block));
    memcpy(stem->n_blocks, stage->n_blocks, sizeof(stem->n_blocks));
    at->arena = NULL;
}

static void take_stem(const PlanStem *stem, Plan *plan) {
    Stage *stage = &plan->stages[0];
    plan->mesh = stem->mesh;
    plan->n_parameters = stem->n_parameters;
    plan->n_trained = stem->n_trained;
    plan->model_flops = stem->model_flops;
    plan->comms = stem->comms;
    plan->n_comms = stem->n_comms;
    memcpy(stage->first_block, stem->first_block, sizeof(stem->first_block));
    memcpy(stage->n_blocks, stem->n_blocks, sizeof(stem->n_blocks));
}

static void keep_program(Plan *plan, Stretch *at) {
    Program *program = &plan->programs[plan->n_programs++];
    program->graph = graph_copy(at->graph, plan->arena);
    arena_destroy(at->arena);
    at->arena = NULL;
    plan_memory(program, plan->n_chunks, plan->cuda, plan->offload, plan->arena);
}

/* From the stem on, which stays. */
static bool make_program_of_stem(Plan *plan, const PlanStem *stem, PassContext *ctx) {
    Stretch at = {.graph = stem->at.graph};
    take_stem(stem, plan);
    plan->programs = ARENA_ARRAY(plan->arena, Program, 1);
    if (run_passes(&at, FIRST_BEHIND_STEM, "offload_activations", ctx)) {
        keep_program(plan, &at);
        return true;
    }
    arena_destroy(at.arena);
    return false;
}

/* stem: to be made, or NULL. */
static bool make_stage_programs(Plan *plan, Stretch *sharded, PassContext *ctx, PlanStem *stem) {
    Arena *work = arena_create();
    StageSet set = cut_stages(plan, sharded, ctx, work);
    bool fine = true;
    plan->programs = ARENA_ARRAY(plan->arena, Program, set.n);
    for (int i = 0; i < set.n && fine; i++) {
        Stretch *at = &set.graphs[i];
        fine = run_passes(at, "fold_accumulate", LAST_OF_STEM, ctx);
        if (fine && stem) keep_stem(stem, plan, at);
        fine = fine && run_passes(at, FIRST_BEHIND_STEM, "offload_activations", ctx);
        if (fine) keep_program(plan, at);
    }
    destroy_stages(&set);
    arena_destroy(work);
    return fine;
}

static void size_channels(Plan *plan) {
    for (int i = 0; i < plan->n_channels; i++) {
        Channel *channel = &plan->channels[i];
        int64_t largest = 0;
        int at = 0;
        for (const Node *node; (node = plan_next_send(plan, i, &at));) {
            Value value = node->inputs[0];
            int64_t bytes = type_local_bytes(value_type(value), value_sharding(value), &plan->mesh);
            if (bytes > largest) largest = bytes;
        }
        largest = (largest + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES;
        channel->slot_bytes = largest * plan_channel_values(plan, i);
    }
}

static Plan *new_plan(Arena *arena, const PlanRequest *request) {
    const PlanOptions *options = &request->options;
    Plan *plan = ARENA_NEW(arena, Plan);
    plan->arena = arena;
    plan->model = arena_strdup(arena, request->model);
    plan->settings = arena_strdup(arena, request->settings ? request->settings : "");
    plan->mesh = options->mesh;
    plan->n_chunks = options->n_chunks;
    plan->micro_batch = options->micro_batch;
    plan->global_batch = options->global_batch;
    plan->n_micro =
        options->global_batch / (options->micro_batch * mesh_batch_parts(&options->mesh));
    plan->seq = request->seq;
    plan->vocab = request->vocab;
    plan->n_blocks = request->n_blocks;
    plan->schedule = arena_strdup(arena, options->schedule);
    plan->path = schedule_path(schedule_find(options->schedule));
    plan->cuda = options->cuda;
    plan->sequence_parallel = options->sequence_parallel;
    plan->zero = options->zero;
    plan->offload = options->offload;
    plan->offload_activations = options->offload_activations;
    plan->precision = options->precision;
    plan->recompute = options->recompute;
    plan->seed = options->seed;
    const char *schedule = request->recipe.lr_schedule;
    plan->learning_rate = request->recipe.learning_rate;
    plan->lr_schedule = arena_strdup(arena, schedule ? schedule : "");
    plan->decay_steps = request->recipe.decay_steps;
    plan->n_stages = options->mesh.size[MESH_P];
    plan->stages = ARENA_ARRAY(arena, Stage, plan->n_stages);
    return plan;
}

/* The step's graph, and programs of it. */
static bool make_programs(Plan *plan, const PlanRequest *request, PassContext *ctx,
                          PlanStem *stem) {
    Stretch at = {.graph = request->forward};
    bool fine = run_passes(&at, "simplify", "append_update", ctx);
    if (fine) count_model(plan, at.graph);
    fine = fine && run_passes(&at, "expand", "split_masters", ctx);
    if (fine) plan->mesh = at.graph->mesh;
    fine = fine && (request->options.priced || check_nodes(at.graph, plan, ctx->diag)) &&
           check_quantized(at.graph, request->options.precision, "", ctx->diag) &&
           check_packed(at.graph, request->options.frozen_bits, ctx->diag) &&
           make_stage_programs(plan, &at, ctx, stem);
    arena_destroy(at.arena);
    return fine;
}

static Plan *make_plan(Arena *arena, const PlanRequest *request, PlanStem *stem, Diag *diag) {
    if (!check_request(request, diag)) return NULL;
    Plan *plan = new_plan(arena, request);
    int *chunk_of_block = ARENA_ARRAY(arena, int, request->n_blocks + 1);
    PassContext ctx = {.diag = diag,
                       .recipe = request->recipe,
                       .options = request->options,
                       .n_blocks = request->n_blocks,
                       .n_micro = plan->n_micro,
                       .chunk_of_block = chunk_of_block};
    bool fine = stem && stem->at.graph ? make_program_of_stem(plan, stem, &ctx)
                                       : make_programs(plan, request, &ctx, stem);
    fine = fine && check_offloaded(plan, diag) && schedule_apply(plan, NO_LOC, diag);
    if (fine) {
        size_channels(plan);
        for (int s = 0; s < plan->n_stages; s++) plan_stage_layout(plan, &plan->stages[s]);
        plan->library_bytes = plan_library_bytes(plan);
        if (!request->options.priced) plan->fingerprint = plan_fingerprint(plan);
        fine = request->options.priced || verify_plan(plan, diag);
    }
    return fine ? plan : NULL;
}

Plan *plan_make(Arena *arena, const PlanRequest *request, Diag *diag) {
    return plan_make_of_stem(arena, request, NULL, diag);
}

Plan *plan_make_of_stem(Arena *arena, const PlanRequest *request, PlanStem *stem, Diag *diag) {
    PlanRequest whole = *request;
    int *size = whole.options.mesh.size;
    if (size[MESH_C] == 0) size[MESH_C] = 1;
    if (size[MESH_E] == 0) size[MESH_E] = 1;
    if (size[MESH_R] == 0) size[MESH_R] = 1;
    return make_plan(arena, &whole, stem, diag);
}
